"""A cassette from a run that has happened: its journal holds every model call already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.engine.events import Event, NodeRecorded, RunStarted
from flowengine.errors import StoreVersionError
from flowengine.llm.messages import ToolRequest
from flowengine.llm.model import Reply, Usage
from flowengine.llm.plain_request import request_of
from flowengine.records import PREPARING, ModelCall
from flowengine.testing.cassette_file import Call

__all__ = ["recorded_calls"]


def recorded_calls(events: Sequence[Event]) -> list[Call]:
    """The answered calls of a run, in the order of the flow's nodes and of time.

    Failed calls are left out, and those of context providers: a cassette plays the agents' own.
    """
    order: dict[str, int] = {}
    if events and isinstance(events[0], RunStarted):
        order = {node: number for number, (node, _) in enumerate(events[0].graph.get("nodes", ()))}
    calls = [
        _call(event.node, event.record)
        for event in events
        if isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) and _is_played(event.record)
    ]
    return sorted(calls, key=lambda call: order.get(call.node, len(order)))


def _is_played(record: ModelCall) -> bool:
    return record.error is None and record.purpose not in PREPARING


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
