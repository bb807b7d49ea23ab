"""Answers as a test's script says, and records the requests.

It answers from a script and from nothing else: a call that the script does not foresee is an
error that shows the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, cast

import anyio

from flowengine.errors import PermanentModelError
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request, stream_whole

__all__ = ["Answer", "ScriptedModel", "UnscriptedCallError", "format_prompt"]

Answer: TypeAlias = str | Reply | ToolRequest | Exception | Mapping[str, Any] | list[Any]
"""A text, a whole reply, a tool call, an error to raise, or a value that is written as JSON."""

Script: TypeAlias = (
    Sequence[Answer]
    | Mapping[str | re.Pattern[str], Answer | tuple[Answer, ...] | Callable[[Request], Answer]]
    | Callable[[Request], Answer]
)


class UnscriptedCallError(PermanentModelError):
    """The script has no answer for this call."""


class ScriptedModel:
    """Answers in order (a list), by what is asked (a dict), or by a function of the request.

    The keys of a dict are texts that occur in the messages, compiled patterns that are found
    there, or the `response_name` of a request that has a `response_schema`; the first that fits
    is taken. A tuple as its value gives one answer after the other, the last one for ever.

    >>> model = ScriptedModel({"tea": "Green.", "rout": {"next_route": "drinks"}})
    >>> model.provider
    'scripted'
    """

    def __init__(
        self, answers: Script, *, latency: float = 0.0, name: str = "scripted", provider: str = "scripted"
    ) -> None:
        self.name = name
        self.provider = provider
        self.latency = latency
        """Seconds before each answer."""
        self.requests: list[Request] = []
        """Every request, in order of arrival."""
        self._script = answers
        self._answer_counts: dict[Any, int] = {}

    async def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        answer = self._answer(request)
        await anyio.sleep(self.latency)
        if isinstance(answer, Exception):
            raise answer
        return self._reply(answer)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        return stream_whole(self.complete, request, r"\s*\S+\s*")

    def _answer(self, request: Request) -> Answer:
        if callable(self._script):
            return self._script(request)
        if isinstance(self._script, Mapping):
            return self._find_answer(self._script, request)
        return self._next(self._script, request)

    def _find_answer(self, script: Mapping[Any, Any], request: Request) -> Answer:
        text = "\n".join(message.content for message in request.messages)
        for key, answer in script.items():
            if not _fits(key, text, request):
                continue
            if callable(answer):
                return cast(Answer, answer(request))
            if type(answer) is tuple:
                answers = cast("tuple[Answer, ...]", answer)
                return answers[min(self._count(key), len(answers) - 1)]
            return answer
        raise UnscriptedCallError(
            f"the script has no answer for this call; its keys are {list(script)}{format_prompt(request)}"
        )

    def _next(self, answers: Sequence[Answer], request: Request) -> Answer:
        number = self._count(None)
        if number >= len(answers):
            raise UnscriptedCallError(
                f"call {number + 1}, but the script has {len(answers)} answers{format_prompt(request)}"
            )
        return answers[number]

    def _count(self, key: Any) -> int:
        """Counts the answers already given under this key."""
        before = self._answer_counts.get(key, 0)
        self._answer_counts[key] = before + 1
        return before

    def _reply(self, answer: Answer) -> Reply:
        if isinstance(answer, Reply):
            return answer._replace(model=answer.model or self.name, provider=answer.provider or self.provider)
        if isinstance(answer, ToolRequest):
            return Reply(
                "", (answer,), cost_usd=0.0, finish_reason="tool_calls", model=self.name, provider=self.provider
            )
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        return Reply(text, cost_usd=0.0, model=self.name, provider=self.provider)


def _fits(key: str | re.Pattern[str], text: str, request: Request) -> bool:
    if isinstance(key, re.Pattern):
        return key.search(text) is not None
    return key in text or (request.response_schema is not None and key == request.response_name)


def format_prompt(request: Request) -> str:
    """The prompt, as the end of a message."""
    schema_name = f" for {request.response_name!r}" if request.response_schema is not None else ""
    return f". It was asked{schema_name}:\n" + "\n".join(f"[{each.role}] {each.content}" for each in request.messages)
