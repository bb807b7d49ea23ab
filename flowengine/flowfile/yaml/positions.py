"""Finds where things stand in a flow file: paths of values, and characters inside of them, to line and column.

A template's error is known by its line and column in the text that YAML made of the file. How that
text came about (a block, folded lines, quotes with escapes) is replayed here, once for a text that has
an error in it, and never for one that has none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from flowengine.flowfile.yaml.parser import Place

KeyPath: TypeAlias = tuple[str | int, ...]


@dataclass(slots=True, eq=False)
class SourceText:
    """A file's text, its path as the user gave it, and the place of every value."""

    text: str
    path: Path | None
    place: Place | None
    texts: Mapping[Path, str] = field(default_factory=dict[Path, str], init=False)
    """The files that texts of it were taken from: path as it is shown → text."""
    _file_by_place: Mapping[KeyPath, Path] = field(default_factory=dict["KeyPath", Path], init=False)
    _origins: dict[int, list[int]] = field(default_factory=dict[int, "list[int]"], init=False)
    _lines: list[int] = field(default_factory=list[int], init=False)

    def take(self, texts: Mapping[Path, str], places: Mapping[KeyPath, Path]) -> None:
        """Know which values are texts of other files."""
        self.texts, self._file_by_place = texts, places

    def file_of(self, path: KeyPath) -> Path | None:
        """The file that the characters of a text stand in."""
        return self._file_by_place.get(path, self.path)

    def find(self, path: str | KeyPath) -> Place | None:
        """The place of the value at a path, or of the nearest part round it."""
        parts = tuple(path.split(".")) if isinstance(path, str) else path
        at = self.place
        for part in parts:
            inner = _child(at, part)
            if inner is None:
                break
            at = inner
        return at

    def call(self, path: KeyPath, name: str) -> None:
        """Gives the value at a path a second name, under which it is found from here on."""
        holder, place = self.find(path[:-1]), self.find(path)
        if holder is not None and place is not None and isinstance(holder.children, dict):
            holder.children.setdefault(name, place)

    def position(self, path: str | KeyPath) -> tuple[int, int]:
        """Line and column of a value."""
        place = self.find(path)
        return (1, 1) if place is None else (place.line, place.column)

    def key_position(self, path: str | KeyPath) -> tuple[int, int]:
        """Line and column of a value's key; of the value where it has none."""
        place = self.find(path)
        if place is None:
            return 1, 1
        return place.key or (place.line, place.column)

    def inside(self, path: str | KeyPath, text: str, line: int, column: int) -> tuple[int, int]:
        """Line and column, in the file, of a line and column of the text that the value at a path holds."""
        if path in self._file_by_place:
            return line, column
        place = self.find(path)
        if place is None:
            return 1, 1
        if place.style is None and "\n" not in text and place.end - place.start == len(text):
            return place.line, place.column + min(column - 1, len(text)) if line == 1 else place.column
        offsets = self._origins.get(place.start)
        if offsets is None:
            offsets = self._origins[place.start] = origins(self.text, place, text)
        if not offsets:
            return place.line, place.column
        return self._at(offsets[min(_offset(text, line, column), len(offsets) - 1)])

    def _at(self, offset: int) -> tuple[int, int]:
        if not self._lines:
            self._lines = [0, *(at + 1 for at, char in enumerate(self.text) if char == "\n")]
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1


def _child(place: Place | None, part: str | int) -> Place | None:
    if place is None or place.children is None:
        return None
    if isinstance(place.children, dict):
        return place.children.get(str(part))
    if isinstance(part, str):
        if not part.isdecimal():
            return None
        part = int(part)
    return place.children[part] if part < len(place.children) else None


def _offset(text: str, line: int, column: int) -> int:
    start = 0
    for _ in range(line - 1):
        line_end = text.find("\n", start)
        if line_end < 0:
            return len(text)
        start = line_end + 1
    return min(start + column - 1, len(text))


def origins(source: str, place: Place, text: str) -> list[int]:
    """Returns the source offset of each character of a scalar's text, and of its end.

    Empty where the replay does not arrive at the text (then the scalar's start has to do).
    """
    if place.style in ("|", ">"):
        return _block(source, place, text)
    return _flow(source, place, text)


def _block(source: str, place: Place, text: str) -> list[int]:
    """Blocks: each line of the source is a run of the text; between two runs there are blanks and breaks."""
    offsets: list[int] = []
    at = source.find("\n", place.start) + 1
    indent: int | None = None
    end = 0
    while 0 < at < place.end and end < len(text):
        stop = source.find("\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop].rstrip("\r")
        if line.strip(" "):
            if indent is None:
                indent = _indent(line, text)
            content = line[indent:]
            start = end
            while not text.startswith(content, start) and text[start : start + 1] in (" ", "\n"):
                start += 1
            if not text.startswith(content, start):
                return []
            offsets += [at] * (start - end)
            offsets += range(at + indent, at + indent + len(content))
            end = start + len(content)
        at = stop + 1
    offsets += [offsets[-1] + 1 if offsets else place.start] * (len(text) + 1 - len(offsets))
    return offsets


def _indent(line: str, text: str) -> int:
    """A block's indentation: what its first line that is not blank has more than the text's."""
    first = text.lstrip("\n").split("\n", 1)[0]
    bare = line.lstrip(" ")
    return len(line) - len(bare) - (len(first) - len(first.lstrip(" ")))


_LENGTHS: Final = {"x": 4, "u": 6, "U": 10}


def _flow(source: str, place: Place, text: str) -> list[int]:
    """Plain and quoted texts: escapes are one character, a run of blanks with breaks in it is folded."""
    offsets: list[int] = []
    is_quoted = place.style in ("'", '"')
    at, end = (place.start + 1, place.end - 1) if is_quoted else (place.start, place.end)
    while at < end and len(offsets) < len(text):
        char = source[at]
        if char == "\\" and place.style == '"':
            at = _escape(source, at, offsets)
        elif char in " \t\r\n":
            at = _blanks(source, at, end, offsets)
        else:
            offsets.append(at)
            at += 2 if place.style == "'" and char == "'" else 1
    if len(offsets) != len(text):
        return []
    return [*offsets, end]


def _escape(source: str, at: int, offsets: list[int]) -> int:
    after = source[at + 1]
    if after in "\r\n":
        at += 2 if source[at + 1 : at + 3] != "\r\n" else 3
        while source[at] in " \t\r\n":
            offsets += [at] if source[at] == "\n" else []
            at += 1
        return at
    offsets.append(at)
    return at + _LENGTHS.get(after, 2)


def _blanks(source: str, at: int, end: int, offsets: list[int]) -> int:
    stop = at
    while stop < end and source[stop] in " \t\r\n":
        stop += 1
    breaks = source.count("\n", at, stop)
    offsets += [at] * max(1, breaks - 1) if breaks else range(at, stop)
    return stop
