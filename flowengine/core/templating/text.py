"""Prints values as text: what `{{ x }}` prints, and JSON.

Text prints as it is. Everything else prints as JSON: `null`, `true`, `1.5`, `["a", 1]`, non-ASCII kept; so
a list or an object in a prompt is something that a model can read back. A `LLMResult`, `RoutingResult` or
`EvaluationResult` prints as its content. The size is counted while writing, so a small value that prints
as a huge one (a list shared many times) stops early. No object's own `__str__` is ever called.
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from json.encoder import encode_basestring
from typing import Any, Final
from uuid import UUID

from flowengine.core.context import EvaluationResult, LLMResult, RoutingResult
from flowengine.core.templating.access import Missing, describe_kind, shape_of
from flowengine.core.templating.limits import MAX_INT_BITS, MAX_TEXT, MAX_VALUE_DEPTH, Meter
from flowengine.errors import TemplateError

_RESULTS: Final = (LLMResult, RoutingResult, EvaluationResult)
_A_CALL: Final = 4
"""Steps that printing a value as JSON takes beside those of its parts."""
_WORDS: Final[dict[Any, str]] = {None: "null", True: "true", False: "false"}


def to_text(meter: Meter, value: Any) -> str:
    """The value as `{{ value }}` prints it.

    >>> to_text(Meter(), ["a", 1, True, None])
    '["a", 1, true, null]'
    """
    if type(value) is str:
        return value
    if type(value) is int or type(value) is float:
        return _number(value)
    if value is None or value is True or value is False:
        return _WORDS[value]
    if isinstance(value, _RESULTS):
        return to_text(meter, _content(value))
    kind = shape_of(type(value)).kind
    if kind == "enum":
        return to_text(meter, enum_value(value))
    if kind == "string":
        return str.__str__(value)
    if kind == "scalar":
        return _scalar(value)
    return to_json(meter, value, lenient=True)


def to_json(meter: Meter, value: Any, indent: int | None = None, lenient: bool = False) -> str:
    """The value as JSON; `lenient` also writes NaN and infinities."""
    meter.spend(_A_CALL)
    writer = _Writer(meter, MAX_TEXT, indent, lenient)
    writer.write(value, 0)
    meter.text(MAX_TEXT - writer.room)
    return "".join(writer.parts)


def excerpt(value: Any, size: int = 60) -> str:
    """The start of a value as JSON, for messages; never fails."""
    writer = _Writer(Meter(), size, None, lenient=True)
    try:
        writer.write(value, 0)
    except TemplateError:
        return f"{''.join(writer.parts)[: size - 1]}…"
    return "".join(writer.parts)


def enum_value(value: Enum) -> Any:
    """The value of an enum's member, read without its properties."""
    return object.__getattribute__(value, "_value_")


def _content(value: Any) -> Any:
    """The content of a result; a result inside a result is looked through once a level."""
    for _ in range(MAX_VALUE_DEPTH):
        value = value.content
        if not isinstance(value, _RESULTS):
            return value
    raise TemplateError(f"results are nested more than {MAX_VALUE_DEPTH} deep")


def _scalar(value: Any) -> str:
    if isinstance(value, datetime):
        return datetime.isoformat(value)
    if isinstance(value, date):
        return date.isoformat(value)
    if isinstance(value, time):
        return time.isoformat(value)
    if isinstance(value, UUID):
        return UUID.__str__(value)
    return Decimal.__str__(value)


def _number(value: int | float) -> str:
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text := float.__repr__(value), text)
    if value.bit_length() > MAX_INT_BITS:
        raise TemplateError(f"an integer of more than {MAX_INT_BITS:,} bits cannot be printed")
    return int.__repr__(value)


class _Writer:
    """Writes JSON into parts and stops where the room ends."""

    def __init__(self, meter: Meter, room: int, indent: int | None, lenient: bool) -> None:
        self.meter = meter
        self.room = room
        self.indent = indent
        self.lenient = lenient
        self.parts: list[str] = []

    def add(self, piece: str) -> None:
        self.parts.append(piece)
        self.room -= len(piece)
        if self.room < 0:
            raise TemplateError(f"the value prints as more than {MAX_TEXT:,} characters")

    def write(self, value: Any, depth: int) -> None:
        self.meter.spend(1)
        if value is None or value is True or value is False:
            self.add(_WORDS[value])
            return
        if depth > MAX_VALUE_DEPTH:
            raise TemplateError(f"a value nested more than {MAX_VALUE_DEPTH} deep cannot be printed")
        getattr(self, "_" + shape_of(type(value)).kind)(value, depth)

    def _string(self, value: str, depth: int) -> None:
        if len(value) > self.room:
            self.parts.append(encode_basestring(value[: self.room]))
            self.room = -1
            raise TemplateError(f"the value prints as more than {MAX_TEXT:,} characters")
        self.add(encode_basestring(value))

    def _number(self, value: int | float, depth: int) -> None:
        text = _number(value)
        if not self.lenient and text in ("NaN", "Infinity", "-Infinity"):
            raise TemplateError(f"JSON has no {text}")
        self.add(text)

    def _scalar(self, value: Any, depth: int) -> None:
        self.add(encode_basestring(_scalar(value)))

    def _enum(self, value: Enum, depth: int) -> None:
        self.write(enum_value(value), depth + 1)

    def _list(self, value: Any, depth: int) -> None:
        self.add("[")
        for at, each in enumerate(value):
            self._separate(at, depth + 1)
            self.write(each, depth + 1)
        self._close("]", len(value), depth)

    def _mapping(self, value: Any, depth: int) -> None:
        self.add("{")
        for at, key in enumerate(value):
            self._pair(at, self._key(key), value[key], depth + 1)
        self._close("}", len(value), depth)

    def _object(self, value: Any, depth: int) -> None:
        shape = shape_of(type(value))
        self.add("{")
        for at, name in enumerate(shape.fields):
            self._pair(at, name, shape.read(value, name), depth + 1)
        self._close("}", len(shape.fields), depth)

    def _missing(self, value: Missing, depth: int) -> None:
        raise value.error()

    def _other(self, value: Any, depth: int) -> None:
        raise TemplateError(
            f"{describe_kind(value)} cannot be printed: it is neither text, a number, a list nor an object"
        )

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return str.__str__(key)
        if isinstance(key, bool) or key is None:
            return _WORDS[key]
        if isinstance(key, (int, float)):
            return _number(key)
        raise TemplateError(f"{describe_kind(key)} cannot be a key in JSON")

    def _pair(self, at: int, key: str, value: Any, depth: int) -> None:
        self._separate(at, depth)
        self._string(key, depth)
        self.add(": ")
        self.write(value, depth)

    def _separate(self, at: int, depth: int) -> None:
        if self.indent is None:
            if at:
                self.add(", ")
        else:
            self.add(f"{',' if at else ''}\n{' ' * (self.indent * depth)}")

    def _close(self, bracket: str, count: int, depth: int) -> None:
        if count and self.indent is not None:
            self.add(f"\n{' ' * (self.indent * depth)}")
        self.add(bracket)
