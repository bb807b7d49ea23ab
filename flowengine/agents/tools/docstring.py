"""Reads from a docstring what it says about a function and its parameters.

Reads the three styles in use (Google, Sphinx, NumPy) as far as parameter descriptions go, and makes no
sense of anything else: an unknown style gives the whole text as the description, and no parameters.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

_GOOGLE: Final = re.compile(r"(?:Args|Arguments|Parameters|Keyword Args|Keyword Arguments):$")
_OTHER: Final = re.compile(
    r"(?:Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|Warns|See Also|References|Attributes|Todo):$"
)
_GOOGLE_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_FIELD: Final = re.compile(r":(\w+)([^:]*):\s*(.*)")
_PARAMETER_FIELDS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_UNDERLINE: Final = re.compile(r"-{3,}$")
_NUMPY_ENTRY: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")


class Docstring(NamedTuple):
    description: str
    """Everything before the first section."""
    parameters: dict[str, str]
    """Name → description, on one line."""


def parse(text: str | None) -> Docstring:
    """The parts of a docstring.

    >>> parse('''Find a city.
    ...
    ...     Args:
    ...         name (str): What it is called,
    ...             in any language.
    ... ''')
    Docstring(description='Find a city.', parameters={'name': 'What it is called, in any language.'})
    """
    lines = inspect.cleandoc(text or "").splitlines()
    start = next((at for at in range(len(lines)) if _section(lines, at)), len(lines))
    entries = [entry for at in range(start, len(lines)) for entry in _entries(lines, at)]
    descriptions: dict[str, str] = {}
    for name, description in entries:
        descriptions.setdefault(name, description)
    return Docstring("\n".join(lines[:start]).strip(), descriptions)


def _section(lines: list[str], at: int) -> bool:
    """Tells whether a section begins in this line."""
    line = lines[at]
    return bool(_GOOGLE.match(line) or _OTHER.match(line) or _FIELD.match(line) or _is_underlined(lines, at))


def _is_underlined(lines: list[str], at: int) -> bool:
    return bool(lines[at].strip()) and at + 1 < len(lines) and bool(_UNDERLINE.match(lines[at + 1]))


def _entries(lines: list[str], at: int) -> Iterator[tuple[str, str]]:
    """The parameters that the section beginning in this line describes."""
    line = lines[at]
    if _GOOGLE.match(line):
        yield from _google(_body(lines[at + 1 :]))
    elif (match := _FIELD.match(line)) and match[1] in _PARAMETER_FIELDS and match[2].split():
        yield match[2].split()[-1].lstrip("*"), _join_lines([match[3], *_body(lines[at + 1 :])])
    elif line.strip().lower() in {"parameters", "other parameters"} and _is_underlined(lines, at):
        yield from _numpy(_until_underlined(lines, at + 2))


def _body(lines: Iterable[str]) -> list[str]:
    """The indented lines that follow."""
    body: list[str] = []
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        body.append(line)
    return body


def _google(body: list[str]) -> Iterator[tuple[str, str]]:
    for head, rest in _blocks(body):
        if match := _GOOGLE_ENTRY.match(head):
            yield match[1], _join_lines([match[2], *rest])


def _numpy(body: list[str]) -> Iterator[tuple[str, str]]:
    for head, rest in _blocks(body):
        if match := _NUMPY_ENTRY.match(head):
            for name in match[1].split(","):
                yield name.strip().lstrip("*"), _join_lines(rest)


def _until_underlined(lines: list[str], start: int) -> list[str]:
    end = next((at for at in range(start, len(lines)) if _is_underlined(lines, at)), len(lines))
    return lines[start:end]


def _blocks(body: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each least indented line with the deeper ones below it."""
    lines = inspect.cleandoc("\n" + "\n".join(body)).splitlines()
    heads = [at for at, line in enumerate(lines) if line.strip() and not line[0].isspace()]
    for at, end in pairwise([*heads, len(lines)]):
        yield lines[at].strip(), lines[at + 1 : end]


def _join_lines(lines: Iterable[str]) -> str:
    return " ".join(part for line in lines if (part := line.strip()))
