"""Fits JSON Schemas to what Anthropic's API takes: as an answer's format, or as the input of a tool.

The format is compiled into a grammar, which knows no bounds and no free keys: bounds become words for the model, and
a schema that needs free keys, or itself, is not for it.
Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

_BOUNDS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "prefixItems"),
    *("minProperties", "maxProperties", "propertyNames", "dependentRequired", "dependentSchemas"),
    *("if", "then", "else", "not"),
)
"""Keywords that the API refuses, in the order in which they are told."""

_FREE: Final = ("patternProperties", "unevaluatedProperties")
_SCHEMAS: Final = frozenset({"properties", "$defs", "definitions"})
"""Keywords that hold schemas by name."""
_LISTS: Final = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
"""Keywords that hold schemas in a list, and what the API has for them."""


def takes_as_format(schema: Mapping[str, Any]) -> bool:
    """Tells whether a grammar can be made of the schema.

    >>> takes_as_format({"type": "object", "properties": {"a": {"type": "integer"}}})
    True
    >>> takes_as_format({"type": "object"}), takes_as_format({"type": "array", "items": {"type": "string"}})
    (False, False)
    """
    return schema.get("type") == "object" and _is_closed(schema, schema, ())


def _is_closed(schema: Any, root: Mapping[str, Any], open_references: tuple[str, ...]) -> bool:
    if not isinstance(schema, Mapping):
        return schema is not True  # `True` stands for any value.
    shape = cast("Mapping[str, Any]", schema)
    reference = shape.get("$ref")
    if isinstance(reference, str):
        target = _find(reference, root)
        is_known = target is not None and reference not in open_references
        return is_known and _is_closed(target, root, (*open_references, reference))
    is_free = shape.get("additionalProperties", False) is not False or any(each in shape for each in _FREE)
    if is_free or (shape.get("type") == "object" and not shape.get("properties")) or not shape:
        return False
    inner = [*cast("Mapping[str, Any]", shape.get("properties") or {}).values()]
    for keyword in _LISTS:
        inner += shape.get(keyword) or ()
    if "items" in shape or shape.get("type") == "array":
        inner.append(shape.get("items", {}))
    return all(_is_closed(each, root, open_references) for each in inner)


def _find(reference: str, root: Mapping[str, Any]) -> Any:
    target: Any = root
    for part in reference.removeprefix("#/").split("/"):
        target = cast("Mapping[str, Any]", target).get(part) if isinstance(target, Mapping) else None
    return target


def answer_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as a format: bounds as words, objects closed.

    >>> answer_format({"type": "integer", "minimum": 1})
    {'type': 'integer', 'description': 'minimum: 1'}
    """
    fitted: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _BOUNDS:
            continue
        if keyword in _SCHEMAS and isinstance(value, Mapping):
            subschemas = cast("Mapping[str, Any]", value)
            fitted[keyword] = {name: _fit(each) for name, each in subschemas.items()}
        elif keyword in _LISTS and isinstance(value, list):
            target = _LISTS[keyword]
            fitted[target] = [*fitted.get(target, ()), *map(_fit, cast("list[Any]", value))]
        else:
            fitted[keyword] = _fit(value) if keyword == "items" else value
    bounds = [f"{each}: {json.dumps(schema[each])}" for each in _BOUNDS if schema.get(each) not in (None, False)]
    if bounds:
        description = str(schema.get("description") or "")
        fitted["description"] = f"{description}{' ' if description else ''}{', '.join(bounds)}"
    if fitted.get("type") == "object":
        fitted["additionalProperties"] = False
    return fitted


def _fit(schema: Any) -> Any:
    return answer_format(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else schema


# --- Tools whose arguments are held to their schemas
#
# The grammars of all strict tools of a request are one, for which there are bounds: 20 tools, 24 parameters that may be
# left out, 16 of several types. Beside these the API refuses what is "too large", without saying from where on; lists
# of objects in several tools have been. So a tool is strict whose parameters are plain values and lists of these, and
# only as many as the bounds allow, in their order.
# Source, as of November 2026: https://platform.claude.com/docs/en/agents-and-tools/tool-use/strict-tool-use

_MOST_STRICT: Final = 20
_MOST_OPTIONAL: Final = 24
_MOST_OF_TYPES: Final = 16


def make_strict_tools(tools: Sequence[dict[str, Any]]) -> None:
    """Have the tools of a request strict whose schemas are fit for it, as far as the API's bounds allow.

    >>> tools = [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
    >>> make_strict_tools(tools)
    >>> tools[0]["strict"], tools[0]["input_schema"]["additionalProperties"]
    (True, False)
    """
    budget = _MOST_STRICT, _MOST_OPTIONAL, _MOST_OF_TYPES
    for tool in tools:
        schema: Mapping[str, Any] = tool["input_schema"]
        if not _is_flat(schema):
            continue
        properties: Mapping[str, Mapping[str, Any]] = schema["properties"]
        optional = len(properties.keys() - set(schema.get("required") or ()))
        of_types = sum("anyOf" in each or isinstance(each.get("type"), list) for each in properties.values())
        rest = budget[0] - 1, budget[1] - optional, budget[2] - of_types
        if min(rest) >= 0:
            budget = rest
            tool |= {"strict": True, "input_schema": answer_format(schema)}


_PLAIN: Final = frozenset({"string", "integer", "number", "boolean", "null"})
_KNOWN: Final = frozenset({"type", "enum", "const", "title", "description", "default", "items", "anyOf", *_BOUNDS})


def _is_flat(schema: Mapping[str, Any]) -> bool:
    """Tells whether all parameters are plain values or lists of these."""
    if not takes_as_format(schema) or not schema.keys() <= {*_KNOWN, "properties", "required", "additionalProperties"}:
        return False
    return all(_is_plain(each, may_be_list=True) for each in schema["properties"].values())


def _is_plain(schema: Any, *, may_be_list: bool = False) -> bool:
    if not isinstance(schema, Mapping) or not schema.keys() <= _KNOWN:
        return False
    shape = cast("Mapping[str, Any]", schema)
    if "anyOf" in shape:
        return all(_is_plain(each, may_be_list=may_be_list) for each in shape["anyOf"])
    if shape.get("type") == "array":
        return may_be_list and _is_plain(shape.get("items"))
    kinds: Any = shape.get("type")
    return bool(kinds) and set(cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]) <= _PLAIN


# --- Inputs of tools


def as_tool_input(schema: Mapping[str, Any], wrapped_in: str) -> dict[str, Any]:
    """The schema as that of a tool's input, which is an object: any other value is put into one.

    >>> as_tool_input({"type": "array"}, "value")
    {'type': 'object', 'properties': {'value': {'type': 'array'}}, 'required': ['value']}
    """
    if is_object(schema):
        return {"type": "object", **schema}
    definitions = {each: schema[each] for each in ("$defs", "definitions") if each in schema}
    rest = {name: value for name, value in schema.items() if name not in definitions}
    return {"type": "object", "properties": {wrapped_in: rest}, "required": [wrapped_in], **definitions}


def is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)
