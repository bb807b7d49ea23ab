"""Parses YAML 1.2, core schema only: text to plain values, with the place of every key and value.

It reads the events of PyYAML's parser and resolves scalars itself, so that `on` is a string, `010`
is ten, and nothing is ever a date. Duplicate keys, tags, keys that are no strings, several documents,
recursive and exploding aliases and deep nesting are refused, as many of them in one pass as can be.
It knows nothing of flows.

Source of the rules: rule 16 of the flow format; chapter 10.3 of YAML 1.2.2 (the core schema).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isinf
from typing import Any, Final, NamedTuple, cast

import yaml

from flowengine.errors import Diagnostic

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000
"""Values of a file once its aliases are written out; a text counts one more for every 100 characters."""
MAX_DIGITS: Final = 300


class Place(NamedTuple):
    """A value's position in the text. Lines and columns count from 1, offsets from 0."""

    line: int
    column: int
    start: int
    end: int
    style: str | None = None
    """A scalar's quoting: `|`, `>`, `'`, `"`, or None where it is plain or no scalar."""
    children: dict[str, Place] | list[Place] | None = None
    key: tuple[int, int] | None = None
    """Line and column of the key that this value belongs to."""


class ParsedYaml(NamedTuple):
    """A parsed text. `problems` are sorted by position; after a fatal one there is no `place`."""

    data: Any
    place: Place | None
    problems: list[Diagnostic]


