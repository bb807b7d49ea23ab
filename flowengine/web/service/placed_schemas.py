"""Puts JSON Schemas inside another one: what refers to a part of its own schema leads to the same part there.

A schema refers to its parts by their place below the root of the document that it stands in (`#/$defs/name`), so it
changes with the document. Parts that have an address of their own (`$id`) stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

Schema = Mapping[str, Any]

_DEFINITIONS: Final = "#/$defs/"
_REFERENCES: Final = ("$ref", "$dynamicRef")
_MAPS_OF_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES: Final = ("const", "enum", "default", "example", "examples")


def join_properties(properties: Mapping[str, Schema]) -> Schema:
    """Returns `properties` of one schema of them all, with `$defs` where they have definitions.

    >>> address = {"$ref": "#/$defs/street", "$defs": {"street": {"type": "string"}}}
    >>> join_properties({"home": address})
    {'properties': {'home': {'$ref': '#/$defs/street'}}, '$defs': {'street': {'type': 'string'}}}
    """
    joined: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for name, schema in properties.items():
        place, own = f"#/properties/{escape_pointer(name)}", cast("Schema", schema.get("$defs", {}))
        is_shared = all(merged.get(key, each) == each for key, each in own.items())  # Else they stay where they are.

        def change(reference: str, place: str = place, is_shared: bool = is_shared) -> str:
            return reference if is_shared and reference.startswith(_DEFINITIONS) else place + reference[1:]

        moved = move_references(schema, change)
        if is_shared:
            merged |= own
            definitions |= moved.pop("$defs", {})
        joined[name] = moved
    return {"properties": joined, **({"$defs": definitions} if definitions else {})}


def move_references(schema: Any, change: Callable[[str], str]) -> Any:
    """Returns a schema whose references to its own parts are changed.

    >>> move_references({"items": {"$ref": "#/$defs/a"}, "const": {"$ref": "#"}}, lambda ref: f"#/x{ref[1:]}")
    {'items': {'$ref': '#/x/$defs/a'}, 'const': {'$ref': '#'}}
    """
    if isinstance(schema, list):
        return [move_references(each, change) for each in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping) or "$id" in schema:
        return cast("Any", schema)
    moved: dict[str, Any] = {}
    for word, each in cast("Schema", schema).items():
        if word in _REFERENCES and isinstance(each, str) and (each == "#" or each.startswith("#/")):
            moved[word] = change(each)
        elif word in _MAPS_OF_SCHEMAS and isinstance(each, Mapping):
            moved[word] = {name: move_references(inner, change) for name, inner in cast("Schema", each).items()}
        else:
            moved[word] = each if word in _VALUES else move_references(each, change)
    return moved


def escape_pointer(name: str) -> str:
    """A name as a part of a reference (RFC 6901).

    >>> escape_pointer("a/b~c")
    'a~1b~0c'
    """
    return name.replace("~", "~0").replace("/", "~1")
