"""Compares data within the meter: truth, equality, order and membership.

Comparing two small values can take for ever where they share their parts (a list that holds one list
twice, twenty deep), so nothing here leaves a nested comparison to Python. No object's own `__eq__`,
`__lt__`, `__bool__` or `__hash__` is called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cmp_to_key
from typing import Any, Final, cast

from flowengine.core.templating.access import Missing, describe_kind, kind_of, read_entry, shape_of
from flowengine.core.templating.frame import Closure, Frame
from flowengine.core.templating.limits import MAX_VALUE_DEPTH, Meter
from flowengine.core.templating.text import enum_value, to_json
from flowengine.core.values import number_key
from flowengine.errors import TemplateError

NUMBERS: Final = frozenset({int, float, bool})
_TEXT: Final = frozenset({str})
_NATIVE: Final = frozenset({bool, int, float, str, type(None), list, dict, tuple})
_ORDERED: Final = (datetime, date, time, Decimal)


def is_true(value: Any) -> bool:
    """Tells whether a value counts as true: empty, zero, null and missing do not; an object does."""
    if type(value) in _NATIVE:
        return bool(value)
    kind = kind_of(value)
    if kind in ("mapping", "list", "string"):
        return len(value) > 0
    if kind == "enum":
        return is_true(enum_value(value))
    return kind != "missing" and (kind != "number" or value != 0)


def equal(meter: Meter, left: Any, right: Any, depth: int = 0) -> bool:
    """Tells whether two values hold the same data. A missing value equals nothing."""
    meter.spend(2)
    if depth > MAX_VALUE_DEPTH:
        raise TemplateError(f"values nested more than {MAX_VALUE_DEPTH} deep cannot be compared")
    one, other = kind_of(left), kind_of(right)
    if one == "enum" or other == "enum":
        return _equal_unwrapped(meter, left, right, depth)
    if one == "missing" or other == "missing":
        return False
    if {one, other} == {"number", "boolean"}:
        return bool(left == right)
    if one != other:
        return False
    return left is right if one == "other" else _EQUAL[one](meter, left, right, depth)


def _equal_unwrapped(meter: Meter, left: Any, right: Any, depth: int) -> bool:
    """Members of enums count as their values, so `x.status == "open"` works."""
    plain = [enum_value(each) if kind_of(each) == "enum" else each for each in (left, right)]
    return equal(meter, plain[0], plain[1], depth + 1)


def _equal_strings(meter: Meter, left: str, right: str, depth: int) -> bool:
    if len(left) != len(right):
        return False
    meter.text(len(left))
    return str.__eq__(left, right)


def _equal_lists(meter: Meter, left: Sequence[Any], right: Sequence[Any], depth: int) -> bool:
    if left is right:
        return True
    pairs = zip(left, right, strict=True)
    return len(left) == len(right) and all(equal(meter, one, other, depth + 1) for one, other in pairs)


def _equal_mappings(meter: Meter, left: Mapping[Any, Any], right: Mapping[Any, Any], depth: int) -> bool:
    if left is right:
        return True
    return len(left) == len(right) and all(
        equal(meter, left[key], read_entry(right, key, ""), depth + 1) for key in left
    )


def _equal_objects(meter: Meter, left: Any, right: Any, depth: int) -> bool:
    if left is right or type(left) is not type(right):
        return left is right
    shape = shape_of(type(left))
    return all(equal(meter, shape.read(left, name), shape.read(right, name), depth + 1) for name in shape.fields)


def _equal_plainly(meter: Meter, left: Any, right: Any, depth: int) -> bool:
    try:
        return bool(left == right)
    except ArithmeticError:  # a signalling NaN equals nothing
        return False


_EQUAL: Final[dict[str, Callable[[Meter, Any, Any, int], bool]]] = {
    "string": _equal_strings,
    "list": _equal_lists,
    "mapping": _equal_mappings,
    "object": _equal_objects,
    "number": _equal_plainly,
    "boolean": _equal_plainly,
    "null": _equal_plainly,
    "scalar": _equal_plainly,
}


def less(meter: Meter, left: Any, right: Any, depth: int = 0) -> bool:
    """Tells whether `left` comes before `right`; an error where they have no order."""
    meter.spend(2)
    for side in (left, right):
        if isinstance(side, Missing):
            raise side.error()
    one, other = kind_of(left), kind_of(right)
    if one in ("number", "boolean") and other in ("number", "boolean"):
        return bool(left < right)
    if one == other == "string":
        meter.text(min(len(left), len(right)))
        return str.__lt__(left, right)
    if one == other == "list" and depth <= MAX_VALUE_DEPTH:
        return _list_less(meter, left, right, depth)
    if one == other == "scalar" and type(left) is type(right) and isinstance(left, _ORDERED):
        return _scalar_less(left, right)
    raise TemplateError(f"{describe_kind(left)} and {describe_kind(right)} cannot be ordered")


def _list_less(meter: Meter, left: Sequence[Any], right: Sequence[Any], depth: int) -> bool:
    for one, other in zip(left, right, strict=False):
        if not equal(meter, one, other, depth + 1):
            return less(meter, one, other, depth + 1)
    return len(left) < len(right)


def _scalar_less(left: Any, right: Any) -> bool:
    try:
        return bool(left < right)
    except (TypeError, ArithmeticError) as error:  # times with and without a zone; a signalling NaN
        raise TemplateError(f"{describe_kind(left)}: {error}") from error


def contains(meter: Meter, value: Any, container: Any) -> bool:
    """`value in container`."""
    kind = kind_of(container)
    if kind == "missing":
        raise cast(Missing, container).error()
    if kind == "string":
        if not isinstance(value, str):
            raise TemplateError(f"{describe_kind(value)} cannot be looked for in a string")
        meter.text(len(container))
        return value in container
    if kind == "mapping":
        return not isinstance(value, Missing) and not isinstance(read_entry(container, value, ""), Missing)
    if kind == "list":
        return any(equal(meter, value, each) for each in container)
    raise TemplateError(f"nothing can be looked for in {describe_kind(container)}")


def identity_key(meter: Meter, value: Any) -> Any:
    """A key that equal values share, for `unique` and `groupby`."""
    kind = kind_of(value)
    if kind == "enum":
        return identity_key(meter, enum_value(value))
    if kind in ("string", "null"):
        return (kind, value)
    if kind in ("number", "boolean") and isinstance(value, int | float):
        return ("number", number_key(value))
    return to_json(meter, value, lenient=True)


def sort_pairs(meter: Meter, items: Iterable[tuple[Any, Any]], reverse: bool = False) -> list[Any]:
    """The second of each pair, sorted by the first; equal ones keep their order."""
    pairs = list(items)
    kinds: set[type[Any]] = {type(key) for key, _ in pairs}
    meter.spend(4 * len(pairs))
    if kinds <= {str}:
        meter.spend(sum(len(key) for key, _ in pairs) >> 5)
        return [each for _, each in sorted(pairs, key=lambda pair: pair[0], reverse=reverse)]
    if kinds <= NUMBERS:
        return [each for _, each in sorted(pairs, key=lambda pair: pair[0], reverse=reverse)]

    def order(left: tuple[Any, Any], right: tuple[Any, Any]) -> int:
        if less(meter, left[0], right[0]):
            return -1
        return 1 if less(meter, right[0], left[0]) else 0

    return [each for _, each in sorted(pairs, key=cmp_to_key(order), reverse=reverse)]


# --- Comparisons as closures, quick for small values

_SHORT: Final = 1_000

Relation = Callable[[Meter, Any, Any], bool]


def compile_comparison(first: Closure, rest: list[tuple[str, Closure]]) -> Closure:
    """`a < b`, or a chain `a < b < c` in which every pair must hold."""
    if len(rest) == 1:
        ((name, second),) = rest
        return _compile_pair(name, first, second)
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


def _compile_pair(name: str, first: Closure, second: Closure) -> Closure:
    """Numbers, which most conditions compare, without a further call."""
    relation, quick = _RELATIONS[name], _OF_NUMBERS.get(name)
    if quick is None:
        return lambda frame: relation(frame, first(frame), second(frame))

    def evaluate(frame: Frame) -> bool:
        left, right = first(frame), second(frame)
        if type(left) in NUMBERS and type(right) in NUMBERS:
            return quick(left, right)
        return relation(frame, left, right)

    return evaluate


def compare_with(name: str, first: Closure, constant: Any) -> Closure:
    """`a < 3`: a number or a short text of the source is compared with one of the run without a further call."""
    relation, quick = _RELATIONS[name], _OF_NUMBERS.get(name)
    kinds = NUMBERS if type(constant) in NUMBERS else _TEXT if name in ("eq", "ne") and _is_short(constant) else None
    if quick is None or kinds is None:
        return lambda frame: relation(frame, first(frame), constant)

    def evaluate(frame: Frame) -> bool:
        left = first(frame)
        return quick(left, constant) if type(left) in kinds else relation(frame, left, constant)

    return evaluate


def _is_short(value: Any) -> bool:
    return type(value) is str and len(value) < _SHORT


def _are_same(meter: Meter, left: Any, right: Any) -> bool:
    if type(right) is str and _is_short(left):
        return left == right
    return equal(meter, left, right)


_OF_NUMBERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "gt": operator.gt,
    "lteq": operator.le,
    "gteq": operator.ge,
}

_RELATIONS: Final[dict[str, Relation]] = {
    "eq": _are_same,
    "ne": lambda meter, left, right: not _are_same(meter, left, right),
    "lt": less,
    "gt": lambda meter, left, right: less(meter, right, left),
    "lteq": lambda meter, left, right: less(meter, left, right) or equal(meter, left, right),
    "gteq": lambda meter, left, right: less(meter, right, left) or equal(meter, left, right),
    "in": contains,
    "notin": lambda meter, left, right: not contains(meter, left, right),
}
