"""Writes any value of a run in JSON's types: leniently for people and prompts, strictly for what others compute with;
and reads JSON that others wrote.

Sets come in one order in every process, so that what is made of the text (a key, a prompt, a page) is the same wherever
it is made.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final, NoReturn, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from flowengine.core.records import RECORDS
from flowengine.errors import RunError

_RECORDS: Final[frozenset[type[Any]]] = frozenset(RECORDS.values())
_HUGE: Final = 10**4000
"""Python writes no decimal integer of more than 4,300 digits."""


def to_json_value(value: Any) -> Any:
    """The value in JSON's types; what has no such form becomes its text.

    >>> from flowengine.engine.events import NodeStarted
    >>> to_json_value({"a": (1, float("inf")), "b": NodeStarted("draft", 1.5)})
    {'a': [1, 'inf'], 'b': {'type': 'NodeStarted', 'node': 'draft', 'at': 1.5}}
    >>> to_json_value([b"text", b"\\xff", {"b", "a"}])
    ['text', '_w==', ['a', 'b']]
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -_HUGE < value < _HUGE else hex(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return _to_json_map(cast("Mapping[Any, Any]", value))
    if isinstance(value, (list, tuple)):
        return _to_json_sequence(cast("Sequence[Any]", value))
    if isinstance(value, Set):
        return _to_ordered_list(cast("Set[Any]", value))
    if isinstance(value, BaseModel):
        return {name: to_json_value(each) for name, each in value}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_json_value(getattr(value, each.name)) for each in fields(value)}
    try:
        return to_jsonable_python(value, fallback=str)
    except UnicodeDecodeError:  # Bytes that are no text.
        return to_jsonable_python(value, bytes_mode="base64", fallback=str)


_IN_TEXT: Final = re.compile(rb'[^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+', re.DOTALL)
"""The inside of a JSON text: no line ends in one, so none hides what follows."""


MAX_VALUES: Final = 50_000
"""Values that a stranger's message may hold, by `ValueCounter`: each becomes an object of a hundred times its size, and
all that is done with a message costs time for each."""


class ValueCounter:
    """Counts about how many values a JSON text has while its bytes arrive, so that no text of very many is read.

    >>> counter = ValueCounter()
    >>> [counter.feed(each) for each in (b'{"a": [1, "[,', b',', b'", 2], "b": []}')]
    [3, 3, 6]
    """

    def __init__(self) -> None:
        self.count = 0
        """Commas, lists and objects: values are one more at most, and those without any of these inside are free."""
        self._in_text = False
        self._is_escaped = False

    def feed(self, part: bytes) -> int:
        """The count with a further part of the text."""
        at, end = int(self._is_escaped and bool(part)), len(part)
        self._is_escaped = self._is_escaped and not part
        while at < end:
            if self._in_text:
                at = cast("re.Match[bytes]", _IN_TEXT.match(part, at)).end()
                self._is_escaped = at < end and part[at] == _BACKSLASH
                self._in_text = at == end or self._is_escaped
            else:
                before, at = at, part.find(b'"', at)
                at = end if at < 0 else at
                self.count += sum(part.count(each, before, at) for each in (b",", b"[", b"{"))
                self._in_text = at < end
            at += 1
        return self.count


_BACKSLASH: Final = ord("\\")


def to_json_fields(value: tuple[Any, ...], names: Sequence[str]) -> dict[str, Any]:
    """The fields of a named tuple by their names."""
    return {name: to_json_value(each) for name, each in zip(names, value, strict=True)}


def _to_json_map(value: Mapping[Any, Any]) -> dict[str, Any]:
    """The map with texts as keys; one that is the same text as another has its type behind it."""
    entries: dict[str, Any] = {}
    for key, each in value.items():
        name = _to_key(key)
        while not isinstance(key, str) and (name in entries or name in value):
            name = f"{name} ({type(key).__name__})"
        entries[name] = to_json_value(each)
    return entries


def has_keys_alike(value: Any) -> bool:
    """Tells whether a map in a value has keys that JSON cannot keep apart, such as 1 and "1"."""
    if isinstance(value, Mapping):
        rows = cast("Mapping[Any, Any]", value)
        if not all(isinstance(each, str) for each in rows):
            names: Any = to_jsonable_python(dict.fromkeys(rows), fallback=str)
            if len(names) < len(rows):
                return True
        return any(map(has_keys_alike, rows.values()))
    return isinstance(value, (list, tuple)) and any(map(has_keys_alike, cast("Sequence[Any]", value)))


def _to_key(key: Any) -> str:
    return key if isinstance(key, str) else str(to_json_value(key) if isinstance(key, int) else key)


