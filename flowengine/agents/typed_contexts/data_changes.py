"""Describes how JSON data were changed, and makes such a change again, also in data that others have changed since.

Pure: JSON values in, JSON values out. A change says only what is different (an entry was added, a number grew by 2), so
that changes of several authors can be made one after the other in whatever data there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from flowengine.core import thaw

DataChange: TypeAlias = Mapping[str, Any]
"""A JSON value: `{"to": value}`, `{"from": number, "to": number}`, `{"fields": {key: change}, "without": [keys]}`, or
`{"at": index, "out": [entries], "in": [entries]}`, where no index is the end."""


def describe_change(before: Any, after: Any) -> DataChange | None:
    """Describes what made `after` of `before`; None for nothing.

    >>> describe_change({"items": ["tea"]}, {"items": ["tea", "milk"]})
    {'fields': {'items': {'in': ['milk']}}}
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _describe_fields(cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", after))
    if isinstance(before, list) and isinstance(after, list):
        return _describe_entries(cast("list[Any]", before), cast("list[Any]", after))
    if _is_equal(before, after):
        return None
    return {"from": before, "to": after} if _is_number(before) and _is_number(after) else {"to": thaw(after)}


def apply_change(data: Any, change: DataChange) -> Any:
    """The data with a change made in them, which may be others than it was made in first.

    >>> apply_change({"items": ["rice"]}, {"fields": {"items": {"in": ["milk"]}}})
    {'items': ['rice', 'milk']}
    """
    if "from" in change and _is_number(data) and data != change["from"]:
        return data + change["to"] - change["from"]
    if "to" in change:
        return thaw(change["to"])
    if "fields" in change or "without" in change:
        remaining = dict(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else {}
        for key, inner in change.get("fields", {}).items():
            remaining[key] = apply_change(remaining.get(key), inner)
        return {key: value for key, value in remaining.items() if key not in change.get("without", ())}
    return _apply_entries([*cast("list[Any]", data)] if isinstance(data, list) else [], change)


def are_at_odds(one: DataChange, other: DataChange) -> bool:
    """Whether of two changes of the same data only one can be seen in the end.

    >>> are_at_odds({"fields": {"name": {"to": "Ann"}}}, {"fields": {"name": {"to": "Ben"}}})
    True
    >>> are_at_odds({"fields": {"name": {"to": "Ann"}}}, {"fields": {"items": {"in": ["tea"]}}})
    False
    """
    if "to" in one and "to" in other:
        return "from" not in one and not _is_equal(one["to"], other["to"])
    if "to" in one or "to" in other:
        return True
    mine, theirs = one.get("fields", {}), other.get("fields", {})
    removed = {*one.get("without", ())} & theirs.keys() | {*other.get("without", ())} & mine.keys()
    return bool(removed) or any(are_at_odds(mine[key], theirs[key]) for key in mine.keys() & theirs.keys())


def _describe_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> DataChange | None:
    fields = {
        key: inner
        for key, value in after.items()
        if (inner := describe_change(before[key], value) if key in before else {"to": thaw(value)}) is not None
    }
    removed = [key for key in before if key not in after]
    change: dict[str, Any] = {"fields": fields} if fields else {}
    return (change | {"without": removed} if removed else change) or None


def _describe_entries(before: list[Any], after: list[Any]) -> DataChange | None:
    shorter = min(len(before), len(after))
    head = next((n for n in range(shorter) if not _is_equal(before[n], after[n])), shorter)
    rest = shorter - head
    tail = next((n for n in range(rest) if not _is_equal(before[-1 - n], after[-1 - n])), rest)
    out, added = thaw(before[head : len(before) - tail]), thaw(after[head : len(after) - tail])
    if not out and not added:
        return None
    change: dict[str, Any] = {"in": added} if added else {}
    return change | ({"at": head, "out": out} if out else {"at": head} if tail else {})


def _apply_entries(entries: list[Any], change: DataChange) -> list[Any]:
    out, added, at = change.get("out", []), thaw(change.get("in", [])), change.get("at", len(entries))
    if not out:
        return [*entries[:at], *added, *entries[at:]]
    places = [n for n in range(len(entries) - len(out) + 1) if _is_equal(entries[n : n + len(out)], out)]
    if places:
        place = min(places, key=lambda each: abs(each - at))
        return [*entries[:place], *added, *entries[place + len(out) :]]
    # Others have changed what stood there: what went goes, as far as it is there, and what is new comes at the end.
    removed, new = _less(out, added), _less(added, out)
    return [*_less(entries, removed), *new]


def _less(entries: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The entries without the others, each of which takes one away."""
    away = Counter(map(_key_of, others))
    remaining: list[Any] = []
    for each in entries:
        key = _key_of(each)
        if away[key]:
            away[key] -= 1
        else:
            remaining.append(each)
    return remaining


def _key_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return repr(sorted((key, _key_of(each)) for key, each in cast("Mapping[str, Any]", value).items()))
    if isinstance(value, list):
        return repr([_key_of(each) for each in cast("list[Any]", value)])
    return repr(value)


def _is_equal(one: Any, other: Any) -> bool:
    """JSON tells true from 1, and 1 from 1.0."""
    return one == other and _key_of(one) == _key_of(other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
