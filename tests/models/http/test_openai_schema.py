"""Which schemas OpenAI's protocols are asked to hold to strictly."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.models.http.openai_chat import OPENAI_CHAT
from flowengine.models.http.openai_schema import make_strict
from flowengine.models.http.vendor_traits import traits_of
from flowengine.models.model import Request

TEXT = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


@pytest.mark.parametrize(
    ("schema", "is_strict"),
    [
        (closed(a=TEXT), True),
        ({**closed(a=TEXT), "additionalProperties": False}, True),
        ({**closed(a=TEXT), "additionalProperties": True}, False),
        ({**closed(a=TEXT), "required": []}, False),
        (closed(a={"type": ["string", "null"]}, b={"anyOf": [TEXT, {"type": "null"}]}), True),
        (closed(a={"enum": ["x", "y"]}), True),
        (closed(a={"enum": ["x", 1]}), False),
        (closed(a={}), False),
        (closed(a={"type": "array", "items": closed(b=TEXT)}), True),
        (closed(a={"type": "array", "items": {"type": "object", "properties": {"b": TEXT}}}), False),
        (closed(a={"type": "array"}), False),
        (closed(a={"type": "object"}), False),
        (closed(a={"oneOf": [TEXT]}), False),
        (closed(a={"type": "string", "minLength": 2}), False),
        (closed(a={"type": "string", "format": "uri"}), False),
        (closed(a={"type": "number", "minimum": 0, "maximum": 1}), True),
        ({**closed(a={"$ref": "#/$defs/node"}), "$defs": {"node": closed(next={"$ref": "#/$defs/node"})}}, True),
        (closed(a={"$ref": "#", "description": "x"}), False),
        ({"type": "array", "items": TEXT}, False),
        ({"type": "object", "properties": {}}, True),
    ],
)
def test_a_schema_is_strict_where_that_admits_the_same(schema: dict[str, Any], is_strict: bool) -> None:
    assert (make_strict(schema) is not None) is is_strict


def test_what_a_strict_vendor_wants_said_is_said() -> None:
    schema = closed(route={"enum": ["a", "b"]}, more={"type": "array", "items": {"type": "object", "properties": {}}})
    assert make_strict(schema) == {
        "type": "object",
        "properties": {
            "route": {"type": "string", "enum": ["a", "b"]},
            "more": {
                "type": "array",
                "items": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            },
        },
        "required": ["route", "more"],
        "additionalProperties": False,
    }


def test_a_schema_that_is_too_deep_or_too_long_is_not_strict() -> None:
    deep = TEXT
    for _ in range(11):
        deep = closed(a=deep)
    assert make_strict(deep) is None
    assert make_strict(closed(**{f"a{number}": TEXT for number in range(5001)})) is None


@pytest.mark.parametrize(
    ("provider", "name", "is_elsewhere", "strict"),
    [
        ("openai", "gpt-4o", False, (True, True)),
        ("openai", "gpt-4o", True, (None, None)),
        ("azure", "prod", True, (True, True)),
        ("groq", "openai/gpt-oss-20b", False, (True, None)),
        ("mistral", "mistral-large-latest", False, (True, None)),
        ("hosted_vllm", "m", True, (None, None)),
    ],
)
def test_only_vendors_that_can_are_asked_to_be_strict(
    provider: str, name: str, is_elsewhere: bool, strict: tuple[bool | None, bool | None]
) -> None:
    traits = traits_of(provider, name, is_elsewhere=is_elsewhere)
    tool = {"type": "function", "function": {"name": "go", "parameters": closed(a=TEXT)}}
    asked = OPENAI_CHAT.body(Request(name, (), response_schema=closed(a=TEXT)), traits, stream=False)
    called = OPENAI_CHAT.body(Request(name, (), tools=(tool,)), traits, stream=False)
    shape = asked["response_format"]["json_schema"]
    assert (shape.get("strict"), called["tools"][0]["function"].get("strict")) == strict
    assert shape["schema"] == (make_strict(closed(a=TEXT)) if strict[0] else closed(a=TEXT))
