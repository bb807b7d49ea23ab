"""Asks a person, once, before a tool is called that needs consent, and makes the call that was consented to.

A question is about one call: the tool's name, its arguments, and how many equal ones came before it in this attempt of
the node. Questions and answers are records of the node, so that an attempt that goes on in another process, after
whatever time, finds them again beside the completions that led to them. The model sees of all this what the tool gave,
or that the call was refused and why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from flowengine.agents.tools import ArgumentCheck, Tool, ToolResult, cut, failed_result
from flowengine.core import ACCEPT, REFUSE, Answered, ApprovalRequested, AwaitsPerson, Gateway, Messages, tool_key
from flowengine.models import Model, Reply, Request

_MOST_OF_MESSAGE: Final = 1_000
"""Characters of the arguments in a question's text; all of them are beside it."""


class _Question(NamedTuple):
    """The call that is asked about."""

    key: str
    occurrence: int


class ApprovalGateway:
    """Calls of tools that say `approve` go to the gateway inside once a person has accepted them.

    `recorded`: what the node has on record, questions and answers among it. An undecided call
    raises `AwaitsPerson`. One whose arguments the tool would not take is no question: the model is told. `refuse` makes
    the result of a call that a person refused.
    """

    def __init__(
        self,
        inner: Gateway,
        recorded: Sequence[Any],
        words: Messages,
        refuse: Callable[[str], ToolResult] = failed_result,
        approvers: Sequence[str] = (),
    ) -> None:
        self._inner = inner
        self._approvers = approvers
        self._words = words
        self._refuse = refuse
        requests = [each for each in recorded if type(each) is ApprovalRequested and each.tool]
        self._requests = {_Question(each.key, each.occurrence): each for each in requests}
        self._answers = {each.name: each for each in recorded if type(each) is Answered}
        self._numbers = Counter(each.tool for each in requests)
        self._occurrences = Counter[str]()

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        return await self._inner.complete(model, request, purpose=purpose)

    async def note(self, record: Any) -> None:
        await self._inner.note(record)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        if not tool.approve:
            return await self._inner.call_tool(tool, arguments)
        key = tool_key(tool.name, arguments)
        question = _Question(key, self._occurrences[key])
        self._occurrences[key] += 1
        request = self._requests.get(question)
        if request is None:
            problem = _find_problem(tool, arguments)
            if problem is not None:
                return failed_result(problem)
            request = self._make_question(tool, arguments, question)
            await self.note(request)
        answer = self._answers.get(request.name)
        if answer is None:
            raise AwaitsPerson
        if answer.choice != ACCEPT:
            return self._refuse(self._explain_refusal(tool, answer))
        final_arguments = arguments if answer.form is None else cast("Mapping[str, Any]", answer.form)
        return await self._inner.call_tool(replace(tool, approve=None), final_arguments)

    def _make_question(self, tool: Tool, arguments: Mapping[str, Any], question: _Question) -> ApprovalRequested:
        self._numbers[tool.name] += 1
        number = self._numbers[tool.name]
        name = tool.name if number == 1 else f"{tool.name}:{number}"
        text = cut(json.dumps(dict(arguments), ensure_ascii=False, default=str), _MOST_OF_MESSAGE)
        return ApprovalRequested(
            f"Call the tool '{tool.qualified or tool.name}' with {text}?",
            (ACCEPT, REFUSE),
            form=tool.parameters,
            name=name,
            tool=tool.name,
            arguments=arguments,
            key=question.key,
            occurrence=question.occurrence,
            approvers=self._approvers,
        )

    def _explain_refusal(self, tool: Tool, answer: Answered) -> str:
        comment = answer.comment.strip()
        if not comment:
            return self._words("tools.refused", tool=tool.name)
        return self._words("tools.refused_because", tool=tool.name, comment=comment)


def _find_problem(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """Explains why the arguments are invalid; None if they match the tool's schema."""
    if tool.check is not None:
        return tool.check(arguments)
    check = ArgumentCheck(tool.parameters)
    problems = check.problems(arguments)
    return check.explain(tool.name, problems) if problems else None
