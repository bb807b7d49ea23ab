"""Computes the operators of expressions; refuses a result that would be too large before it is built.

They know numbers, texts and lists. There is no text formatting with `%`, whose widths make megabytes of
three characters.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, NoReturn

from flowengine.core.templating.access import Missing, describe_kind, kind_of
from flowengine.core.templating.limits import MAX_INT_BITS, Meter
from flowengine.errors import TemplateError

Operator = Callable[[Meter, Any, Any], Any]


def add(meter: Meter, left: Any, right: Any) -> Any:
    """Numbers, or two texts, or two lists."""
    if _numbers(left, right):
        return _number("+", operator.add, left, right)
    kind = kind_of(left)
    if kind == kind_of(right) == "string":
        meter.text(len(left) + len(right))
        return str.__add__(left, right)
    if kind == kind_of(right) == "list":
        meter.items(len(left) + len(right))
        return [*left, *right]
    _refuse("+", left, right)


def subtract(meter: Meter, left: Any, right: Any) -> Any:
    return _number("-", operator.sub, left, right) if _numbers(left, right) else _refuse("-", left, right)


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """Numbers, or a text or a list repeated."""
    if _numbers(left, right):
        if _bits(left) + _bits(right) > MAX_INT_BITS + 2:
            _too_large()
        return _number("*", operator.mul, left, right)
    if type(left) is int:
        left, right = right, left
    kind = kind_of(left)
    if type(right) is not int or kind not in ("string", "list"):
        _refuse("*", left, right)
    (meter.text if kind == "string" else meter.items)(len(left) * max(right, 0))
    return str.__mul__(left, right) if kind == "string" else list(left) * right


def divide(meter: Meter, left: Any, right: Any) -> Any:
    return (
        _number("/", lambda one, other: one / other, left, right)
        if _numbers(left, right)
        else _refuse("/", left, right)
    )


def floor_divide(meter: Meter, left: Any, right: Any) -> Any:
    return (
        _number("//", lambda one, other: one // other, left, right)
        if _numbers(left, right)
        else _refuse("//", left, right)
    )


def remainder(meter: Meter, left: Any, right: Any) -> Any:
    if kind_of(left) == "string":
        raise TemplateError("`%` does not format text here; use `~`, or the filter `format`")
    return _number("%", operator.mod, left, right) if _numbers(left, right) else _refuse("%", left, right)


def power(meter: Meter, left: Any, right: Any) -> Any:
    if not _numbers(left, right):
        _refuse("**", left, right)
    if isinstance(left, int) and isinstance(right, int) and _bits(left) * abs(right) > MAX_INT_BITS and abs(left) > 1:
        _too_large()
    return _number("**", lambda one, other: one**other, left, right)


def negative(value: Any) -> Any:
    return -_operand("-", value)


def positive(value: Any) -> Any:
    return +_operand("+", value)


OPERATORS: Final[dict[str, Operator]] = {
    "Add": add,
    "Sub": subtract,
    "Mul": multiply,
    "Div": divide,
    "FloorDiv": floor_divide,
    "Mod": remainder,
    "Pow": power,
}
"""By the class name of the operation in the syntax tree."""


def _numbers(left: Any, right: Any) -> bool:
    return isinstance(left, (int, float)) and isinstance(right, (int, float))


def _bits(value: int | float) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _number(sign: str, operate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    try:
        result = operate(left, right)
    except ArithmeticError as error:
        raise TemplateError(f"`{sign}`: {error}") from error
    if isinstance(result, complex):
        raise TemplateError(f"`{sign}`: the result is not a real number")
    if isinstance(result, int) and result.bit_length() > MAX_INT_BITS:
        _too_large()
    return result


def _operand(sign: str, value: Any) -> Any:
    if isinstance(value, Missing):
        raise value.error()
    if not isinstance(value, (int, float)):
        raise TemplateError(f"`{sign}` takes a number, not {describe_kind(value)}")
    return value


def _too_large() -> NoReturn:
    raise TemplateError(f"the template makes an integer of more than {MAX_INT_BITS:,} bits")


def _refuse(sign: str, left: Any, right: Any) -> NoReturn:
    for side in (left, right):
        if isinstance(side, Missing):
            raise side.error()
    raise TemplateError(f"`{sign}` does not take {describe_kind(left)} and {describe_kind(right)}")
