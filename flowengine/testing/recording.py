"""A cassette from a run that has happened: its journal holds every model call already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.engine.events import Event, NodeRecorded, RunStarted
from flowengine.errors import StoreVersionError
from flowengine.llm.messages import ToolRequest
from flowengine.llm.model import Reply, Usage
from flowengine.llm.plain_request import request_of
from flowengine.records import ModelCall
from flowengine.testing.cassette_file import Call

__all__ = ["recorded_calls"]


def recorded_calls(events: Sequence[Event]) -> list[Call]:
    """The answered calls of a run, in the order of the flow's nodes and of time; failed calls are left out."""
    order: dict[str, int] = {}
    if events and isinstance(events[0], RunStarted):
        order = {node: number for number, (node, _) in enumerate(events[0].graph.get("nodes", ()))}
    calls = [
        _call(event.node, event.record)
        for event in events
        if isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) and event.record.error is None
    ]
    return sorted(calls, key=lambda call: order.get(call.node, len(order)))


def _call(node: str, record: ModelCall) -> Call:
    if not record.request:
        raise StoreVersionError(
            f"the calls of '{node}' were recorded without their settings, by an older FlowEngine: run the flow again"
        )
    reply = Reply(
        record.content,
        tuple(_tool_request(each) for each in record.tool_calls),
        Usage(record.prompt_tokens, record.completion_tokens, record.cached_tokens),
        record.cost_usd,
        record.finish_reason or "stop",
        record.model,
        record.provider,
    )
    return Call(request_of(record.request, record.messages), reply, node)


def _tool_request(shape: Mapping[str, Any]) -> ToolRequest:
    return ToolRequest(shape["id"], shape["name"], shape["arguments"])
