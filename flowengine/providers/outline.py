"""The definitions of a source file, with their lines: the units in which code is ranked and shown.

It knows lines and names. How a language is read is known in `outline_python` and `outline_lines`; files, indexes
and prompts are not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

__all__ = ["Definition", "Lines", "language_of", "own_lines"]

Lines = Sequence[str]


class Definition(NamedTuple):
    """A function, a class, a section; or what of a file is outside of them, which has no name."""

    name: str
    """Qualified within its file: `Cart.total`."""
    start: int
    """Its first line, counted from 1."""
    end: int
    """Its last line."""
    holes: tuple[tuple[int, int], ...] = ()
    """Lines inside of it that belong to definitions of their own."""


def own_lines(definition: Definition, lines: Lines) -> list[tuple[int, str]]:
    """(number, text) of the lines that are a definition's own.

    >>> own_lines(Definition("Cart", 1, 4, ((3, 3),)), ["class Cart:", " def total(self):", "  return 1", " x = 2"])
    [(1, 'class Cart:'), (2, ' def total(self):'), (4, ' x = 2')]
    """
    found: list[tuple[int, str]] = []
    at = definition.start
    for first, last in (*definition.holes, (definition.end + 1, definition.end + 1)):
        found += [(number, lines[number - 1]) for number in range(at, first)]
        at = max(at, last + 1)
    return found


def language_of(path: str) -> str:
    """How a file's language is called where code is quoted: by its ending, in lower case.

    >>> language_of("src/app.PY"), language_of("Makefile")
    ('py', '')
    """
    return PurePosixPath(path).suffix.removeprefix(".").lower()
