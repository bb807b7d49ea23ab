"""What can be called in an expression: `range()`, and the methods that read a mapping."""

from __future__ import annotations

from typing import Any, Final

from flowengine.errors import TemplateError
from flowengine.templating.access import attribute, entry, kind_of, named
from flowengine.templating.arguments import whole
from flowengine.templating.filters_list import pairs_of
from flowengine.templating.limits import Meter
from flowengine.templating.undefined import Missing

__all__ = ["get_of", "listed_pairs", "range_of"]

_FARTHEST: Final = 10**15
"""Bounds of `range`."""


def range_of(meter: Meter, arguments: list[Any]) -> list[int]:
    """The numbers of `range(…)`."""
    bounds = [whole(each, "a bound of range()", -_FARTHEST, _FARTHEST) for each in arguments]
    if len(bounds) == 3 and bounds[2] == 0:
        raise TemplateError("the step of range() cannot be 0")
    numbers = range(*bounds)
    meter.items(len(numbers))
    return list(numbers)


def get_of(value: Any, text: str, key: Any, *default: Any) -> Any:
    """`mapping.get(key, default)`; without a default an absent key is as missing as anywhere else."""
    path = f"{text}.get(…)"
    if isinstance(key, Missing):
        raise key.error()
    kind = kind_of(value)
    if kind == "mapping":
        found = entry(value, key, path)
    elif kind in ("object", "missing") and isinstance(key, str):
        found = attribute(value, key, path)
    else:
        raise TemplateError(f"{path}: {named(value)} is no mapping")
    return default[0] if default and isinstance(found, Missing) else found


def listed_pairs(meter: Meter, value: Any, side: int | None) -> list[Any]:
    """The pairs of a mapping, or one side of each."""
    if isinstance(value, Missing):
        raise value.error()
    pairs = pairs_of(meter, value)
    return pairs if side is None else [pair[side] for pair in pairs]
