"""Checks that what a flow file gives as a JSON Schema is one, and whether a value is of a JSON type.

Nothing is validated against a schema here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from flowengine.core.values import is_map
from flowengine.errors import did_you_mean

__all__ = ["TYPES", "check_json_schema", "fits"]

TYPES: Final = ("string", "number", "integer", "boolean", "array", "object")

_Path = tuple[str | int, ...]

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_MAPS_OF_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTS_OF_SCHEMAS: Final = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "not", "contains", "propertyNames")


def check_json_schema(schema: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Everything in a schema that is no JSON Schema, with its path.

    >>> list(check_json_schema({"type": "object", "properties": {"n": {"type": "intger"}}}))
    [(('properties', 'n', 'type'), "unknown JSON type 'intger'; did you mean 'integer'?")]
    """
    if isinstance(schema, bool):
        return
    if not is_map(schema):
        yield path, "a JSON Schema is a map"
        return
    yield from _check_type(schema.get("type"), path)
    for word in _REFERENCES:
        if word in schema and not str(schema[word]).startswith("#"):
            yield (*path, word), "a JSON Schema refers to its own parts alone, as in '#/$defs/name'"
    for word in _MAPS_OF_SCHEMAS:
        yield from _check_each(schema, word, dict, path)
    for word in _LISTS_OF_SCHEMAS:
        yield from _check_each(schema, word, list, path)
    for word in _SCHEMAS:
        if word in schema:
            yield from check_json_schema(schema[word], (*path, word))
    for word in ("required", "enum"):
        if word in schema and not isinstance(schema[word], list):
            yield (*path, word), f"'{word}' is a list"


def _check_each(keys: Mapping[str, Any], word: str, shape: type, path: _Path) -> Iterator[tuple[_Path, str]]:
    if word not in keys:
        return
    inner = keys[word]
    if not isinstance(inner, shape):
        yield (*path, word), f"'{word}' is a {'map' if shape is dict else 'list'} of JSON Schemas"
        return
    pairs: Any = inner.items() if is_map(inner) else enumerate(inner)
    for name, each in pairs:
        yield from check_json_schema(each, (*path, word, name))


def _check_type(given: Any, path: _Path) -> Iterator[tuple[_Path, str]]:
    known = (*TYPES, "null")
    for name in cast("list[Any]", given) if isinstance(given, list) else [given]:
        if name is not None and name not in known:
            hint = did_you_mean(name, known) if isinstance(name, str) else ""
            yield (*path, "type"), f"unknown JSON type '{name}'{hint}"


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def fits(value: Any, kind: str) -> bool:
    """Tells whether a value is of a JSON type. A boolean is no number.

    >>> fits(1, "number"), fits(True, "integer"), fits("1", "integer")
    (True, False, False)
    """
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