def _to_ordered_list(items: Set[Any]) -> list[Any]:
    plain_items = [to_json_value(each) for each in items]
    return sorted(plain_items, key=lambda each: json.dumps(each, sort_keys=True))


def _to_json_sequence(value: Sequence[Any]) -> Any:
    as_dict = getattr(value, "as_dict", None)
    if as_dict is not None:
        return as_dict()
    names: Sequence[str] | None = getattr(value, "_fields", None)
    if names is None:
        return [to_json_value(each) for each in value]
    typed = {"type": type(value).__name__} if type(value) in _RECORDS else {}
    return typed | to_json_fields(tuple(value), names)


# --- What somebody else computes with


def write_json(value: Any, what: str) -> str:
    """The value as JSON that any reader takes; `RunError`, with `what` it is, where JSON has no such value.

    >>> write_json({"a": (1, 2)}, "the body")
    '{"a": [1, 2]}'
    >>> write_json(float("nan"), "the body")
    Traceback (most recent call last):
    flowengine.errors.RunError: the body cannot be written as JSON: Out of range float values are not JSON compliant...
    """
    with refusing_no_json(what):
        text = json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)
        text.encode()
    return text


@contextmanager
def refusing_no_json(what: str) -> Generator[None]:
    """Whatever goes wrong while JSON is written, as a `RunError`."""
    try:
        yield
        return
    except UnicodeDecodeError:
        reason = "it holds bytes that are no text"
    except UnicodeEncodeError:
        reason = "it holds half a surrogate pair, which is no text"
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0]
    raise RunError(f"{what} cannot be written as JSON: {reason:.300}")


def check_text(text: str, what: str) -> str:
    """The text, where there is an encoding that can carry it; `RunError` where there is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RunError(f"{what} holds half a surrogate pair, which is no text") from None
    return text


# --- What somebody else wrote


def load_json(text: str | bytes) -> Any:
    """Parses JSON strictly; raises `ValueError` for ambiguous texts and `RecursionError` for deep nesting."""
    return json.loads(
        text,
        parse_constant=refuse_constant,
        parse_float=_read_float,
        parse_int=_read_integer,
        object_pairs_hook=_refuse_twins,
    )


def parse_json(text: str) -> Any:
    """The same, of what a person has written: always a `ValueError`.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deep
    """
    try:
        return load_json(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def parse_value(text: str) -> Any:
    """JSON, or else text: as `--set` takes it.

    >>> parse_value("[1]"), parse_value("NaN"), parse_value('{"a": 1, "a": 2}')
    ([1], 'NaN', '{"a": 1, "a": 2}')
    """
    try:
        return parse_json(text)
    except ValueError:
        return text


_MOST_FAILURES: Final = 200
"""Places in one text where JSON may seem to begin and does not, before the search is given up."""


def find_json(text: str, opening: str = "{[") -> Iterator[Any]:
    """Objects and arrays in a text, not those inside others; `opening`: the first letter of those that are looked for.

    >>> list(find_json('Sure! {"a": [1]} It was {easy}, [2].'))
    [{'a': [1]}, [2]]
    """
    begin = re.compile(f"[{re.escape(opening)}]")
    position, failures = 0, 0
    while (start := begin.search(text, position)) and failures < _MOST_FAILURES:
        try:
            value, position = _DECODER.raw_decode(text, start.start())
            yield value
        except (ValueError, RecursionError):
            position = start.end()
            failures += 1


def refuse_constant(name: str) -> NoReturn:
    """For `json.loads(parse_constant=…)`: NaN and Infinity are Python's, and are no JSON."""
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=refuse_constant)


def _read_float(text: str) -> float:
    """A number beyond all floats would be an infinity."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text:.40} is beyond all numbers")
    return value


def _read_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python's own limit, told in words of a setting of Python.
        digits = len(text.lstrip("-"))
        raise ValueError(f"{text:.40}… is an integer of {digits:,} digits, more than any may have") from None


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses a name that stands twice: readers would take one or the other."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        name = Counter(each for each, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{name!r:.80} stands twice in an object")
    return entries


def dumps(value: Any, *, indent: int | None = None) -> str:
    """One JSON text; characters stay as they are."""
    return json.dumps(to_json_value(value), ensure_ascii=False, indent=indent)


def format_value(value: Any) -> str:
    """A value for people: text as it is, anything else as JSON.

    >>> format_value("text"), format_value({"a": [1]})
    ('text', '{"a": [1]}')
    """
    return value if isinstance(value, str) else dumps(value)
