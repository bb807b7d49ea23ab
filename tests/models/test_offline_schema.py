"""Whatever the schema and the text, the value is valid: jsonschema is the judge."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.errors import PermanentModelError
from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.offline.model import OfflineModel
from flowengine.models.offline.schema_values import Filler

TEXT = ["Alice is 42 years of age.", "Write to alice@example.org by 2024-05-17.", "緑茶は 80 度で淹れる。"]

bounds = st.integers(-20, 20)
sizes = st.integers(0, 4)


def _ordered(draw: st.DrawFn, strategy: st.SearchStrategy[int], names: tuple[str, str], gap: int = 0) -> dict[str, int]:
    low = draw(strategy)
    chosen = {names[0]: low, names[1]: low + gap + draw(sizes)}
    return {name: value for name, value in chosen.items() if draw(st.booleans())}


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    exclusive = draw(st.booleans())
    names = ("exclusiveMinimum", "exclusiveMaximum") if exclusive else ("minimum", "maximum")
    schema = {"type": draw(st.sampled_from(["number", "integer"])), **_ordered(draw, bounds, names, 8)}
    return {**schema, "multipleOf": draw(st.sampled_from([1, 2, 3]))} if draw(st.booleans()) else schema


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"type": "string", **_ordered(draw, st.integers(0, 60), ("minLength", "maxLength"))}
    return {"type": "string", "format": draw(st.sampled_from(["date", "date-time", "email", "uri", "uuid", "ipv4"]))}


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema = {"type": "array", "items": draw(items), **_ordered(draw, sizes, ("minItems", "maxItems"))}
    if draw(st.booleans()) and schema["items"].get("type") in ("string", "integer", "number"):
        return {
            "type": "array",
            "uniqueItems": True,
            "minItems": draw(sizes),
            "items": {"type": schema["items"]["type"]},
        }
    return schema


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(st.sampled_from(["age", "mail", "firstName", "度", "x_y"]), values, max_size=3))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


plain = st.one_of(
    numbers(),
    strings(),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": ["string", "null"]}),
    st.just({}),
    st.builds(lambda options: {"enum": options}, st.lists(st.one_of(st.text(max_size=4), bounds), min_size=1)),
    st.builds(lambda value: {"const": value}, st.one_of(st.text(max_size=4), bounds, st.none())),
)
schemas = st.recursive(
    plain,
    lambda inner: st.one_of(
        arrays(inner),
        objects(inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
        st.builds(lambda one: {"anyOf": [{"type": "null"}, one]}, inner),
        st.just({"$ref": "#/$defs/a~1b"}),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(
    schema=schemas,
    referred=plain,
    text=st.lists(st.one_of(st.sampled_from(TEXT), st.text(min_size=1, max_size=20)), max_size=3),
)
def test_every_value_is_valid(schema: dict[str, Any], referred: dict[str, Any], text: list[str]) -> None:
    root = {"type": "object", "properties": {"value": schema}, "required": ["value"], "$defs": {"a/b": referred}}
    value = Filler(root, text, "offline value").value()
    jsonschema.validate(value, root, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer", "description": "age in years"}, 42),
        ({"type": "integer", "minimum": 60}, 80),
        ({"type": "string", "format": "email"}, "alice@example.org"),
        ({"type": "string", "format": "date"}, "2024-05-17"),
        ({"type": "string", "description": "緑茶"}, TEXT[2]),
        ({"type": "string", "pattern": r"^\d{4}-"}, "2024-05-17."),
        ({"enum": ["coffee", "緑茶"]}, "緑茶"),
        ({"type": "string", "default": "here", "description": "place"}, "here"),
        ({"type": "number", "default": 0.5, "maximum": 1}, 0.5),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 2}, TEXT[:2]),
        ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, [1]),
        ({"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"const": 1}}}]}, {"a": 1}),
        (True, TEXT[0]),
    ],
)
def test_the_text_is_used_where_it_has_something(schema: Any, expected: Any) -> None:
    value = Filler({}, TEXT, "blank").value(schema)
    assert value == expected


@pytest.mark.parametrize("reference", ["#/$defs/none", "elsewhere.json#/x", "#/type/x"])
def test_a_reference_to_nothing_is_an_error(reference: str) -> None:
    with pytest.raises(PermanentModelError, match="which it does not have"):
        Filler({"type": "object", "properties": {"a": {"$ref": reference}}}, TEXT, "blank").value()


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["name", "children", "next"],
            }
        },
    }
    jsonschema.validate(Filler(tree, TEXT, "blank").value(), tree)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 10**9, "items": {"type": "string"}},
        {"type": "array", "minItems": 10**9},
        {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
        {"type": "array", "minItems": 10**9, "items": {"type": "boolean"}},
        {"type": "array", "minItems": 10**3, "items": {"type": "array", "minItems": 10**3, "items": {"const": 1}}},
        {"type": "array", "minItems": 10**3, "items": {"type": "string", "minLength": 10**6}},
        {"type": "string", "minLength": 10**9},
        {"type": "object", "minProperties": 10**9},
        {"type": "object", "properties": {str(number): {"$ref": "#"} for number in range(99)}},
    ],
)
def test_an_answer_without_a_sensible_end_is_refused_before_it_is_made(schema: dict[str, Any]) -> None:
    with pytest.raises(PermanentModelError, match=r"an answer of more than 1,000,000 characters, which the offline"):
        Filler(schema, TEXT, "blank").value()


ITSELF = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


@pytest.mark.parametrize("schema", [{"anyOf": []}, {"pattern": "("}, {"type": "integer", "minimum": 10**400}, ITSELF])
async def test_a_schema_that_no_value_is_found_for_is_an_error_of_the_model(schema: dict[str, Any]) -> None:
    with pytest.raises(PermanentModelError, match="no value of the schema is found"):
        await OfflineModel().complete(Request("offline", (Message("user", "Five apples."),), response_schema=schema))
