"""Checks that what a flow file gives as a JSON Schema is one.

Nothing is validated against a schema here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from flowengine.core import is_json_type, is_map
from flowengine.errors import did_you_mean
from flowengine.flowfile.analysis.schema_references import REFERENCES, SchemaRoot

_TYPES: Final = ("string", "number", "integer", "boolean", "array", "object", "null")

_Path = tuple[str | int, ...]

_MAPS_OF_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS_OF_SCHEMAS: Final = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_LONGEST_PATTERN: Final = 10_000


def check_json_schema(schema: Any) -> Iterator[tuple[_Path, str]]:
    """Everything in a schema that is no JSON Schema, with its path.

    A schema that names another draft by `$schema` may mean other things by some words, which are left alone.

    >>> list(check_json_schema({"type": "object", "properties": {"n": {"type": "intger"}}}))
    [(('properties', 'n', 'type'), "unknown JSON type 'intger'; did you mean 'integer'?")]
    >>> list(check_json_schema({"minimum": "a"}))
    [(('minimum',), "'minimum' is a number")]
    >>> list(check_json_schema({"$ref": "#/$defs/oder", "$defs": {"order": True}}))
    [(('$ref',), "the schema has no '#/$defs/oder'; did you mean '#/$defs/order'?")]
    """
    return _check_schema(schema, (), SchemaRoot.of(schema))


def _check_schema(schema: Any, path: _Path, root: SchemaRoot) -> Iterator[tuple[_Path, str]]:
    if isinstance(schema, bool):
        return
    if not is_map(schema):
        yield path, "a JSON Schema is a map"
        return
    if "type" in schema:
        yield from _check_type(schema["type"], path)
    for word in REFERENCES:
        problem = root.find_problem(str(schema[word])) if word in schema else ""
        if problem:
            yield (*path, word), problem
    for word, inner in schema.items():
        if word in _MAPS_OF_SCHEMAS:
            yield from _check_each(word, inner, dict, path, root)
        elif word in _LISTS_OF_SCHEMAS or (word == "items" and isinstance(inner, list) and not root.is_latest):
            yield from _check_each(word, inner, list, path, root)
        elif word in _SCHEMAS:
            yield from _check_schema(inner, (*path, word), root)
        elif word in _VALUES and (root.is_latest or _VALUES[word] is _LIST) and not _VALUES[word].fits(inner):
            yield (*path, word), f"'{word}' is {_VALUES[word].name}"


def _check_each(word: str, inner: Any, shape: type, path: _Path, root: SchemaRoot) -> Iterator[tuple[_Path, str]]:
    if not isinstance(inner, shape):
        yield (*path, word), f"'{word}' is a {'map' if shape is dict else 'list'} of JSON Schemas"
        return
    if root.is_latest and shape is list and not inner:
        yield (*path, word), f"'{word}' is empty"
    pairs: Any = inner.items() if is_map(inner) else enumerate(inner)
    for name, each in pairs:
        if word == "patternProperties" and root.is_latest and not _is_pattern(name):
            yield (*path, word, name), "a name of 'patternProperties' is a regular expression"
        yield from _check_schema(each, (*path, word, name), root)


class _Values(NamedTuple):
    name: str
    fits: Callable[[Any], bool]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_number(value: Any) -> bool:
    return is_json_type(value, "number")


def _is_factor(value: Any) -> bool:
    return _is_number(value) and not value <= 0


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_names(value: Any) -> bool:
    names = cast("list[Any]", value) if isinstance(value, list) else [None]
    return len({each for each in names if isinstance(each, str)}) == len(names)


def _is_pattern(value: Any) -> bool:
    if isinstance(value, str) and len(value) <= _LONGEST_PATTERN:
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError):
            return False
    return isinstance(value, str)


_LIST: Final = _Values("a list", _is_list)
_COUNT: Final = _Values("a whole number from 0 on", _is_count)
_VALUES: Final[Mapping[str, _Values]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _Values("a number", _is_number)),
    "multipleOf": _Values("a number above 0", _is_factor),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _Values("true or false", _is_truth)),
    **dict.fromkeys(("title", "description", "format"), _Values("a text", _is_text)),
    **dict.fromkeys(("enum", "examples"), _LIST),
    "required": _Values("a list of names, each once", _are_names),
    "pattern": _Values("a regular expression", _is_pattern),
}
"""Word of a schema → what its value is."""


def _check_type(kinds: Any, path: _Path) -> Iterator[tuple[_Path, str]]:
    if kinds == []:
        yield (*path, "type"), "'type' is empty"
    for name in cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]:
        if name is None:
            yield (*path, "type"), "a JSON type is a text; the type 'null' stands in quotes"
        elif name not in _TYPES:
            hint = did_you_mean(name, _TYPES) if isinstance(name, str) else ""
            yield (*path, "type"), f"unknown JSON type '{name}'{hint}"
