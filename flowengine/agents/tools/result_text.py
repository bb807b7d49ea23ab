"""Writes any value as text of bounded length, for a model to read.

Bounded before it is converted: of a list of millions only the first items are looked at, and what was
left out is said. Nothing here calls the `__str__`, `__repr__` or `__iter__` of a value's own class, so a
foreign object can neither fail nor flood; it is named by its type instead. (An error's own message is
the one exception: it is asked for, guarded, and cut.)
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MemberDescriptorType
from typing import Any, Final, cast
from uuid import UUID

from pydantic import BaseModel

from flowengine.core import ForeignExitError

MAX_TEXT: Final = 32_000
"""Characters of a result that a model sees; some 8,000 tokens of English."""

_MAX_DEPTH: Final = 20
_MAX_ERRORS: Final = 10
_MAX_BITS: Final = 4_096
_BINARY: Final[tuple[Any, ...]] = (bytes, bytearray, memoryview)


def cut(text: str, limit: int = MAX_TEXT) -> str:
    """The text, or its beginning and a note of how much was left out.

    >>> cut("abcdefgh", 3)
    'abc\\n[cut: 5 of 8 characters left out]'
    """
    size = str.__len__(text)
    if size <= limit:
        return _safe_beginning(text, limit)
    return f"{_safe_beginning(text, limit)}\n[cut: {size - limit:,} of {size:,} characters left out]"


def _safe_beginning(text: str, limit: int) -> str:
    """The beginning as a plain `str` that UTF-8 can hold, whatever subclass it was."""
    part = str.__getitem__(text, slice(0, limit))
    return part if part.isascii() else part.encode("utf-8", "replace").decode()


def text_of(value: Any, limit: int = MAX_TEXT) -> str:
    """Text as it is, structures as JSON, everything else said plainly.

    >>> text_of({"city": "Oslo", "degrees": [3, 4]})
    '{"city": "Oslo", "degrees": [3, 4]}'
    >>> text_of(b"123")
    '[binary data: 3 bytes]'
    >>> print(text_of(list(range(1000)), 20))
    [0, 1, 2, 3, "[996 more items left out]"]
    """
    if isinstance(value, str):
        return cut(value, limit)
    if value is None:
        return "[no value]"
    shape = _Outline(limit).of(value, 0)
    # Notes, punctuation and escapes come on top of what was counted.
    return shape if isinstance(shape, str) else cut(json.dumps(shape, ensure_ascii=False), 2 * limit + 200)


class _Outline:
    """A value's beginning in JSON's own types; `left` is how many characters may still come."""

    def __init__(self, limit: int) -> None:
        self._room = limit

    def of(self, value: Any, depth: int) -> Any:
        self._room -= 2
        plain = self._scalar(value)
        if plain is not None or value is None:
            return plain
        if depth >= _MAX_DEPTH:
            return self._text("[nested too deeply]")
        parts = _named_parts(value)
        if parts is not None:
            return self._object(*parts, depth)
        items = _read_sequence(value)
        if items is not None:
            return self._array(*items, depth)
        return self._text(f"[a value of type {_type_name(value)}, which has no text form]")

    def _scalar(self, value: Any) -> Any:
        """Returns the text of a value without parts; None for others."""
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, bool) or value is None:
            self._room -= 4
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return self._whole(value)
        if isinstance(value, float):
            self._room -= 10
            number = float.__add__(value, 0.0)
            return number if number - number == 0 else float.__repr__(number)  # JSON has no NaN and no infinity
        if isinstance(value, _BINARY):
            return self._text(f"[binary data: {memoryview(value).nbytes:,} bytes]")
        return self._text(text) if (text := _standard_text(value)) is not None else None

    def _text(self, value: str) -> str:
        excerpt = cut(value, max(self._room, 0))
        self._room -= len(excerpt) + 2
        return excerpt

    def _whole(self, value: int) -> int | str:
        bits = int.bit_length(value)
        if bits > _MAX_BITS:
            return self._text(f"[a whole number of {bits:,} bits]")
        self._room -= 3 + bits // 3
        return int.__add__(value, 0)

    def _object(self, parts: Iterable[tuple[Any, Any]], size: int, depth: int) -> dict[str, Any]:
        shape: dict[str, Any] = {}
        for count, (key, part) in enumerate(parts):
            if self._room <= 0:
                shape["[cut]"] = f"{size - count:,} more entries left out"
                break
            name = self._key(key)
            shape[name] = self.of(part, depth + 1)
        return shape

    def _key(self, key: Any) -> str:
        name = self._scalar(key)
        if isinstance(name, str):
            return name
        return json.dumps(name) if name is not None or key is None else f"[{_type_name(key)}]"

    def _array(self, parts: Iterable[Any], size: int, depth: int) -> list[Any]:
        shape: list[Any] = []
        for count, part in enumerate(parts):
            if self._room <= 0:
                shape.append(f"[{size - count:,} more items left out]")
                break
            shape.append(self.of(part, depth + 1))
        return shape


_SEQUENCES: Final[tuple[Any, ...]] = (list, tuple, set, frozenset)
_MAPPING: Final[Any] = dict
_TUPLE: Final[Any] = tuple


def _read_sequence(value: Any) -> tuple[Iterable[Any], int] | None:
    """Items and their number, read with the built-in type's own methods."""
    for kind in _SEQUENCES:
        if isinstance(value, kind):
            return kind.__iter__(value), kind.__len__(value)
    return None


