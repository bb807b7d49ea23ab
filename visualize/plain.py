"""Formats values for people: JSON's types, text, and the beginnings of what is long. It loses nothing silently."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from flowengine.core import to_json_value


def jsonable(value: Any) -> Any:
    """The value in JSON's types; what has no such form becomes its text.

    >>> jsonable({"a": (1, float("inf"))})
    {'a': [1, 'inf']}
    """
    try:
        return to_json_value(value)
    except (ValueError, RecursionError):  # A value that holds itself, or that is nested too deep.
        return repr(value)[:1000]


def format_value(value: Any) -> str:
    r"""A value for people: text as it is, anything else as indented JSON.

    >>> format_value("text"), format_value([1])
    ('text', '[\n  1\n]')
    """
    return value if isinstance(value, str) else json.dumps(jsonable(value), ensure_ascii=False, indent=2)


def brief(value: Any, length: int) -> Any:
    """The value in JSON's types with every text and every list in it cut short.

    >>> brief({"a": "x" * 50, "b": list(range(9))}, 5)
    {'a': 'xxxxx… (50 characters)', 'b': [0, 1, 2, 3, 4, '… (9 items)']}
    """
    return _shorten(jsonable(value), length)


def _shorten(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]}… ({len(value):,} characters)"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        head = [_shorten(each, length) for each in items[:length]]
        return head if len(items) <= length else [*head, f"… ({len(items):,} items)"]
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[str, Any]", value).items())
        kept_pairs = {key: _shorten(each, length) for key, each in pairs[:length]}
        return kept_pairs if len(pairs) <= length else {**kept_pairs, "…": f"({len(pairs):,} entries)"}
    return value


def compact(value: Any) -> str:
    """JSON's types as JSON on one line; numbers that JSON does not have become text.

    >>> compact({"a": [1, float("nan")]})
    '{"a":[1,"nan"]}'
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(jsonable(value), ensure_ascii=False, separators=(",", ":"))
