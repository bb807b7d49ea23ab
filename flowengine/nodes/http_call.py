"""Sends an HTTP request as a node."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from time import perf_counter
from typing import Any, ClassVar, Final, TypeVar, Unpack

import anyio.to_thread

from flowengine.agents.tools import cut, text_of
from flowengine.core import MAX_VALUES, Context, NodeResult, RefusedFileError, ToolCall, find_misfits, tool_key
from flowengine.engine import NodeContext
from flowengine.errors import LONGEST_WAIT, DefinitionError, OutputError, RunError, UnknownEffectError
from flowengine.models.http import read_retry_after
from flowengine.nodes.code_digest import digest_handed
from flowengine.nodes.http_request import Answer, Expected, describe_url, is_json, make_request, read_body
from flowengine.nodes.http_sender import HttpSender, Sender, SentAnswer
from flowengine.nodes.node import Effect, FlowNode, NodeSettings, Value, work_out

T = TypeVar("T")

EFFECTS: Final[Mapping[str, Effect]] = {
    "GET": "none",
    "HEAD": "none",
    "PUT": "idempotent",
    "DELETE": "idempotent",
    "POST": "external",
    "PATCH": "external",
}
"""Method → what a request does outside, where the author says nothing else."""

_INLINE: Final = 16_384
"""The most bytes of an answer that is worked on without a thread."""
_MAX_VALUE: Final = 1_000_000
"""Bytes of an answer's body that is a value; a longer one becomes a file."""


class HttpNode(FlowNode):
    """Sends a request; the output is {status, headers, body}.

    `values` are worked out from the context: `url`, and where they are given `query`, `headers`, and one of `json`,
    `form` and `body`. `sender` knows where requests may go (`HttpSender`).
    """

    kind: ClassVar[str] = "http"
    sees_all = False

    def __init__(
        self,
        sender: Sender,
        values: Mapping[str, Value],
        *,
        method: str = "GET",
        headers_env: Mapping[str, str] | None = None,
        expected: Expected | None = None,
        follow: int = 5,
        **settings: Unpack[NodeSettings],
    ) -> None:
        if method not in EFFECTS:
            raise DefinitionError(f"the method is one of {', '.join(EFFECTS)}, found {method!r:.40}")
        settings["effect"] = settings.get("effect") or EFFECTS[method]
        super().__init__(**settings)
        if self.effect == "external" and self.cache:
            raise DefinitionError("what has an external effect is done once, so it takes no `cache`")
        self.method = method
        self.expected = expected or Expected()
        self._sender = sender
        self._values = values
        self._headers_env = dict(headers_env or {})
        self._follow = follow

    def with_sender(self, sender: Sender) -> HttpNode:
        """This node, whose requests go elsewhere: what it does outside is nothing then."""
        changed = copy(self)
        changed._sender, changed.effect = sender, "none"
        return changed

    def prepare(self) -> None:
        if isinstance(self._sender, HttpSender):
            self._sender.check_variables(self._headers_env)

    async def run(self, context: Context, /) -> NodeResult:
        handed = self.handed(context)
        digest = digest_handed(context, handed)
        request = make_request(self.method, handed, self._headers_env, self._follow)
        if EFFECTS[self.method] == "external" and self.effect != "none":
            headers = {"idempotency-key": _key_of(context), **request.headers}
            request = replace(request, headers=headers)
        start = perf_counter()
        exchange = await self._sender.send(request, self.timeout)
        await self._note(context, exchange, perf_counter() - start)
        try:
            return NodeResult(await self._output(context, exchange), given=digest)
        except RunError as error:
            if self.effect == "external" and not 400 <= exchange.answer.status < 500:
                raise UnknownEffectError(str(error)) from error  # It may have been done, so it is not repeated unasked.
            raise

    async def _note(self, context: Context, exchange: SentAnswer, seconds: float) -> None:
        """Records request and response, for readers of the run."""
        arguments = {"method": self.method, "url": exchange.secrets.hide(describe_url(exchange.url))}
        summary = f"{exchange.answer.status}, {len(exchange.answer.content):,} bytes"
        await context.runtime.note(
            ToolCall("http", arguments, summary, seconds=seconds, key=tool_key("http", arguments))
        )

    async def _output(self, context: Context, exchange: SentAnswer) -> Mapping[str, Any]:
        answer, hide = exchange.answer, exchange.secrets
        if not self.expected.takes(answer.status):
            excerpt = cut(hide.hide(answer.content[:2_000].decode("utf-8", "replace")), 300)
            statuses = ", ".join(map(str, self.expected.status))
            target = f"{self.method} {describe_url(exchange.url)}"
            error = RunError(
                f"{target} answered {answer.status} where {statuses} is expected{excerpt and f': {excerpt}'}"
            )
            error.retry_after = read_retry_after(answer.headers)
            if error.retry_after is not None and error.retry_after > LONGEST_WAIT:
                error.args = (f"{error}; it asks to wait {error.retry_after:,.0f} s, which is too long",)
            raise error
        body = await self._body(context, answer, exchange.url)
        if self.expected.schema is not None:
            # Beside the event loop: the answer is a stranger's.
            misfits = await anyio.to_thread.run_sync(find_misfits, self.expected.schema, body)
            if misfits:
                raise OutputError(f"the answer's body does not fit: {misfits[0].message[:300]} at {misfits[0].path}")
        headers = {name: hide.hide(value) for name, value in answer.headers.items()}
        return {"status": answer.status, "headers": headers, "body": await _work_on(answer, hide.hide_in, body)}

    async def _body(self, context: Context, answer: Answer, url: str) -> Any:
        if len(answer.content) <= _MAX_VALUE:
            body = await _work_on(answer, read_body, answer)
            if not isinstance(body, bytes):
                return body
        if self.expected.schema is not None:
            raise OutputError(f"the answer's body {_explain_file(answer)}: it is a file, and has no schema")
        files = None if context.runtime.scope is None else context.runtime.scope.files
        if files is None:
            raise RunError("the answer's body becomes a file, and there is no store to keep it")
        try:
            return await files.keep_soon(answer.content, url.partition("?")[0])
        except RefusedFileError as error:
            raise RunError(f"the answer's body: {error}") from error

    def handed(self, context: Context) -> Mapping[str, Any]:
        return work_out(self._values, context)

    def identity(self) -> Sequence[Any]:
        expectation = text_of(self.expected.schema), list(self.expected.status)
        return (self.method, sorted(self._values), sorted(self._headers_env.items()), self._follow, *expectation)


def _explain_file(answer: Answer) -> str:
    if len(answer.content) > _MAX_VALUE:
        return f"has more than {_MAX_VALUE:,} bytes"
    return f"has more than {MAX_VALUES:,} values" if is_json(answer) else "is neither JSON nor text"


async def _work_on(answer: Answer, work: Callable[[T], Any], argument: T) -> Any:
    """Does the work on an answer: a long one beside the event loop, which goes on with other runs meanwhile."""
    if len(answer.content) <= _INLINE:
        return work(argument)
    return await anyio.to_thread.run_sync(work, argument)


def _key_of(context: Context) -> str:
    """The same for each try of a node in a run, and for no other."""
    # What a node gives does not follow from this id, so that it is not read as templates read it.
    run_id = context.runtime.walk.run_id if isinstance(context, NodeContext) else context.run_id
    return hashlib.sha256(f"{run_id} {context.current_node}".encode()).hexdigest()[:32]
