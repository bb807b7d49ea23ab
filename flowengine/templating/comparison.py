"""Comparisons as closures, quick for numbers and short texts, which is what conditions compare."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from flowengine.templating.compare import NUMBERS, contains, equal, less
from flowengine.templating.frame import Closure, Frame
from flowengine.templating.limits import Meter

__all__ = ["comparison"]

_SHORT: Final = 1_000

Relation = Callable[[Meter, Any, Any], bool]


def comparison(first: Closure, rest: list[tuple[str, Closure]]) -> Closure:
    """`a < b`, or a chain `a < b < c` in which every pair must hold."""
    if len(rest) == 1:
        ((name, second),) = rest
        relation = _RELATIONS[name]
        return lambda frame: relation(frame, first(frame), second(frame))
    links = [(_RELATIONS[name], operand) for name, operand in rest]

    def evaluate(frame: Frame) -> bool:
        left = first(frame)
        for relation, operand in links:
            right = operand(frame)
            if not relation(frame, left, right):
                return False
            left = right
        return True

    return evaluate


def _order(quick: Callable[[Any, Any], bool], careful: Relation) -> Relation:
    def relation(meter: Meter, left: Any, right: Any) -> bool:
        if type(left) in NUMBERS and type(right) in NUMBERS:
            return quick(left, right)
        return careful(meter, left, right)

    return relation


def _same(meter: Meter, left: Any, right: Any) -> bool:
    if type(left) is str and type(right) is str and len(left) < _SHORT:
        return left == right
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return left == right
    return equal(meter, left, right)


_RELATIONS: Final[dict[str, Relation]] = {
    "eq": _same,
    "ne": lambda meter, left, right: not _same(meter, left, right),
    "lt": _order(operator.lt, less),
    "gt": _order(operator.gt, lambda meter, left, right: less(meter, right, left)),
    "lteq": _order(operator.le, lambda meter, left, right: less(meter, left, right) or equal(meter, left, right)),
    "gteq": _order(operator.ge, lambda meter, left, right: less(meter, right, left) or equal(meter, left, right)),
    "in": lambda meter, left, right: contains(meter, left, right),
    "notin": lambda meter, left, right: not contains(meter, left, right),
}
