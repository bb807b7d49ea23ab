"""The tests of expressions (`x is defined`). None of them fails on a value that is not there but those that
need a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from flowengine.errors import TemplateError
from flowengine.templating.access import kind_of
from flowengine.templating.arguments import number
from flowengine.templating.compare import contains, equal, less
from flowengine.templating.limits import Meter

__all__ = ["PREDICATES"]

Test = Callable[..., bool]


def _of_kind(*kinds: str) -> Test:
    def test(meter: Meter, value: Any) -> bool:
        return kind_of(value) in kinds

    return test


def defined(meter: Meter, value: Any) -> bool:
    return kind_of(value) != "missing"


def integer(meter: Meter, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def float_(meter: Meter, value: Any) -> bool:
    return isinstance(value, float)


def even(meter: Meter, value: Any) -> bool:
    return number(value, "what is tested for `even`") % 2 == 0


def odd(meter: Meter, value: Any) -> bool:
    return number(value, "what is tested for `odd`") % 2 == 1


def divisibleby(meter: Meter, value: Any, num: Any) -> bool:
    if not (by := number(num, "the divisor")):
        raise TemplateError("nothing is divisible by 0")
    return number(value, "what is tested for `divisibleby`") % by == 0


def eq(meter: Meter, value: Any, other: Any) -> bool:
    return equal(meter, value, other)


def ne(meter: Meter, value: Any, other: Any) -> bool:
    return not equal(meter, value, other)


def lt(meter: Meter, value: Any, other: Any) -> bool:
    return less(meter, value, other)


def gt(meter: Meter, value: Any, other: Any) -> bool:
    return less(meter, other, value)


def le(meter: Meter, value: Any, other: Any) -> bool:
    return less(meter, value, other) or equal(meter, value, other)


def ge(meter: Meter, value: Any, other: Any) -> bool:
    return less(meter, other, value) or equal(meter, value, other)


def in_(meter: Meter, value: Any, seq: Any) -> bool:
    return contains(meter, value, seq)


def true(meter: Meter, value: Any) -> bool:
    return value is True


def false(meter: Meter, value: Any) -> bool:
    return value is False


def lower(meter: Meter, value: Any) -> bool:
    return _is_text(meter, value) and str.islower(value)


def upper(meter: Meter, value: Any) -> bool:
    return _is_text(meter, value) and str.isupper(value)


def _is_text(meter: Meter, value: Any) -> bool:
    """Whether it is a text; reading it through is paid for."""
    if not isinstance(value, str):
        return False
    meter.text(len(value))
    return True


PREDICATES: Final = cast(
    "dict[str, Callable[..., bool]]",
    {
        "!=": ne,
        "<": lt,
        "<=": le,
        "==": eq,
        ">": gt,
        ">=": ge,
        "boolean": _of_kind("boolean"),
        "defined": defined,
        "divisibleby": divisibleby,
        "eq": eq,
        "equalto": eq,
        "even": even,
        "false": false,
        "float": float_,
        "ge": ge,
        "greaterthan": gt,
        "gt": gt,
        "in": in_,
        "integer": integer,
        "iterable": _of_kind("list", "mapping", "string"),
        "le": le,
        "lessthan": lt,
        "lower": lower,
        "lt": lt,
        "mapping": _of_kind("mapping"),
        "ne": ne,
        "none": _of_kind("null"),
        "number": _of_kind("number", "boolean"),
        "odd": odd,
        "sequence": _of_kind("list", "mapping", "string"),
        "string": _of_kind("string"),
        "true": true,
        "undefined": _of_kind("missing"),
        "upper": upper,
    },
)