def _named_parts(value: Any) -> tuple[Iterable[tuple[Any, Any]], int] | None:
    """Entries and their number, of a dict, a model, a data class or a named tuple."""
    if isinstance(value, _MAPPING):
        return _MAPPING.items(value), _MAPPING.__len__(value)
    kind = cast("type[Any]", type(value))
    if issubclass(kind, BaseModel):
        extra: dict[str, Any] = _stored_attribute(value, "__pydantic_extra__") or {}
        names = (*kind.model_fields, *extra)
        return ((name, extra[name] if name in extra else _stored_attribute(value, name)) for name in names), len(names)
    if is_dataclass(kind):
        names = tuple(each.name for each in fields(kind))
        return ((name, _stored_attribute(value, name)) for name in names), len(names)
    parts: Any = getattr(kind, "_fields", None)
    if issubclass(kind, _TUPLE) and isinstance(parts, _TUPLE):
        return zip(parts, _TUPLE.__iter__(value), strict=False), _TUPLE.__len__(parts)
    return None


def _stored_attribute(value: Any, name: str) -> Any:
    """The attribute as it is stored; a property is not run."""
    attribute = inspect.getattr_static(value, name, None)
    return attribute.__get__(value) if isinstance(attribute, MemberDescriptorType) else attribute


def _standard_text(value: Any) -> str | None:
    """Returns the text of the standard library's own types, which is short; their subclasses are not trusted."""
    kind = cast("type[Any]", type(value))
    if kind in (datetime, date, time):
        return value.isoformat()
    return str(value) if kind in (timedelta, Decimal, UUID) or kind in _PATHS else None


_PATHS: Final = frozenset({type(Path()), PurePosixPath, PureWindowsPath})


def _type_name(value: Any) -> str:
    return cut(type.__dict__["__qualname__"].__get__(type(value)), 100)


def error_text(error: BaseException, limit: int = 2_000) -> str:
    """Formats an exception's type and message, shortened.

    >>> error_text(ValueError("no such city"))
    'ValueError: no such city'
    """
    if isinstance(error, ForeignExitError) and error.__cause__ is not None:
        return error_text(error.__cause__, limit)
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return "; ".join(error_text(each, limit // _MAX_ERRORS) for each in inner[:_MAX_ERRORS])
    message = _message(error, limit).strip()
    return f"{_type_name(error)}: {message}" if message else _type_name(error)


def _message(error: BaseException, limit: int) -> str:
    if type(error).__str__ is BaseException.__str__:  # arguments may be of any size: never their repr
        values = error.args
        return text_of(values[0] if len(values) == 1 else values, limit) if values else ""
    try:
        return cut(str(error), limit)
    except Exception:
        return ""
