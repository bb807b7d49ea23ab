"""Finds references in a JSON Schema that lead to nothing, as far as the schema alone says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

from flowengine.core import is_map
from flowengine.errors import did_you_mean

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_LATEST: Final = "https://json-schema.org/draft/2020-12/schema"


class SchemaRoot(NamedTuple):
    """The whole schema."""

    schema: Any
    is_latest: bool
    """Whether it names no other draft by `$schema`."""
    names: Collection[str]
    """Names by which its parts are referred to, beside their places."""
    is_one: bool
    """Whether no part of it has an address of its own, below which references would lead elsewhere."""

    @classmethod
    def of(cls, schema: Any) -> SchemaRoot:
        is_latest = not is_map(schema) or str(schema.get("$schema", _LATEST)).rstrip("#") == _LATEST
        names, is_one, todo = set[str](), True, [schema]
        while todo:
            part = todo.pop()
            if is_map(part):
                ids = [str(part[word]) for word in ("$id", "id") if word in part]
                names.update(each for each in ids if each.startswith("#"))
                names.update(f"#{part[word]}" for word in ("$anchor", "$dynamicAnchor") if word in part)
                is_one &= part is schema or all(each.startswith("#") for each in ids)
                todo += part.values()
            elif isinstance(part, list):
                todo += cast("list[Any]", part)
        return cls(schema, is_latest, names, is_one)

    def find_problem(self, reference: str) -> str:
        """Tells the fault of a reference; empty where it leads to a part of the schema."""
        if not reference.startswith("#"):
            return "a JSON Schema refers to its own parts alone, as in '#/$defs/name'"
        if reference in self.names or not self.is_one:
            return ""
        name, *places = unquote(reference).split("/")
        target, parent = self.schema, name
        for place in places:
            keys = {str(key): key for key in _keys_of(target)}
            key = keys.get(place.replace("~1", "/").replace("~0", "~"))
            if key is None:
                near = did_you_mean(
                    f"{parent}/{place}", [f"{parent}/{each}" for each in keys if each not in REFERENCES]
                )
                return f"the schema has no '{reference}'{near}"
            target, parent = target[key], f"{parent}/{place}"
        return "" if name == "#" else f"the schema has no '{reference}'{did_you_mean(reference, self.names)}"


def _keys_of(part: Any) -> Iterable[Any]:
    if is_map(part):
        return part
    return range(len(cast("list[Any]", part))) if isinstance(part, list) else ()
