"""Decides which values cannot carry free text: numbers, booleans, and texts of a closed choice.

It reads JSON Schemas, and the return annotations of functions. What a schema leaves open is open: an object with other
fields than those named, a text without `enum`, `const` or a narrow `pattern`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from flowengine.core import is_map
from flowengine.flowfile.analysis import item_of
from flowengine.flowfile.schema import BOOLEAN, NUMBER, Shape

CLOSED: Final[Shape] = {"const": None}
"""The shape of a value that cannot carry free text."""

_LONGEST: Final = 64
"""Characters that a pattern may allow: a number of an order, a code of a country; no sentence."""
_DEEPEST: Final = 64

_RESULTS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "routing": {"next_route": CLOSED, "confidence": NUMBER},
    "evaluation": {"score": NUMBER, "passed": BOOLEAN},
    "agent": {"success": BOOLEAN, "evaluation_score": NUMBER, "attempts": NUMBER},
}


def fields_known_of(kind: str) -> Mapping[str, Shape]:
    """The fields of a result of a kind (`agent`: of its `LLMResult`) that the engine itself closes."""
    return _RESULTS.get(kind, {})


def is_closed(schema: Any, depth: int = 0) -> bool:
    """Tells whether every value of a schema is a number, a boolean, null, or one of a closed choice, or made of such.

    >>> is_closed({"type": "integer"}), is_closed({"type": "string"}), is_closed({"enum": ["yes", "no"]})
    (True, False, True)
    >>> is_closed({"type": "array", "items": {"type": "boolean"}}), is_closed({"type": "array"})
    (True, False)
    """
    if not is_map(schema) or depth > _DEEPEST:
        return schema is False
    if "const" in schema or isinstance(schema.get("enum"), list):
        return True
    if any(_is_alternative(schema, word, depth) for word in ("anyOf", "oneOf")):
        return True
    if any(is_closed(each, depth + 1) for each in _list_of(schema, "allOf")):
        return True
    kinds = schema.get("type")
    names = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    return bool(names) and all(_is_kind_closed(schema, each, depth) for each in names)


def _is_alternative(schema: Mapping[str, Any], word: str, depth: int) -> bool:
    options = _list_of(schema, word)
    return bool(options) and all(is_closed(each, depth + 1) for each in options)


def _list_of(schema: Mapping[str, Any], word: str) -> list[Any]:
    value = schema.get(word)
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_kind_closed(schema: Mapping[str, Any], kind: Any, depth: int) -> bool:
    if kind in ("number", "integer", "boolean", "null"):
        return True
    if kind == "string":
        return is_narrow(schema.get("pattern"))
    if kind == "array":
        firsts = _list_of(schema, "prefixItems")
        return is_closed(schema.get("items"), depth + 1) and all(is_closed(each, depth + 1) for each in firsts)
    if kind != "object":
        return False
    inner = schema.get("properties")
    if not is_map(inner) or schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return False
    return all(is_closed(each, depth + 1) for each in inner.values())


def is_narrow(pattern: Any) -> bool:
    r"""Tells whether a pattern leaves room for a code alone: anchored, short, and of named characters without blanks.

    >>> is_narrow("^[A-Z]-[0-9]{1,4}$"), is_narrow("^.{1,9}$"), is_narrow("[a-z]{3}"), is_narrow(r"^\S{5}$")
    (True, False, False, False)
    """
    if not isinstance(pattern, str) or not _NARROW.fullmatch(pattern):
        return False
    return sum(int(times or 1) for times in _TIMES.findall(pattern[1:-1])) <= _LONGEST


_PIECE: Final = r"(?:[A-Za-z0-9_:/#,-]|\\[d.+/-]|\[[A-Za-z0-9_.:/+#-]+\])"
"""A character, a digit, or a set of characters."""
_NARROW: Final = re.compile(rf"\^(?:{_PIECE}(?:\?|\{{\d{{1,4}}(?:,\d{{1,4}})?\}})?)+\$")
_TIMES: Final = re.compile(rf"{_PIECE}(?:\{{(?:\d+,)?(\d+)\}})?")
"""A piece, and how often it may stand."""


def shape_within(schema: Any, fields: tuple[str, ...]) -> Any:
    """Returns the shape of a field inside a value; None if unknown."""
    for field in fields:
        schema = item_of(schema, field)
    return schema


_SIMPLE: Final[Mapping[str, Shape]] = {"int": NUMBER, "float": NUMBER, "bool": BOOLEAN, "None": CLOSED}


def shape_of_annotation(annotation: ast.expr | None) -> Shape | None:
    """Returns the shape given by a function's return annotation, if it is closed; else None."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return CLOSED
    if isinstance(annotation, ast.Name):
        return _SIMPLE.get(annotation.id)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [shape_of_annotation(each) for each in (annotation.left, annotation.right)]
        return CLOSED if all(each is not None for each in sides) else None
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        if annotation.value.id == "Literal":
            return CLOSED
        if annotation.value.id == "list" and shape_of_annotation(annotation.slice) is not None:
            return {"type": "array", "items": CLOSED}
    return None
