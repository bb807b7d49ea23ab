"""Implements the filters that read lists and mappings. Their meaning is Jinja's; every result is a list, never a
generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

from flowengine.core.templating.access import (
    Missing,
    describe_kind,
    each_of,
    kind_of,
    read_attribute,
    read_entry,
    read_sequence,
)
from flowengine.core.templating.arguments import Reader, attribute_name, check_integer, field_reader
from flowengine.core.templating.arithmetic import add
from flowengine.core.templating.compare import identity_key, less, sort_pairs
from flowengine.core.templating.limits import MAX_ITEMS, Meter
from flowengine.errors import TemplateError


class Group(NamedTuple):
    """One group of `groupby`; it also unpacks (`for key, items in …`)."""

    grouper: Any
    list: Sequence[Any]


def length(meter: Meter, value: Any) -> int:
    if kind_of(value) not in ("list", "string", "mapping"):
        raise TemplateError(f"{describe_kind(value)} has no length")
    return len(value)


def first(meter: Meter, value: Any) -> Any:
    return _at(meter, value, 0, "the first item")


def last(meter: Meter, value: Any) -> Any:
    return _at(meter, value, -1, "the last item")


def _at(meter: Meter, value: Any, position: int, what: str) -> Any:
    items = value if kind_of(value) in ("list", "string") else read_sequence(meter, value)
    return items[position] if len(items) else Missing(what, "the list is empty")


def list_(meter: Meter, value: Any) -> list[Any]:
    return list(read_sequence(meter, value))


def reverse(meter: Meter, value: Any) -> Any:
    if kind_of(value) == "string":
        meter.text(len(value))
        return value[::-1]
    return list(read_sequence(meter, value))[::-1]


def unique(meter: Meter, value: Any, case_sensitive: Any = False, attribute: Any = None) -> list[Any]:
    """The items without repetitions, in the order in which they first come."""
    keys: set[Any] = set()
    items: list[Any] = []
    read = field_reader(attribute, optional=True)
    for each in each_of(meter, value):
        key = identity_key(meter, _key(meter, each, read, case_sensitive))
        if key not in keys:
            keys.add(key)
            items.append(each)
    return items


def sort(
    meter: Meter, value: Any, reverse: Any = False, case_sensitive: Any = False, attribute: Any = None
) -> list[Any]:
    """Sorted; several attributes are separated by commas."""
    names: list[Any] = attribute_name(attribute).split(",") if isinstance(attribute, str) else [attribute]
    readers = [field_reader(name, optional=True) for name in names]
    if len(readers) == 1:
        pairs = [(_key(meter, each, readers[0], case_sensitive), each) for each in each_of(meter, value)]
    else:
        pairs = [
            ([_key(meter, each, read, case_sensitive) for read in readers], each) for each in each_of(meter, value)
        ]
    return sort_pairs(meter, pairs, bool(reverse))


def min_(meter: Meter, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Any:
    return _extreme(meter, value, case_sensitive, attribute, lambda new, old: less(meter, new, old))


def max_(meter: Meter, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Any:
    return _extreme(meter, value, case_sensitive, attribute, lambda new, old: less(meter, old, new))


def _extreme(meter: Meter, value: Any, case_sensitive: Any, attribute: Any, better: Callable[[Any, Any], bool]) -> Any:
    read, keyed = field_reader(attribute, optional=True), each_of(meter, value)
    try:
        best = next(keyed)
    except StopIteration:
        return Missing("the least or greatest item", "the list is empty")
    best_key = _key(meter, best, read, case_sensitive)
    for each in keyed:
        key = _key(meter, each, read, case_sensitive)
        if better(key, best_key):
            best, best_key = each, key
    return best


def sum_(meter: Meter, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    total, read = start, field_reader(attribute, optional=True)
    for each in each_of(meter, value):
        total = add(meter, total, read(meter, each))
    return total


def items(meter: Meter, value: Any) -> list[Any]:
    """The pairs of a mapping."""
    return pairs_of(meter, value)


def dictsort(meter: Meter, value: Any, case_sensitive: Any = False, by: Any = "key", reverse: Any = False) -> list[Any]:
    """The pairs of a mapping, sorted by `key` or by `value`."""
    if by not in ("key", "value"):
        raise TemplateError("dictsort sorts by 'key' or by 'value'")
    side = 0 if by == "key" else 1
    pairs, read = pairs_of(meter, value), field_reader(side)
    return sort_pairs(meter, [(_key(meter, pair, read, case_sensitive), pair) for pair in pairs], bool(reverse))


_LIST: Final = 4
"""Steps that making a list costs beside its items: it is an object that the garbage collector tracks."""


def batch(meter: Meter, value: Any, linecount: Any, fill_with: Any = None) -> list[list[Any]]:
    """Lists of `linecount` items, the last one filled up."""
    size = check_integer(linecount, "linecount", 1, MAX_ITEMS)
    source = read_sequence(meter, value)
    meter.spend(_LIST * (len(source) // size + 1))
    rows = [list(source[at : at + size]) for at in range(0, len(source), size)]
    return _fill_rows(meter, rows, size, fill_with, rows[-1:])


def slice_(meter: Meter, value: Any, slices: Any, fill_with: Any = None) -> list[list[Any]]:
    """`slices` lists of about equal length."""
    count = check_integer(slices, "slices", 1, MAX_ITEMS)
    source = read_sequence(meter, value)
    meter.items(count)
    meter.spend(_LIST * count)
    size, longer = divmod(len(source), count)
    starts = [at * size + min(at, longer) for at in range(count + 1)]
    rows = [list(source[start:stop]) for start, stop in pairwise(starts)]
    return _fill_rows(meter, rows, size + 1, fill_with, rows[longer:] if longer else [])


def _fill_rows(meter: Meter, rows: list[list[Any]], size: int, filling: Any, short: list[list[Any]]) -> list[list[Any]]:
    if filling is not None:
        for row in short:
            meter.items(size)
            row.extend([filling] * (size - len(row)))
    return rows


def groupby(meter: Meter, value: Any, attribute: Any, default: Any = None, case_sensitive: Any = False) -> list[Group]:
    """Groups of the items that share an attribute, sorted by it."""
    groups: dict[Any, Group] = {}
    read = field_reader(attribute)
    for each in each_of(meter, value):
        group_value = read(meter, each)
        if isinstance(group_value, Missing):
            if default is None:
                raise group_value.error()
            group_value = default
        key = identity_key(meter, _fold_case(meter, group_value, case_sensitive))
        cast("list[Any]", groups.setdefault(key, Group(group_value, [])).list).append(each)
    pairs = [(_fold_case(meter, group.grouper, case_sensitive), group) for group in groups.values()]
    return sort_pairs(meter, pairs)


def pairs_of(meter: Meter, value: Any) -> list[Any]:
    """Key and value of every entry of a mapping."""
    if kind_of(value) != "mapping":
        raise TemplateError(f"{describe_kind(value)} has no pairs: it is no mapping")
    meter.items(len(value))
    return list(value.items())


def _key(meter: Meter, value: Any, read: Reader, case_sensitive: Any) -> Any:
    """Returns the value by which an item is sorted or compared."""
    attribute = read(meter, value)
    if isinstance(attribute, Missing):
        raise attribute.error()
    return _fold_case(meter, attribute, case_sensitive)


def _fold_case(meter: Meter, value: Any, case_sensitive: Any) -> Any:
    if case_sensitive or not isinstance(value, str):
        return value
    meter.text(len(value))
    return str.lower(value)


LIST_FILTERS: Final = cast(
    "dict[str, Callable[..., Any]]",
    {
        "batch": batch,
        "count": length,
        "dictsort": dictsort,
        "first": first,
        "groupby": groupby,
        "items": items,
        "last": last,
        "length": length,
        "list": list_,
        "max": max_,
        "min": min_,
        "reverse": reverse,
        "slice": slice_,
        "sort": sort,
        "sum": sum_,
        "unique": unique,
    },
)


# --- Functions that expressions may call

_FARTHEST: Final = 10**15
"""Bounds of `range`."""


def range_of(meter: Meter, arguments: list[Any]) -> list[int]:
    """The numbers of `range(…)`."""
    bounds = [check_integer(each, "a bound of range()", -_FARTHEST, _FARTHEST) for each in arguments]
    if len(bounds) == 3 and bounds[2] == 0:
        raise TemplateError("the step of range() cannot be 0")
    numbers = range(*bounds)
    meter.items(len(numbers))
    return list(numbers)


def get_of(value: Any, text: str, key: Any, *default: Any) -> Any:
    """`mapping.get(key, default)`: none without a default; what should hold the key must be there."""
    path = f"{text}.get(…)"
    if isinstance(key, Missing):
        raise key.error()
    kind = kind_of(value)
    if kind == "mapping":
        entry = read_entry(value, key, path)
    elif kind in ("object", "missing") and isinstance(key, str):
        entry = read_attribute(value, key, path)
    else:
        raise TemplateError(f"{path}: {describe_kind(value)} is no mapping")
    if isinstance(entry, Missing) and (default or kind != "missing"):
        return default[0] if default else None
    return entry


def listed_pairs(meter: Meter, value: Any, side: int | None) -> list[Any]:
    """The pairs of a mapping, or one side of each."""
    if isinstance(value, Missing):
        raise value.error()
    pairs = pairs_of(meter, value)
    return pairs if side is None else [pair[side] for pair in pairs]
