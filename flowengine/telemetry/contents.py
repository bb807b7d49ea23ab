"""What was said in a call, in the form of the GenAI conventions: messages made of parts. Pure; it masks nothing.

Source: the JSON schemas of `gen_ai.input.messages` and `gen_ai.output.messages` in the OpenTelemetry semantic
conventions for generative AI, as they stood in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from flowengine.records import ModelCall, ToolCall

__all__ = ["ToolRequest", "input_messages", "output_messages", "requests_of", "take_request"]

_FINISH: Final = {"tool_calls": "tool_call", "function_call": "tool_call"}
"""Finish reasons that the convention calls otherwise than the chat format does."""


class ToolRequest(NamedTuple):
    """A model's wish to have a tool called."""

    id: str
    name: str
    arguments: Any
    """Parsed; the text itself where it is no JSON."""


def input_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Chat messages as they were sent.

    >>> input_messages([{"role": "user", "content": "Hello"}])
    [{'role': 'user', 'parts': [{'type': 'text', 'content': 'Hello'}]}]
    """
    return [_message(each) for each in messages]


def output_messages(call: ModelCall) -> list[dict[str, Any]]:
    """The answer of a model call, with the reason why it ended."""
    made = _message({"role": "assistant", "content": call.content, "tool_calls": call.tool_calls})
    reason = call.finish_reason or ("tool_call" if call.tool_calls else "stop")
    return [{**made, "finish_reason": _FINISH.get(reason, reason)}]


def _message(shape: Mapping[str, Any]) -> dict[str, Any]:
    role, content = str(shape.get("role", "")), shape.get("content")
    if role == "tool":
        parts = [{"type": "tool_call_response", "id": shape.get("tool_call_id"), "response": content}]
        return {"role": role, "parts": parts}
    parts = list(_texts(content))
    for id, name, arguments in requests_of(shape.get("tool_calls") or ()):
        parts.append({"type": "tool_call", "id": id, "name": name, "arguments": arguments})
    return {"role": role, "parts": parts}


def _texts(content: Any) -> Iterable[dict[str, Any]]:
    """A content that is a text, or a list of parts of the chat format."""
    for each in cast("list[Any]", content) if isinstance(content, list) else [content]:
        text = cast("Mapping[str, Any]", each).get("text") if isinstance(each, Mapping) else each
        if text:
            yield {"type": "text", "content": str(text)}


def requests_of(calls: Sequence[Mapping[str, Any]]) -> list[ToolRequest]:
    """Tool calls of the chat format, or of a record (where name and arguments stand beside the id)."""
    found: list[ToolRequest] = []
    for call in calls:
        function = cast("Mapping[str, Any]", call.get("function") or call)
        found.append(ToolRequest(str(call.get("id", "")), str(function.get("name", "")), _parsed(function)))
    return found


def _parsed(function: Mapping[str, Any]) -> Any:
    text = function.get("arguments")
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def take_request(asked: list[ToolRequest], call: ToolCall) -> str | None:
    """The id of the request that a tool call answers, which is taken off the list; None where none fits."""
    named = [each for each in asked if each.name == call.name]
    equal = [each for each in named if each.arguments == dict(call.arguments)]
    found = next(iter(equal or named), None)
    if found is None:
        return None
    asked.remove(found)
    return found.id
