"""Reads the arguments of filters and tests: the right kind, or an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flowengine.core.templating.access import Missing, describe_kind, read_attribute, read_item
from flowengine.core.templating.limits import Meter
from flowengine.errors import TemplateError

_LONGEST_PATH: Final = 200

Reader = Callable[[Meter, Any], Any]


def check_number(value: Any, what: str) -> int | float:
    """A number, or an error that names the argument."""
    if isinstance(value, Missing):
        raise value.error()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TemplateError(f"{what} must be a number, not {describe_kind(value)}")
    return value


def check_integer(value: Any, what: str, least: int = 0, most: int = 1_000_000) -> int:
    """A whole number between two bounds."""
    if isinstance(value, Missing):
        raise value.error()
    if type(value) is not int:
        raise TemplateError(f"{what} must be a whole number, not {describe_kind(value)}")
    if not least <= value <= most:
        raise TemplateError(f"{what} must be between {least} and {most:,}")
    return value


def attribute_name(path: Any) -> str:
    """The text of an `attribute=…` argument; a long one would be read again for every item."""
    if not isinstance(path, str):
        raise TemplateError(f"attribute must be a name, not {describe_kind(path)}")
    if len(path) > _LONGEST_PATH:
        raise TemplateError(f"attribute is a path of more than {_LONGEST_PATH} characters")
    return path.strip()


def field_reader(path: Any, *, optional: bool = False) -> Reader:
    """Reads a field by its dotted path (`"author.name"`, `"0.title"`) or an item by its position.

    Every part of the path is paid for in every value. With `optional`, no path reads the value itself.

    >>> field_reader("author.name")(Meter(), {"author": {"name": "Ada"}})
    'Ada'
    """
    if path is None and optional:
        return lambda meter, value: value
    if type(path) is int:
        steps, text = [path], f"item {path}"
    else:
        text = attribute_name(path)
        steps = [int(step) if _is_position(step) else step for step in text.split(".")]

    def read(meter: Meter, value: Any) -> Any:
        meter.spend(len(steps))
        for step in steps:
            value = read_attribute(value, step, text) if type(step) is str else read_item(value, step, text)
        return value

    return read


def _is_position(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) < 10
