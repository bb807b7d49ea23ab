"""Asks a person for a decision: the run waits for it without costing anything. Source of the rules: rule 12."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any, ClassVar, Final, Unpack

from flowengine.core import EMPTY, USER_CODE, Answered, ApprovalRequested, Context, NodeResult, check_arguments
from flowengine.engine import Ended, Park
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.nodes.code_digest import digest_handed
from flowengine.nodes.node import FlowNode, NodeSettings, Value, check_least

_LATEST: Final = 253_402_300_799.0
"""Unix seconds of the end of the year 9999: what expires later is shown, and looked at again, as if it did then."""


def tell_nobody(context: Context) -> Sequence[Any]:
    """`notify` of a question that no one is told of, whatever the project says."""
    return ()


class ApprovalNode(FlowNode):
    """Asks `message`, and takes the route that somebody chooses (`targets`: choice → node, None: nowhere).

    `form`: a JSON Schema of what is filled in beside the choice. `expires`: seconds after which
    `on_expire` counts as chosen, once somebody opens the run. `approvers`: who alone may answer. `notify`: who is
    told, as the question has it (`ApprovalRequested.notify`); only of a flow with a project file, which says how.
    `describe`: choice → what it means; `form_for`: the choices that the form goes with (none: all). The output is
    `{choice, comment, by, form}`.
    """

    kind: ClassVar[str] = "approval"

    def __init__(
        self,
        message: Value,
        targets: Mapping[str, str | None],
        *,
        form: Mapping[str, Any] | None = None,
        expires: float | None = None,
        on_expire: str | None = None,
        approvers: Sequence[str] = (),
        notify: Value | None = None,
        describe: Mapping[str, str] = EMPTY,
        form_for: Sequence[str] = (),
        clock: Callable[[], float] = time,
        **settings: Unpack[NodeSettings],
    ) -> None:
        check_arguments(ApprovalNode.__init__, locals())
        super().__init__(**settings)
        if not targets:
            raise DefinitionError("there is nothing to choose from: give at least one choice")
        check_least("expires", expires, 0)
        if (expires is None) != (on_expire is None):
            present, lacks = ("expires", "on_expire") if on_expire is None else ("on_expire", "expires")
            raise DefinitionError(f"'{present}' goes with '{lacks}', which is missing")
        if on_expire is not None and on_expire not in targets:
            near = did_you_mean(on_expire, targets) or f"; there are {', '.join(targets)}"
            raise DefinitionError(f"on_expire names no choice: '{on_expire}'{near}")
        self.message = message
        self.form = form
        self.expires = expires
        self.on_expire = on_expire
        self.approvers = tuple(approvers)
        self.notify = notify
        self.describe = describe
        self.form_for = tuple(form_for)
        self._routes = dict(targets)
        self._clock = clock

    @property
    def routes(self) -> Mapping[str, str | None]:
        return self._routes

    async def run(self, context: Context, /) -> Ended:
        recorded = context.runtime.recorded
        question = next((each for each in recorded if type(each) is ApprovalRequested), None)
        if question is None:
            question = self._question(context)
            await context.runtime.note(question)
        answer = next((each for each in recorded if type(each) is Answered), None)
        if answer is None and question.expires is not None and question.expires <= self._clock():
            answer = Answered(question.on_expire or "", by="expired")
            await context.runtime.note(answer)
        if answer is None:
            return Park()
        output = {"choice": answer.choice, "comment": answer.comment, "by": answer.by, "form": answer.form}
        digest = digest_handed(context, {"message": question.message})
        return NodeResult(output, route=answer.choice, given=digest)

    @property
    def asks_by_default(self) -> bool:
        return self.notify is None

    @property
    def tells_people(self) -> bool:
        return self.notify is not None and self.notify is not tell_nobody

    def handed(self, context: Context) -> Mapping[str, Any]:
        return {"message": str(self.message(context))}

    def _question(self, context: Context) -> ApprovalRequested:
        expires = None if self.expires is None else min(self._clock() + min(self.expires, _LATEST), _LATEST)
        with USER_CODE:
            notify = None if self.notify is None else self.notify(context)
            message = self.handed(context)["message"]
        question = ApprovalRequested(message, list(self._routes), self.form, expires, self.on_expire)
        return question._replace(
            approvers=self.approvers, notify=notify, describe=self.describe, form_for=self.form_for
        )

    def identity(self) -> Sequence[Any]:
        who = (self.approvers,) if self.approvers else ()
        return (self.form, self.expires, self.on_expire, *who)
