"""The door of a node's agent: it serves what was recorded, keeps the limits, records what is asked, and tells
what is being written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from flowengine.agents.gateway import DirectGateway
from flowengine.context import Context, Tell
from flowengine.journal.recorded import CountingGateway, RecordedGateway
from flowengine.ledger import Ledger
from flowengine.llm.bounded import BoundedModel
from flowengine.llm.model import Model, Reply, Request
from flowengine.llm.telling import heard
from flowengine.records import PREPARING, Gateway, Notice
from flowengine.run_scope import Fence
from flowengine.tools.tool import Tool, ToolResult

__all__ = ["gateway_of", "telling_gateway_of"]


def gateway_of(context: Context) -> Gateway:
    """Each call is committed before its answer is used, none is made twice, and none that a limit does not allow."""
    door: CountingGateway = DirectGateway(context.note)
    if context.ledger is not None:
        said = set[str]() if context.scope is None else context.scope.once(_LedgerGateway, set[str])
        door = _LedgerGateway(door, context.ledger, said)
    if context.scope is not None and context.scope.fence is not None:
        door = _FencedGateway(door, context.scope.fence)
    recorded = context.recorded
    served: Gateway = RecordedGateway(door, recorded) if recorded else door
    return served if context.around is None else context.around(served)


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
        is_read = request.response_schema is None and purpose not in PREPARING
        asked = heard(model, self._tell) if is_read else model
        return await self._inner.complete(asked, request, purpose=purpose)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        return await self._inner.call_tool(tool, arguments)

    async def note(self, record: Any) -> None:
        await self._inner.note(record)


class _FencedGateway:
    """Nothing is asked or called for a run that another process goes on with."""

    def __init__(self, inner: CountingGateway, fence: Fence) -> None:
        self._inner = inner
        self._fence = fence

    @property
    def seen(self) -> defaultdict[str, int]:
        return self._inner.seen

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        await self._fence()
        return await self._inner.complete(model, request, purpose=purpose)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        await self._fence()
        return await self._inner.call_tool(tool, arguments)

    async def note(self, record: Any) -> None:
        await self._inner.note(record)


class _LedgerGateway:
    """Only a model that is really asked is reserved for: it stands inside of the gateway that serves records.

    The model is wrapped and not the request changed, since calls are found again by their request.
    """

    def __init__(self, inner: CountingGateway, ledger: Ledger, said: set[str]) -> None:
        """`said`: the notices of this run so far."""
        self._inner = inner
        self._ledger = ledger
        self._said = said

    @property
    def seen(self) -> defaultdict[str, int]:
        return self._inner.seen

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        bounded = BoundedModel(model, self._ledger, self._say)
        return await self._inner.complete(bounded, request, purpose=purpose)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        return await self._inner.call_tool(tool, arguments)

    async def note(self, record: Any) -> None:
        await self._inner.note(record)

    async def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            await self._inner.note(Notice(text))
