"""Values of strangers: the work of checking one against a schema grows with its size, and what is told is bounded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from time import process_time
from typing import Any

import pytest
from jsonschema.validators import Draft7Validator, Draft201909Validator, Draft202012Validator

from flowengine.core.json_schema import describe_problems, find_misfits, make_validator
from flowengine.errors import DefinitionError, InputError
from flowengine.nodes.run_inputs import InputField, checked_inputs

NUMBERS = {"type": "array", "items": {"type": "integer"}}
REFERRING = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
ROWS = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
UNIQUE = {"type": "array", "uniqueItems": True}
TREE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]}
EITHER = {"anyOf": [NUMBERS, {"type": "array", "items": {"type": "boolean"}}]}
SEEN_KEYS = {"patternProperties": {"^k": {}}, "unevaluatedProperties": False}
SEEN_ITEMS = {"type": "array", "contains": {"type": "integer"}, "unevaluatedItems": False}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}


def nested(value: Any, depth: int = 60) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def calls(act: Callable[[], object]) -> int:
    """How many functions of Python are entered meanwhile."""
    count = 0

    def entered(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(entered)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (NUMBERS, lambda size: list(range(size))),
        (NUMBERS, lambda size: ["a"] * size),
        (REFERRING, lambda size: ["a"] * size),
        (ROWS, lambda size: [{"a": 1}] * size),
        (ROWS, lambda size: [{"b": 1}] * size),
        (UNIQUE, lambda size: [{"a": n} for n in range(size)]),
        (UNIQUE, lambda size: [*range(size), "a"]),
        (EITHER, lambda size: ["a"] * size),
        (TREE, lambda size: nested([1] * size)),
        (SEEN_KEYS, lambda size: {f"k{n}": n for n in range(size)}),
        (SEEN_KEYS, lambda size: {f"l{n}": n for n in range(size)}),
        (DRAFT_2019 | SEEN_KEYS, lambda size: {f"k{n}": n for n in range(size)}),
        (SEEN_ITEMS, lambda size: list(range(size))),
        (SEEN_ITEMS, lambda size: [*range(size), "a"]),
        ({"additionalProperties": False}, lambda size: {f"k{n}": n for n in range(size)}),
        ({"additionalProperties": NUMBERS}, lambda size: {f"k{n}": n for n in range(size)}),
    ],
)
def test_the_work_of_a_check_grows_with_the_size_of_the_value(
    schema: dict[str, Any], value: Callable[[int], Any]
) -> None:
    small, large = value(500), value(4_000)
    find_misfits(schema, value(1))  # The library and the validators of the draft are loaded.
    constant = calls(lambda: find_misfits(schema, value(1)))
    once, much = (calls(lambda given=given: find_misfits(schema, given)) - constant for given in (small, large))
    assert much <= 8.8 * once + 5_000
    assert much <= 60 * 4_000


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (NUMBERS, ["a"] * 3_000),
        (EITHER, ["a"] * 3_000),
        (TREE, nested([1] * 3_000)),
        (TREE, nested("a" * 100_000, 3)),
        ({"type": "integer"}, "a" * 100_000),
        ({"type": "integer"}, {"k" * 100_000: 1}),
        ({"type": "string"}, nested(list(range(3_000)))),
        ({"additionalProperties": {"type": "string"}}, {"k" * 100_000: 1, "l" * 100_000: 2}),
        ({"additionalProperties": False}, {f"k{n}": n for n in range(3_000)}),
        ({"properties": {"a": False}}, {"a": "b" * 100_000}),
        (UNIQUE, ["a" * 100_000] * 2),
        (SEEN_KEYS, {"l" * 100_000: 1, "m" * 100_000: 2}),
    ],
)
def test_what_is_told_of_a_value_is_bounded(schema: dict[str, Any], value: Any) -> None:
    found = find_misfits(schema, value)
    assert len(found) <= 20
    assert max(len(each.path) + len(each.message) for each in found) <= 600 if found else schema is TREE
    told = describe_problems(make_validator(schema), value)
    assert len(told) <= 5
    assert all(len(each) <= 610 for each in told)
    assert bool(told) == bool(found)
    if found:
        with pytest.raises(InputError) as caught:
            checked_inputs({"x": InputField(schema=schema)}, {"x": value})
        assert len(str(caught.value)) <= 700


def test_a_long_value_leaves_room_for_what_is_wrong_with_it() -> None:
    [found] = find_misfits({"type": "integer"}, "a" * 1_000)
    assert found.message == f"'{'a' * 99}… is not of type 'integer'"
    [found] = find_misfits({"type": "array", "maxItems": 3}, list(range(1_000)))
    assert found.message.endswith("… is too long")


def test_what_is_missing_is_told_beside_very_many_other_violations() -> None:
    schema = {"properties": {"n": NUMBERS}, "required": ["a"]}
    messages = [each.message for each in find_misfits(schema, {"n": ["x"] * 1_000})]
    assert messages[0] == "'a' is a required property"


def test_a_value_that_is_nested_without_end_is_told_of_as_that() -> None:
    for schema in (UNIQUE, TREE, {"type": "array"}):
        [found] = find_misfits(schema, nested(1, 100_000))
        assert found.message.startswith("it is nested too deeply")
        assert describe_problems(make_validator(schema), nested(1, 100_000)) == ["$: it is nested too deeply"]


MANY = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(24)} | {"d24": {"type": "integer"}}
TERM = {
    "oneOf": [
        {"properties": {"op": {"const": name}, "of": {"items": {"$ref": "#"}}}, "required": ["op", "of"]}
        for name in "abc"
    ]
}


def term(depth: int) -> dict[str, Any]:
    return {"op": "c", "of": [term(depth - 1)] if depth else []}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"pattern": "^(a|a)*$"}, "a" * 40 + "!", "the pattern '^(a|a)*$' takes too long on it"),
        ({"patternProperties": {"^(a|a)*$": {}}}, {"a" * 40 + "!": 1}, "takes too long"),
        (
            {"patternProperties": {"^(a|a)*$": {}}, "additionalProperties": False},
            {"a" * 40 + "!": 1},
            "takes too long",
        ),
        (
            {"unevaluatedProperties": {}} | {"allOf": [{"patternProperties": {"^(a|a)*$": {}}}]},
            {"a" * 40 + "!": 1},
            "takes",
        ),
        ({"type": "array", "items": {"pattern": "^(a|a)*$"}}, ["a" * 22 + "!"] * 1_000, "takes too long"),
        ({"$defs": MANY, "items": {"$ref": "#/$defs/d0"}}, ["x"], "its schema has too many ways to look at it"),
        ({"$defs": MANY, "items": {"$ref": "#/$defs/d0"}, "not": {"$id": "x:y", "const": 1}}, ["x"], "too many ways"),
        ({"$defs": MANY, "items": {"$ref": "#/$defs/d0"}, "unevaluatedItems": False}, ["x"], "too many ways"),
    ],
)
def test_a_check_that_would_take_long_is_given_up(schema: dict[str, Any], value: Any, said: str) -> None:
    began = process_time()
    [found] = find_misfits(schema, value)
    assert said in found.message
    assert said in describe_problems(make_validator(schema), value)[0]
    assert process_time() - began < 2


def test_a_schema_of_too_many_ways_is_told_before_it_is_used() -> None:
    with pytest.raises(DefinitionError, match="its schema has too many ways to look at it"):
        make_validator({"$defs": MANY, "$ref": "#/$defs/d0"})


def test_parts_that_refer_to_each_other_are_looked_at_once_for_each_value() -> None:
    """Three alternatives that each look inside: 3^40 looks, if each were to look anew."""
    assert find_misfits(TERM, term(40)) == []
    wrong = term(40)
    wrong["op"] = "d"
    assert "is not valid under any" in find_misfits(TERM, wrong)[0].message


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True], True),
        ([0, False, None, "", [], {}], True),
        ([1, 1.0], False),
        ([1, "1"], True),
        ([[1, {"a": [1.0]}], [1, {"a": [1]}]], False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        (["a,b", "a", "b"], True),
        ([["a", "b"], ["a,b"]], True),
        ([["a'", "'b"], ["a','b"]], True),
        ([10**5000, 10**5000 + 1], True),
        ([float("inf"), 1e308], True),
        (["\ud800", "\ud800"], False),
    ],
)
def test_items_are_unique_as_json_has_them(items: list[Any], unique: bool) -> None:
    assert (find_misfits(UNIQUE, items) == []) is unique
    assert Draft202012Validator(UNIQUE).is_valid(items) is unique


def test_a_check_with_bounds_agrees_with_the_library() -> None:
    chance = Random(7)
    for _ in range(40):
        schema, value = random_schema(chance, 3), random_value(chance, 3)
        for draft in (Draft7Validator, Draft201909Validator, Draft202012Validator):
            marked = {**schema, "$schema": draft.META_SCHEMA["$schema"], "$defs": {"s": {"type": "string"}}}
            assert (find_misfits(marked, value) == []) is draft(marked).is_valid(value), (marked, value)


def random_schema(chance: Random, depth: int) -> dict[str, Any]:
    def inner() -> dict[str, Any]:
        return random_schema(chance, depth - 1)

    plain: list[dict[str, Any]] = [
        {
            "type": chance.choice(
                ["string", "integer", "number", "boolean", "array", "object", "null", ["null", "string"]]
            )
        },
        {"$ref": "#/$defs/s"},
        {"uniqueItems": True},
        {"required": ["a"]},
        {"minItems": 2},
        {"maximum": 1},
        {"enum": [1, "a", None, [1]]},
        {},
    ]
    if depth == 0:
        return chance.choice(plain)
    return chance.choice(plain) | chance.choice(
        [
            {"items": inner()},
            {"properties": {"a": inner(), "b": inner()}},
            {"additionalProperties": chance.choice([False, inner()])},
            {"anyOf": [inner(), inner()]},
            {"oneOf": [inner(), inner()]},
            {"allOf": [inner(), inner()]},
            {"not": inner()},
            {"if": inner(), "then": inner(), "else": inner()},
            {"contains": inner(), "unevaluatedItems": chance.choice([False, inner()])},
            {"properties": {"a": inner()}, "unevaluatedProperties": chance.choice([False, inner()])},
            {"anyOf": [{"properties": {"a": inner()}}, {"required": ["b"]}], "unevaluatedProperties": False},
            {"propertyNames": inner()},
        ]
    )


def random_value(chance: Random, depth: int) -> Any:
    if depth and chance.random() < 0.7:
        if chance.random() < 0.5:
            return [random_value(chance, depth - 1) for _ in range(chance.randrange(4))]
        return {name: random_value(chance, depth - 1) for name in "abc" if chance.random() < 0.6}
    return chance.choice([0, 1, True, False, None, "a", "", 1.0, 2.5])
