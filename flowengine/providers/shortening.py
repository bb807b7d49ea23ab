"""A text cut down to a number of tokens, where a reader would cut it, with a mark that says so.

It knows texts and tokens. What may be cut, and how far, is the packer's to say.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final
from unicodedata import category

__all__ = ["MARK", "shortened"]

MARK: Final = "[…]"
"""Stands where the rest was; it needs no translation."""

_LINE_ENDS: Final = re.compile(r"\n+")
_SENTENCE_ENDS: Final = re.compile(r"[.!?…]['\")\]’”»]*(?=\s)|[。！？][」』）”’]*")
_WORD_ENDS: Final = re.compile(r"\s+")
_WINDOW: Final = 4000
"""Characters before the cut in which it looks for the end of a sentence, a word or a character."""


def shortened(text: str, most: int, count: Callable[[str], int]) -> str:
    """The beginning of a text and the mark, in at most `most` tokens; empty where not even a character fits.

    Cut at the end of a line or a sentence where that keeps half of what would fit, else between words, else
    between characters as readers see them (a flag, or a letter with its accents, is one).

    >>> def words(text):
    ...     return len(text.split())
    >>> shortened("One short sentence. Another one. A third.", 7, words)
    'One short sentence. Another one. A third.'
    >>> shortened("One short sentence. Another one. A third.", 5, words)
    'One short sentence. […]'
    """
    if count(text) <= most:
        return text
    end = _longest(text, most, count)
    while end > 0:
        end = _boundary(text, end)
        kept = text[:end].rstrip()
        if not kept:
            break
        cut = f"{kept}\n{MARK}" if text[len(kept) : end + 1].startswith("\n") else f"{kept} {MARK}"
        if count(cut) <= most:
            return cut
        end = len(kept) - 1
    return ""


def _longest(text: str, most: int, count: Callable[[str], int]) -> int:
    """About how many characters fit beside the mark. Tokens of a beginning hardly ever shrink as it grows."""
    room = most - count(f" {MARK}")
    if room <= 0:
        return 0
    # A first step by the most that tokens hold keeps long texts from being counted again and again.
    high = min(len(text), room * 200)
    return bisect_right(range(high + 1), room, key=lambda length: count(text[:length])) - 1


def _boundary(text: str, end: int) -> int:
    """The best place to cut at or before `end`."""
    start = max(0, end - _WINDOW)
    window = text[start:end]
    seen = window + text[end : end + 1]
    ends = (start + found.end() for pattern in (_LINE_ENDS, _SENTENCE_ENDS) for found in pattern.finditer(seen))
    best = max((each for each in ends if each <= end and not _is_extended(text, each)), default=0)
    if best * 2 >= end:
        return best
    word = max((start + found.start() for found in _WORD_ENDS.finditer(window)), default=0)
    return word if word * 10 >= end * 9 else _character(text, start, end)


def _is_extended(text: str, end: int) -> bool:
    """Whether the character before `end` goes on with what follows, an accent or a joiner (UAX #29, `Extend`)."""
    following = text[end : end + 1]
    return following == "\u200d" or (following != "" and category(following).startswith("M"))


def _character(text: str, start: int, end: int) -> int:
    """The last place at or before `end` that is not inside of a character as readers see it."""
    # Imported here: it is slow to import, and only long words are cut inside.
    regex: Any = import_module("regex")
    best = start
    for found in regex.compile(r"\X").finditer(text, start):
        if found.end() > end:
            break
        best = found.end()
    return best
