"""The gateways that write and replay the transcript of an agent's node: the calls that it made.

A node whose every call finds its answer in a transcript gives the result that it gave then, and nobody was asked.
Where transcripts are kept, and which are looked into, is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import anyio

from flowengine.agents.gateway import model_call
from flowengine.journal.replay import Replay
from flowengine.llm.model import Model, Reply, Request
from flowengine.nodes.past import without_question
from flowengine.records import Gateway, Reused, ToolCall, tool_key
from flowengine.tools.tool import Tool, ToolResult

__all__ = ["CopyingGateway", "TranscriptGateway"]

T = TypeVar("T")


class _Candidate(NamedTuple):
    origin: Reused
    replay: Replay


class TranscriptGateway:
    """Answers every call from one of several transcripts, and makes none.

    `find`: the key of the first request → the transcripts that may hold the answers. After each call only those are
    left that had it. `give_up` is called where none had; it is to cancel whoever asks, so that nothing is made of it.
    """

    def __init__(self, find: Callable[[str], Iterable[Reused]], give_up: Callable[[], object]) -> None:
        self._find = find
        self._give_up = give_up
        self._candidates: list[_Candidate] | None = None
        self._seen: defaultdict[str, int] = defaultdict(int)

    @property
    def origin(self) -> Reused | None:
        """The transcript that had every answer; None where none had, or where nothing was asked."""
        return self._candidates[0].origin if self._candidates else None

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        key = request.key()
        if self._candidates is None:
            self._candidates = [_Candidate(each, Replay(each.calls)) for each in self._find(key)]
        return await self._answer(key, Replay.take_reply)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        return await self._answer(tool_key(tool.name, arguments), Replay.take_tool_result)

    async def note(self, record: Any) -> None:
        """Nothing happens here that is worth telling."""

    async def _answer(self, key: str, take: Callable[[Replay, str, int], T | None]) -> T:
        occurrence = self._seen[key]
        self._seen[key] += 1
        found = [(each, take(each.replay, key, occurrence)) for each in self._candidates or ()]
        self._candidates = [each for each, answer in found if answer is not None]
        for _, answer in found:
            if answer is not None:
                return answer
        self._give_up()
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


class CopyingGateway:
    """Keeps a transcript of what passes through it."""

    def __init__(self, inner: Gateway) -> None:
        self._inner = inner
        self._seen: defaultdict[str, int] = defaultdict(int)
        self.calls: list[Any] = []

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        key, occurrence = self._counted(request.key())
        reply: Reply = await self._inner.complete(model, request, purpose=purpose)
        call = model_call(model, request, reply, purpose=purpose, key=key, occurrence=occurrence)
        self.calls.append(without_question(call))
        return reply

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        key, occurrence = self._counted(tool_key(tool.name, arguments))
        result: ToolResult = await self._inner.call_tool(tool, arguments)
        text, value, is_error = result
        call = ToolCall(tool.name, {}, text, is_error, effect=tool.effect, key=key, occurrence=occurrence, value=value)
        self.calls.append(call)
        return result

    async def note(self, record: Any) -> None:
        await self._inner.note(record)

    def _counted(self, key: str) -> tuple[str, int]:
        before = self._seen[key]
        self._seen[key] = before + 1
        return key, before
