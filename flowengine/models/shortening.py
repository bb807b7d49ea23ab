"""Shortens a text to a number of tokens, at the end of a line or a sentence where that can be.

It knows no tokenizer: tokens are counted by a function that it is given.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final
from unicodedata import category

MARK: Final = "[…]"
"""Stands where the rest was; it needs no translation."""

_LINE_ENDS: Final = re.compile(r"\n+")
_SENTENCE_ENDS: Final = re.compile(r"[.!?…]['\")\]’”»]*(?=\s)|[。！？][」』）”’]*")
_WORD_ENDS: Final = re.compile(r"\s+")
_LONGEST_TOKEN: Final = 200
"""Characters that no token has more of."""
_MAX_LOOKBACK: Final = 4000
"""Characters before the cut in which it looks for the end of a sentence, a word or a character."""


def shorten_text(text: str, most: int, count: Callable[[str], int], mark: str | None = None) -> str:
    """The beginning of a text and a mark, in at most `most` tokens; empty where not even a character fits.

    `mark`: with what parts it from the text; by default `MARK`, after a line in a line of its own.

    Cut at the end of a line or a sentence where that keeps half of what would fit, else between words, else
    between characters as readers see them (a flag, or a letter with its accents, is one).

    >>> def words(text):
    ...     return len(text.split())
    >>> shorten_text("One short sentence. Another one. A third.", 7, words)
    'One short sentence. Another one. A third.'
    >>> shorten_text("One short sentence. Another one. A third.", 5, words)
    'One short sentence. […]'
    """
    # What is longer has more tokens, and need not be counted again and again.
    if len(text) <= most * _LONGEST_TOKEN and count(text) <= most:
        return text
    end = _estimate_length(text, most - count(f" {MARK}" if mark is None else mark), count)
    while end > 0:
        end = _find_boundary(text, end)
        head = text[:end].rstrip()
        if not head:
            break
        own = ("\n" if text[len(head) : end + 1].startswith("\n") else " ") + MARK
        cut = head + (own if mark is None else mark)
        if count(cut) <= most:
            return cut
        end = len(head) - 1
    return ""


def _estimate_length(text: str, room: int, count: Callable[[str], int]) -> int:
    """About how many characters fit. Tokens of a beginning hardly ever shrink as it grows."""
    if room <= 0:
        return 0
    high = min(len(text), room * _LONGEST_TOKEN)
    return bisect_right(range(high + 1), room, key=lambda length: count(text[:length])) - 1


def _find_boundary(text: str, end: int) -> int:
    """The best place to cut at or before `end`."""
    start = max(0, end - _MAX_LOOKBACK)
    window = text[start:end]
    wider_window = window + text[end : end + 1]
    ends = (start + match.end() for pattern in (_LINE_ENDS, _SENTENCE_ENDS) for match in pattern.finditer(wider_window))
    best = max((each for each in ends if each <= end and not _is_extended(text, each)), default=0)
    if best * 2 >= end:
        return best
    word = max((start + match.start() for match in _WORD_ENDS.finditer(window)), default=0)
    return word if word * 10 >= end * 9 else _find_character_end(text, start, end)


def _is_extended(text: str, end: int) -> bool:
    """Tells whether the character before `end` goes on with what follows, an accent or a joiner (UAX #29, `Extend`)."""
    following = text[end : end + 1]
    return following == "\u200d" or (following != "" and category(following).startswith("M"))


def _find_character_end(text: str, start: int, end: int) -> int:
    """The last place at or before `end` that is not inside of a character as readers see it."""
    # Imported here: it is slow to import, and only long words are cut inside.
    regex: Any = import_module("regex")
    best = start
    for cluster in regex.compile(r"\X").finditer(text, start):
        if cluster.end() > end:
            break
        best = cluster.end()
    return best
