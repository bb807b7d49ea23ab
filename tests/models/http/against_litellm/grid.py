"""The requests and answers that both ways to a model are given: litellm's and the one over HTTP from here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Request
from tests.support.model_answers import Completion, Failure, Raw, StreamFailure, Thinking, ToolCall, Truncated

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """One exchange."""

    name: str
    vendor: str
    request: Request
    answer: Any = "An answer."
    stream: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def id(self) -> str:
        return f"{self.vendor}-{self.name}{'-stream' if self.stream else ''}"


USER: Final = Message("user", "Why is the sky blue?")
SYSTEM: Final = Message("system", "Be brief.")
MODELS: Final = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-4-5"}


def _tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    return {"type": "function", "function": {"name": name, "description": f"{name} it.", "parameters": parameters}}


TOOLS: Final = (_tool("look"), _tool("find"))
_CALL: Final = ToolRequest("call_1", "look", '{"at": "sky"}')
_OTHER: Final = ToolRequest("call_2", "find", '{"at": "空"}')
SCHEMA: Final = {
    "type": "object",
    "properties": {"tea": {"type": "string"}, "cups": {"type": "integer"}},
    "required": ["tea", "cups"],
    "additionalProperties": False,
}
_BOUNDED: Final = {
    "type": "object",
    "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}},
    "required": ["score"],
    "additionalProperties": False,
}
_REFERRING: Final = {
    "type": "object",
    "properties": {"item": {"$ref": "#/$defs/item"}},
    "required": ["item"],
    "additionalProperties": False,
    "$defs": {
        "item": {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
    },
}
_FREE: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_LIST: Final = {"type": "array", "items": {"type": "string"}}

# --- what is asked


def _requests() -> Iterator[tuple[str, tuple[Message, ...], dict[str, Any]]]:
    """(name, messages, settings) for every vendor."""
    yield "user", (USER,), {}
    yield "system", (SYSTEM, USER), {}
    yield "two systems", (SYSTEM, USER, Message("system", "And kind.")), {}
    yield "turns", (SYSTEM, USER, Message("assistant", "Light."), Message("user", "How?")), {}
    yield "users in a row", (USER, Message("user", "And the sea?")), {}
    yield "assistant last", (USER, Message("assistant", "Because ")), {}
    yield "unicode", (Message("system", "日本語で"), Message("user", "é 空 🫖 \u2028 \x00 ‮ end")), {}
    yield "empty user", (Message("user", ""),), {}
    yield "empty system", (Message("system", ""), USER), {}
    yield "empty assistant", (USER, Message("assistant", ""), Message("user", "So?")), {}
    yield "tools", (USER,), {"tools": TOOLS}
    asked = Message("assistant", "", (_CALL,))
    yield "result", (USER, asked, Message("tool", "blue", tool_call_id="call_1")), {"tools": TOOLS}
    yield "empty result", (USER, asked, Message("tool", "", tool_call_id="call_1")), {"tools": TOOLS}
    yield "no tools any more", (USER, asked, Message("tool", "blue", tool_call_id="call_1")), {}
    both = Message("assistant", "Looking.", (_CALL, _OTHER))
    results = (Message("tool", "blue", tool_call_id="call_1"), Message("tool", "青", tool_call_id="call_2"))
    yield "parallel results", (USER, both, *results), {"tools": TOOLS}
    yield "results and a remark", (USER, both, *results, Message("user", "Go on.")), {"tools": TOOLS}
    yield "schema", (SYSTEM, USER), {"response_schema": SCHEMA, "response_name": "tea"}
    yield "bounded schema", (USER,), {"response_schema": _BOUNDED}
    yield "referring schema", (USER,), {"response_schema": _REFERRING}
    yield "free schema", (USER,), {"response_schema": _FREE}
    yield "list schema", (USER,), {"response_schema": _LIST}
    yield "schema and tools", (USER,), {"response_schema": SCHEMA, "tools": TOOLS}
    yield "temperature", (USER,), {"temperature": 0.25}
    yield "no temperature", (USER,), {"temperature": 0.0}
    yield "max_tokens", (USER,), {"max_tokens": 77}
    options = {
        "top_p": 0.5,
        "seed": 7,
        "stop": "END",
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "service_tier": "auto",
    }
    for name, value in options.items():
        yield name, (USER,), {"extra": {name: value}}
    yield "stops", (USER,), {"extra": {"stop": ["END", "STOP"]}}
    yield "parallel_tool_calls", (USER,), {"tools": TOOLS, "extra": {"parallel_tool_calls": False}}


def _reasoning() -> Iterator[Case]:
    settings: dict[str, dict[str, Any]] = {
        "max_tokens": {"max_tokens": 77},
        "reasoning_effort": {"extra": {"reasoning_effort": "low"}},
        "schema": {"response_schema": SCHEMA},
    }
    for name in ("gpt-5-mini", "o3-mini"):
        for label, more in settings.items():
            yield Case(f"{name} {label}", "openai", Request(name, (USER,), **more))
    yield Case("gpt-5-mini verbosity", "openai", Request("gpt-5-mini", (USER,), extra={"verbosity": "low"}))
    budget: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    for name in ("claude-haiku-4-5", "claude-opus-4-5", "claude-sonnet-4-6", "claude-opus-4-7"):
        yield Case(f"{name} thinking", "anthropic", Request(name, (USER,), max_tokens=5000, extra=budget))
        effort = {"reasoning_effort": "high"}
        yield Case(f"{name} reasoning_effort", "anthropic", Request(name, (USER,), max_tokens=9000, extra=effort))
    yield Case("thinking, no bound", "anthropic", Request("claude-haiku-4-5", (USER,), extra=budget))


# --- what is answered

_CACHED: Final = {
    "openai": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 80},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
    "anthropic": {
        "input_tokens": 10,
        "cache_read_input_tokens": 80,
        "cache_creation_input_tokens": 10,
        "output_tokens": 20,
    },
}


def _answers(vendor: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(name, answer, settings of the request)."""
    tools = {"tools": TOOLS}
    yield "text", "Because of the light. 空 🫖", {}
    yield "empty answer", Completion(""), {}
    yield "call", ToolCall("look", {"at": "sky"}), tools
    yield "calls", Completion("Looking.", (ToolCall("look", {"at": "空"}), ToolCall("find", {}, "call_2"))), tools
    yield "length", Completion("Because", finish_reason="length"), {}
    yield "cached tokens", Completion("So.", usage=_CACHED[vendor]), {}
    yield "no usage", Completion("So.", usage={}), {}
    yield "json", json.dumps({"tea": "green", "cups": 2}), {"response_schema": SCHEMA}
    yield "refusal", Completion("", refusal="I cannot help with that."), {}
    if vendor == "openai":
        yield "content filter", Completion("", finish_reason="content_filter"), {}
        yield "filtered half", Completion("Because", finish_reason="content_filter"), {}
        yield "broken arguments", ToolCall("look", '{"at": '), tools
    else:
        yield "refused half", Completion("Because", finish_reason="refusal"), {}
        yield "stop sequence", Completion("Because", finish_reason="stop_sequence"), {}
        thinking = (Thinking("Light scatters.", "c2lnbmVk"),)
        yield "thinking", Completion("", (ToolCall("look", {"at": "sky"}),), thinking=thinking), tools


