"""Writes schemas of answers and functions as OpenAI's protocols have them: strict where the vendor can hold to them.

A vendor that is strict compiles a schema into a grammar, and every answer fits. It takes a part of JSON Schema: objects
are closed and have all that they name. A schema that is not in that part, or would admit something else there, goes out
as it is. An object that does not say whether it is open is closed, as it is for other vendors.
Source, as of November 2026: https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.model import Request

_KEYWORDS: Final = frozenset(
    {
        *("type", "enum", "const", "title", "description", "properties", "required", "additionalProperties", "items"),
        *("anyOf", "$ref", "$defs", "pattern", "format", "minItems", "maxItems", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
)
_DEEPEST: Final = 10
"""Levels of objects."""
_MOST_NAMES: Final = 5000
"""Properties, and values of `enum`s, in all together."""


def describe_schema(request: Request, traits: VendorTraits) -> dict[str, Any]:
    """Name and schema of the answer that a request asks for."""
    strict = _strict_of(request.response_schema or {}) if traits.strict_schemas else None
    if strict is None:
        return {"name": request.response_name, "schema": request.response_schema}
    return {"name": request.response_name, "schema": strict, "strict": True}


def describe_function(tool: Mapping[str, Any], traits: VendorTraits) -> dict[str, Any]:
    """The function of a tool, strict where it can be."""
    function = dict(cast("Mapping[str, Any]", tool.get("function", tool)))
    parameters = function.get("parameters")
    if not traits.strict_tools or not isinstance(parameters, Mapping):
        return function
    strict = _strict_of(cast("Mapping[str, Any]", parameters))
    return function if strict is None else {**function, "parameters": strict, "strict": True}


_MOST_KNOWN: Final = 1000
_known: Final[dict[int, tuple[Mapping[str, Any], dict[str, Any] | None]]] = {}
"""Id of a schema → the schema, kept so that no other has its id, and how it is sent: each round asks with the same."""


def _strict_of(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    pair = _known.get(id(schema))
    if pair is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        pair = _known[id(schema)] = schema, make_strict(schema)
    return pair[1]


def make_strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema as a strict vendor takes it; None where it takes none that admits the same.

    >>> make_strict({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a'], 'additionalProperties': False}
    >>> make_strict({"type": "object", "properties": {"a": {"type": "integer"}}}) is None
    True
    """
    if schema.get("type") != "object" or "anyOf" in schema:
        return None
    budget = [_MOST_NAMES]
    return _close(schema) if _is_strict(schema, 1, budget) and budget[0] >= 0 else None


def _is_strict(schema: Any, depth: int, budget: list[int]) -> bool:
    """`budget`: how many more names there may be."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return False
    shape = cast("Mapping[str, Any]", schema)
    if not shape.keys() <= _KEYWORDS or ("$ref" in shape and len(shape) > 1):
        return False
    if not shape.keys() & {"type", "anyOf", "$ref"} and _type_of_values(shape) is None:
        return False
    if "format" in shape and shape["format"] not in _FORMATS:
        return False
    kinds: Any = shape.get("type")
    if kinds == "array" and "items" not in shape:
        return False
    is_object = kinds == "object" or (isinstance(kinds, list) and "object" in kinds) or "properties" in shape
    properties = cast("Mapping[str, Any]", shape.get("properties") or {})
    if is_object and (shape.get("additionalProperties", False) is not False or "properties" not in shape):
        return False
    if is_object and set(properties) != set(cast("list[str]", shape.get("required") or ())):
        return False
    budget[0] -= len(properties) + len(cast("list[Any]", shape.get("enum") or ()))
    return all(_is_strict(each, depth + is_object, budget) for each in _inner(shape))


_TYPES: Final[Mapping[type[object], str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def _type_of_values(shape: Mapping[str, Any]) -> str | None:
    """The type of all values of an `enum` or a `const`, which a strict vendor wants to be said."""
    values: list[Any] = [shape["const"]] if "const" in shape else list(shape.get("enum") or ())
    types = {_TYPES.get(cast("type[object]", type(each))) for each in values}
    return types.pop() if len(types) == 1 else None


def _inner(shape: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in ("properties", "$defs"):
        yield from cast("Mapping[str, Any]", shape.get(keyword) or {}).values()
    yield from cast("list[Any]", shape.get("anyOf") or ())
    if "items" in shape:
        yield shape["items"]


def _close(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    shape = dict(cast("Mapping[str, Any]", schema))
    for keyword in ("properties", "$defs"):
        if keyword in shape:
            shape[keyword] = {name: _close(each) for name, each in shape[keyword].items()}
    if "anyOf" in shape:
        shape["anyOf"] = [_close(each) for each in shape["anyOf"]]
    if "items" in shape:
        shape["items"] = _close(shape["items"])
    if "properties" in shape:
        shape = {**shape, "required": list(shape.get("required") or ()), "additionalProperties": False}
    if not shape.keys() & {"type", "anyOf", "$ref"}:
        shape = {"type": _type_of_values(shape), **shape}
    return shape
