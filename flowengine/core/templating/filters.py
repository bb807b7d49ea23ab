"""Lists the filters that templates may use, with those that stand for a value or apply others.

A filter is a function `(meter, value, …)`. Its own parameters are what an author may give, so the checks
read them from here. Values that are not there never reach a filter, but for those in `TAKES_MISSING`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any, Final, cast

from flowengine.core.templating.access import Missing, each_of, kind_of
from flowengine.core.templating.arguments import check_integer, check_number, field_reader
from flowengine.core.templating.arithmetic import remainder
from flowengine.core.templating.compare import contains, equal, is_true, less
from flowengine.core.templating.filters_list import LIST_FILTERS
from flowengine.core.templating.filters_parsing import PARSING_FILTERS
from flowengine.core.templating.filters_text import TEXT_FILTERS
from flowengine.core.templating.limits import MAX_INT_BITS, Meter
from flowengine.core.templating.text import excerpt
from flowengine.errors import TemplateError, did_you_mean

# --- Tests of expressions (`x is defined`)

Test = Callable[..., bool]


def _of_kind(*kinds: str) -> Test:
    def test(meter: Meter, value: Any) -> bool:
        return kind_of(value) in kinds

    return test


def is_defined(meter: Meter, value: Any) -> bool:
    return kind_of(value) != "missing"


def integer(meter: Meter, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def float_(meter: Meter, value: Any) -> bool:
    return isinstance(value, float)


def even(meter: Meter, value: Any) -> bool:
    return check_number(value, "what is tested for `even`") % 2 == 0


def odd(meter: Meter, value: Any) -> bool:
    return check_number(value, "what is tested for `odd`") % 2 == 1


def divisibleby(meter: Meter, value: Any, num: Any) -> bool:
    if not (by := check_number(num, "the divisor")):
        raise TemplateError("nothing is divisible by 0")
    return remainder(meter, check_number(value, "what is tested for `divisibleby`"), by) == 0


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
    """Tells whether it is a text; reading it through is paid for."""
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
        "defined": is_defined,
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


TAKES_MISSING: Final = frozenset({"d", "default"})
_LONGEST_NUMBER: Final = 1_000


def default(meter: Meter, value: Any, default_value: Any = "", boolean: Any = False) -> Any:
    """`default_value` where the value is not there, or (`boolean`) where it counts as false."""
    absent = isinstance(value, Missing) or (is_true(boolean) and not is_true(value))
    return default_value if absent else value


def int_(meter: Meter, value: Any, default: Any = 0, base: Any = 10) -> Any:
    """A whole number; `default` where the value is none."""
    try:
        if isinstance(value, str):
            return _parse_integer(value, check_integer(base, "base", 0, 36))
        return value if type(value) is int else int(check_number(value, "the value"))
    except (ValueError, ArithmeticError, TemplateError):
        return int(value) if isinstance(value, bool) else default


def _parse_integer(text: str, base: int) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError("too long")
    try:
        return int(text, base)
    except ValueError:
        return int(float(text))


def to_float(meter: Meter, value: Any, default: Any = 0.0) -> Any:
    """A float; `default` where the value is none."""
    if not isinstance(value, (str, int, float)) or (isinstance(value, str) and len(value) > _LONGEST_NUMBER):
        return default
    try:
        return float(value)
    except (ValueError, ArithmeticError):
        return default


def abs_(meter: Meter, value: Any) -> Any:
    return abs(check_number(value, "the value"))


def round_(meter: Meter, value: Any, precision: Any = 0, method: Any = "common") -> Any:
    """Rounded to `precision` places; `method` is `common`, `ceil` or `floor`."""
    amount, places = check_number(value, "the value"), check_integer(precision, "precision", -300, 300)
    if isinstance(amount, int) and amount.bit_length() > MAX_INT_BITS:
        raise TemplateError(f"an integer of more than {MAX_INT_BITS:,} bits cannot be rounded")
    ways: dict[Any, Callable[[Any], int]] = {"ceil": math.ceil, "floor": math.floor}
    try:
        if method == "common":
            return round(amount, places)
        if not isinstance(method, str) or method not in ways:
            raise TemplateError("round knows the methods 'common', 'ceil' and 'floor'")
        return ways[method](amount * 10.0**places) / 10.0**places
    except (ValueError, ArithmeticError) as error:
        raise TemplateError(f"round: {error}") from error


def map_(meter: Meter, value: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """`map(attribute="x", default=…)`, or `map("filter", …)` with the filter's own arguments."""
    if "attribute" in kwargs and not args:
        return _attributes(meter, value, **kwargs)
    if not args:
        raise TemplateError('map takes attribute="…" or the name of a filter')
    apply = _bind_filter(*args, **kwargs)
    return [apply(meter, each) for each in each_of(meter, value)]


