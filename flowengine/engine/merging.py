"""Merges what several nodes wrote to one key: the merge rules, and the values that each accepts.

Pure functions over values. Who wrote what, and in which order, is the state's to say. Source of the
rules: rule 6 of the flow format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from flowengine.core import describe_value, frozen_dict, frozen_list, is_json_type, number_key
from flowengine.errors import StateError

Merge = Literal["error", "replace", "append", "union", "sum", "max", "min", "update"]


class StateKey(NamedTuple):
    """A declared key: its default, how writes meet, and the type that values must have."""

    default: Any = None
    merge: Merge = "error"
    type: str | None = None
    """`string`, `number`, `integer`, `boolean`, `array` or `object`; None: anything."""


def state_rules(keys: Mapping[str, StateKey]) -> dict[str, list[Any]]:
    """Key → its merge rule and its default, as JSON has it (None where it has not)."""
    return {name: [key.merge, _json_or_none(key.default)] for name, key in keys.items()}


def _json_or_none(default: Any) -> Any:
    try:
        json.dumps(default)
    except (TypeError, ValueError, RecursionError):
        return None
    return default


def _append(value: Any, contributions: Sequence[Any]) -> Any:
    return frozen_list([*(value or ()), *(each for items in contributions for each in items)])


def _union(value: Any, contributions: Sequence[Any]) -> Any:
    """Appends as `append` does, but each item once, at its first place. Items need not be hashable."""
    values: list[Any] = []
    marks: set[Any] = set()
    for each in _append(value, contributions):
        mark = _comparison_key(each)
        if mark not in marks:
            marks.add(mark)
            values.append(each)
    return frozen_list(values)


def _comparison_key(value: Any) -> Any:
    """A hashable stand-in that is equal where values are equal (1 and true stay apart)."""
    if isinstance(value, int | float):
        return (isinstance(value, bool), number_key(value))
    if isinstance(value, tuple):
        return ("tuple", tuple(_comparison_key(each) for each in cast(tuple[Any, ...], value)))
    if isinstance(value, list):
        return ("list", tuple(_comparison_key(each) for each in cast(list[Any], value)))
    if isinstance(value, dict):
        return ("dict", frozenset((key, _comparison_key(each)) for key, each in cast(dict[Any, Any], value).items()))
    try:
        hash(value)
    except TypeError:
        return (type(value).__name__, repr(value))
    return (isinstance(value, bool), value)


def _sum(value: Any, contributions: Sequence[Any]) -> Any:
    # Not the builtin: it may compensate rounding, and then a fold in two steps would differ from one.
    for each in contributions:
        value = each if value is None else value + each
    return value


def _max(value: Any, contributions: Sequence[Any]) -> Any:
    return max([*([] if value is None else [value]), *contributions], default=None)


def _min(value: Any, contributions: Sequence[Any]) -> Any:
    return min([*([] if value is None else [value]), *contributions], default=None)


def _update(value: Any, contributions: Sequence[Any]) -> Any:
    merged: dict[str, Any] = dict(value or {})
    for each in contributions:
        merged.update(each)
    return frozen_dict(merged)


FOLDS: Final[Mapping[str, Callable[[Any, Sequence[Any]], Any]]] = {
    "append": _append,
    "union": _union,
    "sum": _sum,
    "max": _max,
    "min": _min,
    "update": _update,
}
"""Rule → (the value so far, contributions in order) → the value. A fold of folds is the fold of all."""

_CONTRIBUTION: Final[Mapping[str, str]] = {
    "append": "array",
    "union": "array",
    "sum": "number",
    "max": "number",
    "min": "number",
    "update": "object",
}
"""The type that one contribution must have; it goes before the declared type."""


def check_contribution(key: str, declared: StateKey, value: Any) -> None:
    expected = _CONTRIBUTION.get(declared.merge, declared.type)
    if expected is None or (value is None and expected == declared.type):
        return
    if expected == "number" and declared.type in ("string",) and declared.merge in ("max", "min"):
        expected = "string"
    if not is_json_type(value, expected):
        rule = f" (merge: {declared.merge} takes contributions)" if declared.merge in FOLDS else ""
        raise StateError(f"shared state key '{key}' takes {expected} values{rule}, found {describe_value(value)}")
