"""Finds where the keys of a TOML text stand, which its parser does not tell.

The text is one that the parser took; it is scanned once, for keys alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, TypeAlias

TomlPath: TypeAlias = tuple[str, ...]
"""Keys from the outside in. Items of lists are `item(0)`, `item(1)`, …; keys in them are also found without these."""


class TellProblem(Protocol):
    """Takes what is wrong, the hint that goes with it, and the key that it is about."""

    def __call__(self, message: str, hint: str = "", path: TomlPath = ()) -> None: ...


def item(number: int) -> str:
    """The part of a path that means an item of a list, counted from 0."""
    return f"[{number}]"


_ITEM: Final = re.compile(r"\[\d+\]")
_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY: Final = re.compile(r"""(?P<bare>[A-Za-z0-9_-]+)|"(?P<quoted>(?:[^"\\\n]|\\.)*)"|'(?P<literal>[^'\n]*)'""")
_DOT: Final = re.compile(r"[ \t]*\.[ \t]*")
_EQUALS: Final = re.compile(r"[ \t]*=[ \t]*")
_TEXT: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN: Final = re.compile(r"[^,\]}\n#]*")


def find_key_positions(text: str) -> Mapping[TomlPath, tuple[int, int]]:
    """Key → line and column, from 1; of a table its header's, or that of the first key in it.

    >>> find_key_positions('[models.fast]\\nprice = {input = 1, output = 2}')
    {('models',): (1, 2), ('models', 'fast'): (1, 2), ('models', 'fast', 'price'): (2, 1), \
('models', 'fast', 'price', 'input'): (2, 10), ('models', 'fast', 'price', 'output'): (2, 21)}
    """
    positions: dict[TomlPath, tuple[int, int]] = {}
    for path, at in _Scan(text).list_keys():
        place = (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        for each in dict.fromkeys((path, tuple(part for part in path if not _ITEM.fullmatch(part)))):
            for length in range(1, len(each) + 1):
                positions.setdefault(each[:length], place)
    return positions


def nearest_position(positions: Mapping[TomlPath, tuple[int, int]], path: TomlPath) -> tuple[int, int] | None:
    """Returns the position of a key, or of the table around it."""
    for length in range(len(path), 0, -1):
        if path[:length] in positions:
            return positions[path[:length]]
    return None


def _inside_items(header: TomlPath, counts: dict[TomlPath, int], is_item: bool) -> TomlPath:
    """The path of a table's header, through the last items of the lists that it lies in; `counts`: of each list."""
    path: TomlPath = ()
    for number, part in enumerate(header):
        path = (*path, part)
        if is_item and number == len(header) - 1:
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, item(counts[path] - 1))
    return path


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text
        self._at = 0

    def list_keys(self) -> Iterator[tuple[TomlPath, int]]:
        """Every key with the offset of its first part; keys of the same table come in their order."""
        table: TomlPath = ()
        counts: dict[TomlPath, int] = {}
        while self._skip(_SPACE) and self._at < len(self._text):
            if self._text[self._at] == "[":
                is_item = self._text.startswith("[[", self._at)
                self._at += 2 if is_item else 1
                self._skip(_SPACE)
                at = self._at
                table = _inside_items(self._key(), counts, is_item)
                self._at = self._text.find("]", self._at) % (len(self._text) + 1)
                while self._text.startswith("]", self._at):
                    self._at += 1
                yield table, at
            else:
                yield from self._pair(table)

    def _pair(self, table: TomlPath) -> Iterator[tuple[TomlPath, int]]:
        at = self._at
        path = (*table, *self._key())
        yield path, at
        self._skip(_EQUALS)
        yield from self._value(path)
        if self._at == at:
            self._at += 1  # Nothing that is known: go on, whatever it is.

    def _key(self) -> TomlPath:
        parts: list[str] = []
        while (match := _KEY.match(self._text, self._at)) is not None:
            parts.append(next(each for each in match.groups() if each is not None))
            self._at = match.end()
            if not self._skip(_DOT):
                break
        return tuple(parts)

    def _value(self, path: TomlPath) -> Iterator[tuple[TomlPath, int]]:
        if self._skip(_TEXT):
            return
        opening = self._text[self._at : self._at + 1]
        if opening not in ("[", "{"):
            self._skip(_PLAIN)
            return
        closing, number = "]" if opening == "[" else "}", 0
        self._at += 1
        while self._at < len(self._text):
            self._skip(_SPACE)
            if self._text.startswith(",", self._at):
                self._at += 1
            elif self._text.startswith(closing, self._at):
                self._at += 1
                return
            else:
                before = self._at
                yield from self._pair(path) if opening == "{" else self._value((*path, item(number)))
                number += 1
                if self._at == before:
                    self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        """Tells whether the pattern is there; it is left behind."""
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match is not None