def _attributes(meter: Meter, value: Any, attribute: Any, default: Any = None, **more: Any) -> list[Any]:
    if more:
        raise TemplateError(f"map has no argument '{next(iter(more))}'")
    read = field_reader(attribute)
    values = [read(meter, each) for each in each_of(meter, value)]
    return values if default is None else [default if isinstance(each, Missing) else each for each in values]


def select(meter: Meter, value: Any, *args: Any) -> list[Any]:
    """The items that pass a test, or that count as true."""
    test = _bind_test(*args)
    return [each for each in each_of(meter, value) if test(meter, each)]


def reject(meter: Meter, value: Any, *args: Any) -> list[Any]:
    """The items that do not pass."""
    test = _bind_test(*args)
    return [each for each in each_of(meter, value) if not test(meter, each)]


def selectattr(meter: Meter, value: Any, attribute: Any, *args: Any) -> list[Any]:
    """The items whose attribute passes a test, or counts as true."""
    read, test = field_reader(attribute), _bind_test(*args)
    return [each for each in each_of(meter, value) if test(meter, read(meter, each))]


def rejectattr(meter: Meter, value: Any, attribute: Any, *args: Any) -> list[Any]:
    """The items whose attribute does not pass."""
    read, test = field_reader(attribute), _bind_test(*args)
    return [each for each in each_of(meter, value) if not test(meter, read(meter, each))]


def _bind_filter(name: Any, *args: Any, **kwargs: Any) -> Callable[[Meter, Any], Any]:
    """A filter by its name, with its arguments."""
    function = _by_name(FILTERS, "filter", name, args, kwargs)

    def apply(meter: Meter, value: Any) -> Any:
        if isinstance(value, Missing) and name not in TAKES_MISSING:
            raise value.error()
        return function(meter, value, *args, **kwargs)

    return apply


def _bind_test(name: Any = None, *args: Any) -> Callable[[Meter, Any], bool]:
    """A test by its name, with its arguments; without a name, whether the value counts as true."""
    if name is None:
        return lambda meter, value: is_true(value)
    function = _by_name(TESTS, "test", name, args, {})
    return lambda meter, value: function(meter, value, *args)


def _by_name(
    table: dict[str, Callable[..., Any]], what: str, name: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    function = table.get(name) if type(name) is str else None
    if function is None:
        near = did_you_mean(name[:60], table) if type(name) is str else ""
        raise TemplateError(f"unknown {what} {excerpt(name)}{near}")
    if problem := find_misfit(function, len(args), tuple(kwargs)):
        raise TemplateError(f"{what} '{name}' {problem}")
    return function


def _is_filter(meter: Meter, value: Any) -> bool:
    return type(value) is str and value in FILTERS


def _is_test(meter: Meter, value: Any) -> bool:
    return type(value) is str and value in TESTS


TESTS: Final[dict[str, Callable[..., Any]]] = {**PREDICATES, "filter": _is_filter, "test": _is_test}

FILTERS: Final = cast(
    "dict[str, Callable[..., Any]]",
    {
        **TEXT_FILTERS,
        **LIST_FILTERS,
        **PARSING_FILTERS,
        "abs": abs_,
        "d": default,
        "default": default,
        "float": to_float,
        "int": int_,
        "map": map_,
        "reject": reject,
        "rejectattr": rejectattr,
        "round": round_,
        "select": select,
        "selectattr": selectattr,
    },
)


# --- Calls of filters and tests


@lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> tuple[int, int | None, Mapping[str, Parameter]]:
    """Fewest and most positional arguments after the meter and the value, and the names."""
    parameters = dict(list(signature(function).parameters.items())[2:])
    plain = {name: each for name, each in parameters.items() if each.kind is Parameter.POSITIONAL_OR_KEYWORD}
    fewest = sum(1 for each in plain.values() if each.default is Parameter.empty)
    any_number = any(each.kind is Parameter.VAR_POSITIONAL for each in parameters.values())
    return fewest, None if any_number else len(plain), parameters


def find_misfit(function: Callable[..., Any], count: int, keywords: tuple[str, ...]) -> str:
    """Describes what is wrong with a call's arguments; empty if nothing is."""
    fewest, most, names = _signature(function)
    if most is not None and count + len(keywords) > most:
        return f"takes at most {most} argument{'' if most == 1 else 's'}"
    free = any(each.kind is Parameter.VAR_KEYWORD for each in names.values())
    for keyword in keywords:
        each = names.get(keyword)
        if not free and (each is None or each.kind is Parameter.VAR_POSITIONAL):
            return f"has no argument '{keyword}'{did_you_mean(keyword, names)}"
        if keyword in list(names)[:count] and most is not None:
            return f"was given '{keyword}' twice"
    needed = list(names)[count:fewest]
    missing = [name for name in needed if name not in keywords]
    return f"needs the argument '{missing[0]}'" if missing else ""
