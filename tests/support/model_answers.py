"""What a model server may be told to answer, and what it answers without a script. Of no vendor's wire format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

__all__ = [
    "Answer",
    "Completion",
    "Failure",
    "Hang",
    "Raw",
    "Responder",
    "StreamFailure",
    "Thinking",
    "ToolCall",
    "Truncated",
    "default_responder",
    "fill",
    "forced_tool",
    "text_of",
    "to_completion",
]


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model wants called; `arguments` is a value, or raw (perhaps broken) text."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str = "call_1"

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Thinking:
    """What a model thought before its answer: signed text, or what only the vendor can read."""

    text: str = ""
    signature: str = "c2lnbmF0dXJl"
    redacted: str | None = None
    """Set: a block that holds this and no text."""


@dataclass(frozen=True)
class Completion:
    """A whole answer, where a text alone does not say enough."""

    content: str | None = ""
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    finish_reason: str | None = None
    """None: `tool_calls` where there are some, else `stop`. Sent in the words of the vendor."""
    usage: Mapping[str, Any] | None = None
    """None: counted roughly. An empty one is sent as no usage at all."""
    latency: float | None = None
    """Seconds before this answer; None takes the server's."""
    piece_delay: float = 0.0
    """Seconds before each piece of a streamed answer."""
    thinking: tuple[Thinking, ...] = ()
    reasoning: str | None = None
    """Of a vendor of OpenAI's protocol that shows it: `reasoning_content`."""


@dataclass(frozen=True)
class Failure:
    """An HTTP error."""

    status: int
    message: str = "the server was told to fail"
    retry_after: float | str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class StreamFailure:
    """A stream that begins well and in the middle of which an error is told."""

    content: str = "an answer that ends in an error"
    kind: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True)
class Hang:
    """No answer, ever; the connection stays open until the client leaves."""


@dataclass(frozen=True)
class Truncated:
    """An answer whose connection breaks off in the middle of its body."""

    content: str = "an answer that is cut off in the middle"


@dataclass(frozen=True)
class Raw:
    """A whole response with a body that may be no answer at all: a proxy's page, half a JSON, nothing."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answer: TypeAlias = str | Mapping[str, Any] | ToolCall | Completion | Failure | Hang | Raw | StreamFailure | Truncated
"""A text; a value sent as JSON text; or one of the classes above."""

Responder: TypeAlias = Callable[[dict[str, Any]], Answer]
"""Request body → answer. Runs in the server's thread."""


def to_completion(answer: Any) -> Completion:
    if isinstance(answer, Completion):
        return answer
    if isinstance(answer, ToolCall):
        return Completion(None, (answer,))
    return Completion(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def text_of(content: Any) -> str:
    """A message's text, which may stand in blocks."""
    if isinstance(content, str):
        return content
    blocks = cast("list[dict[str, Any]]", content or [])
    return "\n".join(str(each["text"]) for each in blocks if "text" in each)


def forced_tool(body: Mapping[str, Any]) -> str | None:
    """The tool that the model has to call, in either protocol."""
    choice = body.get("tool_choice")
    if not isinstance(choice, Mapping):
        return None
    shape = cast("Mapping[str, Any]", choice)
    name = shape.get("name") or shape.get("function", {}).get("name")
    return None if name is None else str(name)


# --- without a script


def default_responder(body: dict[str, Any]) -> Answer:
    """Something valid for a JSON Schema that is asked for, else a short text that repeats the question."""
    schema = _schema_of(body)
    if schema is not None:
        return Completion(json.dumps(fill(schema, schema), ensure_ascii=False))
    chat = [each for each in body.get("messages", body.get("input", ())) if isinstance(each, Mapping)]
    questions = [text_of(each.get("content")) for each in chat if each.get("role") == "user"]
    return f"Answer to: {' '.join((questions or [''])[-1].split())[:80]}"


def _schema_of(body: Mapping[str, Any]) -> Any:
    asked: Mapping[str, Any] = body.get("response_format") or {}
    if "json_schema" in asked:
        return asked["json_schema"].get("schema")
    config: Mapping[str, Any] = body.get("output_config") or body.get("text") or {}
    format: Mapping[str, Any] = config.get("format") or {}
    if "schema" in format:
        return format["schema"]
    tool = forced_tool(body)
    for each in body.get("tools", ()) if tool is not None else ():
        function = each.get("function", each)
        if function.get("name") == tool:
            return function.get("input_schema", function.get("parameters"))
    return None


def fill(schema: Any, root: Any) -> Any:
    """A plausible value of a JSON Schema: first of an enum, every property, numbers near 0.9."""
    if not isinstance(schema, Mapping):
        return "text"
    shape = cast("Mapping[str, Any]", schema)
    if "$ref" in shape:
        target = root
        for part in str(shape["$ref"]).removeprefix("#/").split("/"):
            target = target[part]
        return fill(target, root)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in shape:
            return fill(shape[keyword][0], root)
    if "const" in shape:
        return shape["const"]
    if "enum" in shape:
        return shape["enum"][0]
    kind: Any = shape.get("type", "object" if "properties" in shape else "string")
    return _fill_type(kind[0] if isinstance(kind, list) else kind, shape, root)


def _fill_type(kind: Any, schema: Mapping[str, Any], root: Any) -> Any:
    if kind == "object":
        return {name: fill(each, root) for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [fill(schema.get("items"), root)] * max(1, schema.get("minItems", 1))
    if kind in ("number", "integer"):
        value = min(max(0.9, schema.get("minimum", 0.9)), schema.get("maximum", 0.9))
        return value if kind == "number" else round(value)
    if kind == "string":
        return "text".ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]
    return {"boolean": True, "null": None}[kind]
