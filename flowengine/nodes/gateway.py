"""The door of a node's agent: it serves what was recorded, records what is asked, and tells what is being written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.agents.gateway import DirectGateway
from flowengine.context import Context, Tell
from flowengine.journal.recorded import RecordedGateway
from flowengine.llm.model import Model, Reply, Request
from flowengine.llm.telling import heard
from flowengine.records import Gateway
from flowengine.tools.tool import Tool, ToolResult

__all__ = ["gateway_of", "telling_gateway_of"]


def gateway_of(context: Context) -> Gateway:
    """Each call is committed before its answer is used, and none is made twice."""
    direct, recorded = DirectGateway(context.note), context.recorded
    return RecordedGateway(direct, recorded) if recorded else direct


def telling_gateway_of(context: Context) -> Gateway:
    """The same; and where somebody follows the run, free text is told while it is written."""
    gateway, tell = gateway_of(context), context.tell
    return gateway if tell is None else _TellingGateway(gateway, tell)


class _TellingGateway:
    """Only a model that is really asked is heard: what was recorded is served by the gateway inside, in silence."""

    def __init__(self, inner: Gateway, tell: Tell) -> None:
        self._inner = inner
        self._tell = tell

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        asked = heard(model, self._tell) if request.response_schema is None else model
        return await self._inner.complete(asked, request, purpose=purpose)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        return await self._inner.call_tool(tool, arguments)

    async def note(self, record: Any) -> None:
        await self._inner.note(record)