_QUOTA: Final = "You exceeded your current quota"


def _failures() -> Iterator[tuple[str, Any]]:
    yield "429", Failure(429, "slow down")
    yield "429, wait", Failure(429, "slow down", retry_after=7)
    yield "429, wait until", Failure(429, "slow down", retry_after="Thu, 01 Jan 2015 00:00:00 GMT")
    yield "429, spent", Failure(429, _QUOTA, code="insufficient_quota")
    for status in (400, 401, 403, 404, 408, 413, 422, 500, 502, 503, 529):
        yield str(status), Failure(status, "no")
    yield "half a JSON", Raw(b'{"id": "x", "choices": [{"mess')
    yield "a page", Raw(b"<html><body>Bad gateway</body></html>", "text/html", 502)
    yield "nothing", Raw(b"")
    yield "no JSON", Raw(b"ok", "text/plain")
    yield "cut off", Truncated("an answer that is cut off in the middle of it")


def _cases() -> Iterator[Case]:
    for vendor, model in MODELS.items():
        for name, messages, settings in _requests():
            yield Case(name, vendor, Request(model, messages, **settings))
        yield Case("user", vendor, Request(model, (USER,)), stream=True)
        for name, answer, settings in _answers(vendor):
            for stream in (False, True):
                yield Case(f"answer: {name}", vendor, Request(model, (USER,), **settings), answer, stream)
        for name, answer in _failures():
            yield Case(f"failure: {name}", vendor, Request(model, (USER,)), answer)
        for name, answer in (
            ("500", Failure(500, "no")),
            ("429, wait", Failure(429, "slow down", retry_after=7)),
            ("cut off", Truncated("an answer that is cut off in the middle of it")),
            ("told in the middle", StreamFailure("an answer that is cut off in the middle of it")),
        ):
            yield Case(f"failure: {name}", vendor, Request(model, (USER,)), answer, stream=True)
    empty: dict[str, Any] = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": [],
    }
    yield Case("failure: no choices", "openai", Request("gpt-4o-mini", (USER,)), Raw(json.dumps(empty).encode()))
    blank = {"id": "x", "type": "message", "role": "assistant", "model": "claude-haiku-4-5"}
    yield Case(
        "failure: no content", "anthropic", Request("claude-haiku-4-5", (USER,)), Raw(json.dumps(blank).encode())
    )
    yield from _reasoning()


CASES: Final = tuple(_cases())
