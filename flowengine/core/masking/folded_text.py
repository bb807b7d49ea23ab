"""Folds texts for patterns: one way to write each letter, and where it stands in the text itself.

Full-width letters, the many dashes and the digits of all scripts become plain ones, what is not seen is left out, and
escapes are undone. What is looked for in them is the matter of `patterns`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flowengine.core.secret_values import ESCAPE, replace_escape

_FULL_WIDTH: Final = {0xFEE0 + code: code for code in range(0x21, 0x7F)} | {0x3000: 0x20, 0xA0: 0x20}
_DASHES: Final = dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015, 0x2212, 0xFE63), 0x2D)


class _Letters(dict[int, int]):
    """Code points of letters as patterns know them; digits of all scripts are found when they are met."""

    def __missing__(self, code: int) -> int:
        digit = unicodedata.decimal(chr(code), None)
        self[code] = letter = code if digit is None else 0x30 + digit
        return letter


_FOLDED: Final = _Letters(_FULL_WIDTH | _DASHES)
_LONG_VOWEL: Final = re.compile("(?<=[0-9])ー(?=[0-9])")
"""Written for a dash where digits stand on both sides."""
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]+"
)
"""Invisible characters: soft hyphens, joiners, marks of direction."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A text for patterns. What is not seen is left out, and escapes of letters of ASCII are those letters."""

    text: str
    places: Sequence[tuple[int, int]] | None = None
    """The place of each letter in the text itself; None: each keeps its place."""

    def start(self, at: int) -> int:
        """Returns where the folded letter at this position begins in the original text."""
        return at if self.places is None else self.places[at][0]

    def end(self, at: int) -> int:
        """Returns where the letter before this position ends in the original text."""
        if self.places is None:
            return at
        return self.places[at - 1][1] if at else 0


def fold(text: str) -> str:
    """The text with full-width forms and digits of all scripts as ASCII; every character keeps its place.

    >>> fold("０９０－１２３４ー٥٦٧٨")
    '090-1234-5678'
    """
    return text if text.isascii() else _LONG_VOWEL.sub("-", text.translate(_FOLDED))


def fold_text(text: str) -> Folded:
    """The text as patterns read it.

    >>> fold_text("ada%40ex\u200bample.jp").text
    'ada@example.jp'
    """
    if not (_has_escapes(text) or _UNSEEN.search(text)):
        return Folded(fold(text))
    letters: list[str] = []
    places: list[tuple[int, int]] = []
    at = 0
    for match in _LEFT_OUT.finditer(text):
        letter = "" if match["unseen"] else replace_escape(match)
        if match["unseen"] is None and not (letter.isascii() and letter.isprintable()):
            continue
        letters += text[at : match.start()]
        places += ((place, place + 1) for place in range(at, match.start()))
        if letter:
            letters.append(letter)
            places.append(match.span())
        at = match.end()
    letters += text[at:]
    places += ((place, place + 1) for place in range(at, len(text)))
    return Folded(fold("".join(letters)), places)


_LEFT_OUT: Final = re.compile(f"(?P<unseen>{_UNSEEN.pattern})|{ESCAPE.pattern}")


def _has_escapes(text: str) -> bool:
    return ("%" in text or "\\" in text or "&#" in text) and ESCAPE.search(text) is not None
