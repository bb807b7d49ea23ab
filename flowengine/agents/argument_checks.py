"""Checks arguments of agents: numbers, lists, functions and names with their descriptions.

What breaks a rule is a `DefinitionError` that says what was found and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any, cast

from flowengine.errors import DefinitionError, refuse_other_kind

__all__ = ["check_count", "check_descriptions", "check_functions", "check_list", "check_share", "is_number"]


def is_number(value: object) -> bool:
    """Tells whether a value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_share(name: str, value: float) -> float:
    """A value from 0.0 to 1.0; one above proposes the value / 100, since percentages are a common slip.

    >>> check_share("pass_threshold", 85)
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: pass_threshold must be between 0.0 and 1.0, not 85; did you mean 0.85?
    """
    fits = is_number(value)
    if fits and 0 <= value <= 1:
        return value
    hint = f"; did you mean {value / 100:g}?" if fits and 1 < value <= 100 else ""
    raise DefinitionError(f"{name} must be between 0.0 and 1.0, not {value!r}{hint}")


def check_count(name: str, value: int, least: int) -> int:
    """A whole number that is not too small.

    >>> check_count("max_retries", "3", 0)
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: max_retries must be a whole number of at least 0, not '3'
    """
    if type(value) is int and value >= least:
        return value
    raise DefinitionError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_functions(name: str, given: Iterable[Any]) -> tuple[Any, ...]:
    """A list of functions, as a tuple."""
    found = check_list(name, given, " of functions")
    for each in found:
        refuse_other_kind(each, Callable, f"one of {name} is a function", DefinitionError)
    return found


def check_list(name: str, given: Iterable[Any], items: str = "") -> tuple[Any, ...]:
    """A list, as a tuple. `items`: what it consists of, as ` of models`."""
    if isinstance(given, str | Mapping) or not isinstance(cast(object, given), Iterable):
        raise DefinitionError(f"{name} must be a list{items}, not {given!r:.80}")
    return tuple(given)


def check_descriptions(name: str, given: Mapping[str, str], what: str = "name") -> dict[str, str]:
    """Names with what each means, which is empty where it is not said."""
    refuse_other_kind(given, Mapping, f"{name} are a mapping, as {{{what}: description}}", DefinitionError)
    for key, text in given.items():
        refuse_other_kind(key, str, f"{name}: a {what} is text", DefinitionError)
        if not key or key != key.strip():
            raise DefinitionError(f"{name}: a {what} must be text without spaces around it, not {key!r}")
        refuse_other_kind(text, (str, NoneType), f"{name}: the description of {key!r} is text", DefinitionError)
    return {key: text or "" for key, text in given.items()}
