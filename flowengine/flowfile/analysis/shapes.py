"""Reads what a JSON Schema says about the fields of a value, and checks that it is a JSON Schema at all.

It reads the keywords that describe shape (`type`, `properties`, `items`, `required`, `enum` and their
kin) and leaves values alone: nothing is validated against a schema here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeGuard, cast

from flowengine.errors import did_you_mean

__all__ = ["TYPES", "check_json_schema", "fields_of", "fits", "is_map", "item_of"]

TYPES: Final = ("string", "number", "integer", "boolean", "array", "object")

_Path = tuple[str | int, ...]

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_MAPS_OF_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTS_OF_SCHEMAS: Final = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "not", "contains", "propertyNames")


def is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tells whether a value of a file is a map; its keys are strings already."""
    return isinstance(value, dict)


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


def fields_of(schema: Any) -> Collection[str] | None:
    """The fields that a value of this schema has; None where it may have others or is not described.

    >>> sorted(fields_of({"type": "object", "properties": {"a": {}, "b": {}}}))
    ['a', 'b']
    """
    if not is_map(schema):
        return None
    open_ended = schema.get("additionalProperties", False) not in (False, None)
    combined = any(word in schema for word in (*_LISTS_OF_SCHEMAS, "$ref", "patternProperties", "if"))
    if schema.get("type", "object") != "object" or "properties" not in schema or open_ended or combined:
        return None
    return cast("dict[str, Any]", schema["properties"]).keys()


def item_of(schema: Any, field: str) -> Any:
    """The schema of one field of a value, or None where nothing is known of it."""
    properties = schema.get("properties") if is_map(schema) else None
    return properties.get(field) if is_map(properties) else None


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
