"""Reads and writes recorded model calls as YAML that people review and edit, and makes one from a run.

It knows the form of the file and not when calls are played or recorded. A request is written without
secrets (see `flowengine.models.model`), a reply without what differs from time to time (seconds, attempts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from flowengine.core import PREPARING, FileValue, ModelCall, tells_refusals, write_output
from flowengine.engine import Event, NodeRecorded, RunStarted
from flowengine.errors import FlowError, StoreVersionError
from flowengine.flowfile.schema import Keys
from flowengine.flowfile.yaml import to_yaml
from flowengine.journal import reply_of
from flowengine.models import (
    Message,
    Reply,
    Request,
    Role,
    TokenUsage,
    ToolRequest,
    as_dict,
    as_json,
    plain_request,
    request_of,
)
from flowengine.testing.yaml_file import read_yaml

_FILE_HEAD: Final = """\
# Answers of models, recorded by FlowEngine and played back by tests. Each answers the request above it.
cassette: 1
"""


class CassetteError(FlowError):
    """A cassette that cannot be read; `diagnostics` holds every problem with its line."""


@dataclass(frozen=True)
class Call:
    """One request and its answer."""

    request: Request
    reply: Reply
    node: str = ""
    """Who asked; empty outside of flows."""

    @cached_property
    def key(self) -> str:
        """Equal for requests that differ in nothing but their secrets."""
        return normalize_request(self.request).key()


def normalize_request(request: Request) -> Request:
    """The request as it comes back from a file."""
    return request_of(plain_request(request), as_json([as_dict(each) for each in request.messages]))


# --- The form of the file


class _ToolCall(Keys):
    id: str = ""
    name: str
    arguments: str = ""
    """Raw text, as the model gave it."""


class _Attachment(Keys):
    """A file by its hash; the content is in no cassette."""

    blob: str = Field(pattern="[0-9a-f]{64}")
    media_type: str
    name: str
    size: int


class _Message(Keys):
    role: Role
    content: str = ""
    tool_calls: list[_ToolCall] = Field(default_factory=list[_ToolCall])
    tool_call_id: str | None = None
    vendor_parts: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    attachments: list[_Attachment] = Field(default_factory=list[_Attachment])
    is_error: bool = False


class _Request(Keys):
    model: str
    temperature: float | None = None
    max_tokens: int | None = None
    response_name: str | None = None
    response_schema: dict[str, Any] | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    messages: list[_Message]


class _Reply(Keys):
    content: str = ""
    tool_calls: list[_ToolCall] = Field(default_factory=list[_ToolCall])
    finish_reason: str = "stop"
    model: str = ""
    provider: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    vendor_parts: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])


class _Call(Keys):
    node: str = ""
    request: _Request
    reply: _Reply


class _Cassette(Keys):
    cassette: Literal[1]
    """Version of the form."""
    calls: list[_Call]


# --- Reading


def read_cassette(path: Path) -> list[Call]:
    """The calls of a file; `CassetteError` says where it is damaged."""
    content, _ = read_yaml(path, _Cassette, "a cassette", CassetteError)
    return [Call(_to_request(each.request), _to_reply(each.reply), each.node) for each in content.calls]


def _to_request(entry: _Request) -> Request:
    messages = [
        Message(
            *(each.role, each.content, _to_tool_calls(each.tool_calls), each.tool_call_id),
            vendor_parts=tuple(each.vendor_parts),
            attachments=tuple(FileValue(**file.model_dump()) for file in each.attachments),
            is_error=each.is_error,
        )
        for each in entry.messages
    ]
    shape = entry.model_dump(exclude={"messages"}, exclude_none=True)
    return request_of(shape, [as_dict(each) for each in messages])


def _to_reply(entry: _Reply) -> Reply:
    return Reply(
        entry.content,
        _to_tool_calls(entry.tool_calls),
        TokenUsage(**entry.model_dump(include={*TokenUsage._fields})),
        entry.cost_usd,
        entry.finish_reason,
        entry.model,
        entry.provider,
        vendor_parts=tuple(entry.vendor_parts),
    )


def _to_tool_calls(entries: Sequence[_ToolCall]) -> tuple[ToolRequest, ...]:
    return tuple(ToolRequest(each.id, each.name, each.arguments) for each in entries)


# --- Writing


def write_cassette(path: Path, calls: Sequence[Call]) -> None:
    """Write the file, all of it or nothing."""
    with tells_refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, [cassette_text(calls).encode()])


def cassette_text(calls: Sequence[Call]) -> str:
    """The file's text, one paragraph a call."""
    if not calls:
        return f"{_FILE_HEAD}calls: []\n"
    return f"{_FILE_HEAD}calls:\n" + "\n".join(to_yaml([as_json(_to_yaml(each))]) for each in calls)


def format_request(request: Request) -> str:
    """A request as the file has it."""
    return to_yaml(_request_to_yaml(request))


def _to_yaml(call: Call) -> dict[str, Any]:
    node = {"node": call.node} if call.node else {}
    return {**node, "request": _request_to_yaml(call.request), "reply": _reply_to_yaml(call.reply)}


def _request_to_yaml(request: Request) -> dict[str, Any]:
    messages = [
        _drop_empty(
            role=each.role,
            content=each.content,
            tool_calls=_tool_calls_to_yaml(each.tool_calls),
            tool_call_id=each.tool_call_id,
            vendor_parts=list(each.vendor_parts),
            attachments=[*as_dict(each).get("attachments", ())],
            is_error=each.is_error or None,
        )
        for each in request.messages
    ]
    return {**plain_request(request), "messages": messages}


def _reply_to_yaml(reply: Reply) -> dict[str, Any]:
    return _drop_empty(
        content=reply.content,
        tool_calls=_tool_calls_to_yaml(reply.tool_calls),
        finish_reason=None if reply.finish_reason == "stop" else reply.finish_reason,
        model=reply.model,
        provider=reply.provider,
        **reply.usage._asdict(),
        cost_usd=reply.cost_usd,
        vendor_parts=list(reply.vendor_parts),
    )


def _tool_calls_to_yaml(calls: Sequence[ToolRequest]) -> list[dict[str, str]]:
    return [call._asdict() for call in calls]


def _drop_empty(**parts: Any) -> dict[str, Any]:
    """The parts that hold something."""
    return {name: part for name, part in parts.items() if part not in (None, "", [])}


# --- Calls from a run's record


def recorded_calls(events: Sequence[Event]) -> list[Call]:
    """The answered calls of a run, in the order of the flow's nodes and of time.

    Failed calls are left out, and those of context providers: a cassette plays the agents' own.
    """
    order: dict[str, int] = {}
    if events and isinstance(events[0], RunStarted):
        order = {node: number for number, (node, *_) in enumerate(events[0].graph.get("nodes", ()))}
    calls = [
        _to_call(event.node, event.record)
        for event in events
        if isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) and _is_played(event.record)
    ]
    return sorted(calls, key=lambda call: order.get(call.node, len(order)))


def _is_played(record: ModelCall) -> bool:
    return record.error is None and record.purpose not in PREPARING


def _to_call(node: str, record: ModelCall) -> Call:
    if not record.request:
        raise StoreVersionError(
            f"the calls of '{node}' were recorded without their settings, by an older FlowEngine: run the flow again"
        )
    reply = reply_of(record)._replace(finish_reason=record.finish_reason or "stop")
    return Call(request_of(record.request, record.messages), reply, node)