def decode(raw: bytes, file: str | None = None, limit: int = MAX_BYTES) -> str | Diagnostic:
    """The text of a file's bytes, or why it is none."""
    if len(raw) > limit:
        return Diagnostic("FE102", f"the file has {len(raw):,} bytes; it may have {limit:,}", file, 1, 1)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = len(raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        return Diagnostic("FE103", f"not UTF-8: byte 0x{raw[error.start]:02x}", file, line, column)


def parse_yaml(text: str, file: str | None = None) -> ParsedYaml:
    """The one document of a text.

    >>> parse_yaml("on: [yes, 010, 2024-01-01, 0x1F, 1e3, ~]").data
    {'on': ['yes', 10, '2024-01-01', 31, 1000.0, None]}
    """
    reader = _Reader(text, file)
    try:
        data, place = reader.document()
    except _RefusedError:
        data, place = None, None
    except yaml.YAMLError as error:
        reader.problems.append(_syntax(error, text, file))
        data, place = None, None
    reader.problems.sort(key=lambda each: (each.line or 0, each.column or 0))
    return ParsedYaml(data, place, reader.problems)


def refuse_characters(text: str, file: str | None) -> Diagnostic | None:
    """Reports the first character that is not allowed in a file; None if there is none."""
    match = re.search(_FORBIDDEN_IN_ASCII if text.isascii() else _FORBIDDEN, text)
    if match is None:
        return None
    before = text[: match.start()]
    line, column = before.count("\n") + 1, match.start() - before.rfind("\n")
    return Diagnostic("FE114", f"the character U+{ord(match[0]):04X} may not stand here", file, line, column)


class _RefusedError(Exception):
    """A problem after which reading on makes no sense; it is on the list already."""


class _Anchor(NamedTuple):
    data: Any
    place: Place
    size: int


class _Reader:
    """One pass over the parser's events."""

    def __init__(self, text: str, file: str | None) -> None:
        self.problems: list[Diagnostic] = []
        self._text = text
        self._file = file
        self._anchors: dict[str, _Anchor | None] = {}
        self._size = 0
        self._events: Iterator[Any] = iter(())

    def document(self) -> tuple[Any, Place]:
        self._check_characters()
        self._events = cast("Iterator[Any]", yaml.parse(self._text, Loader=_LOADER))  # pyright: ignore[reportUnknownMemberType] -- PyYAML has no types here
        next(self._events)
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            raise self._refuse("FE105", "the file is empty", 1, 1)
        if start.tags or start.version not in (None, (1, 2)):
            raise self._refuse("FE104", "directives other than '%YAML 1.2' are not used here", 1, 1)
        data, place = self._value(next(self._events), 0)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._note("FE106", "a second document begins here; a file holds one flow", after.start_mark)
        elif data is None:
            raise self._refuse("FE105", "the file is empty", 1, 1)
        return data, place

    def _check_characters(self) -> None:
        diagnostic = refuse_characters(self._text, self._file)
        if diagnostic is not None:
            self.problems.append(diagnostic)
            raise _RefusedError

    def _value(self, event: Any, depth: int) -> tuple[Any, Place]:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        mark = event.start_mark
        if depth > MAX_DEPTH:
            raise self._refuse("FE113", f"nested deeper than {MAX_DEPTH}", mark.line + 1, mark.column + 1)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._note("FE108", f"the tag '{tag}' is not part of the format", mark)
        before = self._size
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            data, place = self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            data, place = self._mapping(mark, depth)
        else:
            data, place = self._sequence(mark, depth)
        if anchor is not None:
            self._anchors[anchor] = _Anchor(data, place, self._size - before)
        return data, place

    def _alias(self, event: Any) -> tuple[Any, Place]:
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        if event.anchor not in self._anchors:
            raise self._refuse("FE116", f"no anchor '&{event.anchor}' stands before this alias", line, column)
        anchor = self._anchors[event.anchor]
        if anchor is None:
            raise self._refuse("FE111", f"the alias '*{event.anchor}' stands inside its own anchor", line, column)
        self._count(anchor.size, mark)
        return anchor.data, anchor.place

    def _count(self, size: int, mark: Any) -> None:
        self._size += size
        if self._size > MAX_VALUES:
            text = f"with its aliases written out the file holds more than {MAX_VALUES:,} values"
            raise self._refuse("FE112", text, mark.line + 1, mark.column + 1)

    def _scalar(self, event: Any) -> tuple[Any, Place]:
        start, end = event.start_mark, event.end_mark
        text: str = event.value
        self._count(1 + len(text) // 100, start)
        place = Place(start.line + 1, start.column + 1, start.index, end.index, event.style or None)
        if not event.implicit[0] or event.style:
            return text, place._replace(style=event.style)
        if len(text) > MAX_DIGITS and _WHOLE.fullmatch(text):
            self._note("FE104", f"a number may have {MAX_DIGITS} digits", start)
            return 0, place
        value = _resolve(text)
        if isinstance(value, float) and isinf(value) and text not in _WORDS:
            self._note("FE104", f"{_short(text)} is beyond all numbers; infinity is written .inf", start)
        return value, place

    def _sequence(self, mark: Any, depth: int) -> tuple[list[Any], Place]:
        self._count(1, mark)
        values: list[Any] = []
        places: list[Place] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                return values, Place(mark.line + 1, mark.column + 1, mark.index, event.end_mark.index, None, places)
            value, place = self._value(event, depth + 1)
            values.append(value)
            places.append(place)
        raise AssertionError("the parser closes what it opens")

    def _mapping(self, mark: Any, depth: int) -> tuple[dict[str, Any], Place]:
        self._count(1, mark)
        values: dict[str, Any] = {}
        places: dict[str, Place] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                return values, Place(mark.line + 1, mark.column + 1, mark.index, event.end_mark.index, None, places)
            key = self._key(event, depth)
            at = event.start_mark
            value, place = self._value(next(self._events), depth + 1)
            if key in values:
                first = places[key].key or (0, 0)
                self._note("FE107", f"the key '{_short(key)}' was given before, in line {first[0]}", at)
                continue
            values[key] = value
            places[key] = place._replace(key=(at.line + 1, at.column + 1))
        raise AssertionError("the parser closes what it opens")

    def _key(self, event: Any, depth: int) -> str:
        key, place = self._value(event, depth + 1)
        if key == "<<" and place.style is None:
            advice = "merge keys are not YAML 1.2: write the keys themselves, or use `defaults` or `agents`"
            self._note("FE201", f"unknown key '<<'; {advice}", event.start_mark)
        if isinstance(key, str):
            return key
        if isinstance(event, yaml.ScalarEvent):
            text = cast(str, cast(Any, event).value)
            advice = f'; write "{_short(text)}" in quotes' if text else ""
            self._note("FE110", f"a key must be a string, found {_kind(key)}{advice}", event.start_mark)
            return text
        advice = ""
        if isinstance(key, dict) and self._text[event.start_mark.index - 1 : event.start_mark.index + 1] == "{{":
            advice = '; write a template in quotes: "{{ … }}"'
        self._note("FE110", f"a key must be a string, found {_kind(key)}{advice}", event.start_mark)
        return f"?{len(self.problems)}"

    def _note(self, code: str, message: str, mark: Any) -> None:
        self.problems.append(Diagnostic(code, message, self._file, mark.line + 1, mark.column + 1))

    def _refuse(self, code: str, message: str, line: int, column: int) -> _RefusedError:
        self.problems.append(Diagnostic(code, message, self._file, line, column))
        return _RefusedError()


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where it is there: ten times as fast."""

_FORBIDDEN: Final = r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
_FORBIDDEN_IN_ASCII: Final = r"[^\t\n\r\x20-\x7e]"
"""The same for files that are ASCII: to compile the one for all characters takes 4 ms."""

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_NUMERIC: Final = frozenset("+-.0123456789")
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+")
_WHOLE: Final = re.compile(f"{_INTEGER.pattern}|{_OCTAL.pattern}|{_HEX.pattern}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def _resolve(text: str) -> Any:
    """A plain scalar's value by the core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    return int(text[2:], 16) if _HEX.fullmatch(text) else text


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {str(value)[:40]}"
    return "a list" if isinstance(value, list) else "a map"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _syntax(error: yaml.YAMLError, text: str, file: str | None) -> Diagnostic:
    """The parser's complaint in our words."""
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
    if "maximum nesting depth" in problem:  # Newer parsers have a bound of their own.
        return Diagnostic("FE113", f"nested deeper than {MAX_DEPTH}", file, line, column)
    if "Unicode character escape" in problem:
        problem += "; write the character itself, not the halves of a surrogate pair (json.dumps(ensure_ascii=False))"
    tab = mark is not None and text[mark.index : mark.index + 1] == "\t"
    if tab or "'\\t'" in problem or "tab character" in problem:
        return Diagnostic("FE109", "a tab stands here; indent with spaces", file, line, column)
    context = str(getattr(error, "context", None) or "")
    if "mapping values are not allowed" in problem and mark is not None and text[mark.index : mark.index + 1] == ":":
        problem += "; write a text that holds ': ' in quotes"
    return Diagnostic("FE104", f"not YAML: {context + ': ' if context else ''}{problem}", file, line, column)
