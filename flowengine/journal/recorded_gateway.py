"""Resumes a node: what it asks again is served from its record, and what is not on record is asked anew.

This is how a run goes on after a crash without paying twice: the node is entered from its beginning, and walks
through its recorded answers to the first question that has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from flowengine.agents.tools import Tool, ToolResult
from flowengine.core import Gateway, Notice, tool_key
from flowengine.journal.replay import Replay
from flowengine.models import Model, Reply, Request


class CountingGateway(Gateway, Protocol):
    """A gateway that numbers equal calls, by their keys, in the order in which they begin."""

    @property
    def seen(self) -> defaultdict[str, int]:
        """Key → calls begun."""
        ...


class RecordedGateway:
    """Serves each recorded answer once, to the same question; everything else goes to the gateway inside.

    A completion with no recorded answer, where others are left, is told as a `Notice`: the node asks
    differently from what it did before. What the agent tells a second time is not written again.
    """

    def __init__(self, inner: CountingGateway, recorded: Sequence[Any]) -> None:
        self._inner = inner
        self._replay = Replay(recorded)

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        key, counts = request.key(), self._inner.seen
        reply = self._replay.take_reply(key, counts[key])
        if reply is not None:
            counts[key] += 1
            return reply
        difference = self._replay.difference(request, key, purpose)
        if difference is not None:
            notice = f"a call for {purpose} is made anew, for it differs from what was recorded: {difference}"
            await self._inner.note(Notice(notice))
        return await self._inner.complete(model, request, purpose=purpose)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        key, counts = tool_key(tool.name, arguments), self._inner.seen
        result = self._replay.take_tool_result(key, counts[key])
        if result is not None:
            counts[key] += 1
            return result
        return await self._inner.call_tool(tool, arguments)

    async def note(self, record: Any) -> None:
        if not self._replay.take_told(record):
            await self._inner.note(record)
