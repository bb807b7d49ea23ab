"""Reduces fragments until they fit: decisions in stages, the gentlest first.

It knows units, their tokens and their facts. It waits for nothing and asks no model: a summary is handed in.

1. A unit is what stays or goes together: the fragments of a group, a turn, a section; a tool's call and its results.
2. The first unit and the newest ones are left alone for as long as others can give way.
3. *Masked*: results of tools give way to a mark, the oldest first. *Extracted*: of long pieces the lines stay that
   matter most. *Summarised*: what is between both ends gives way to a text. *Cut*: units go, the lowest in priority
   and then the oldest first, and then the ends are reduced, the longest first.
4. Facts that can be read nowhere any more are listed word for word, and the list counts as well.
5. What is pinned is never touched.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Final, NamedTuple

from flowengine.agents.context.compressor.extraction import (
    ends_of,
    extract_sentences,
    facts_of,
    facts_text,
    merge_facts,
    unseen,
)
from flowengine.agents.context.text_cutting import of_pieces, pieces_of
from flowengine.core import Fragment, Messages
from flowengine.models import MARK

# --- Fragments as units

_TOOL_LABEL: Final = re.compile(r"tool|result|observation|function|call", re.IGNORECASE)
_RESULT_START: Final = re.compile(
    r"(?:\*\*)?(?:tool(?: result| output)?|function(?: result)?|observation|ツール(?:の?結果)?|工具(?:结果)?)(?:\*\*)?"
    r"\s*+(?:\([^)\n]*\)|\[[^\]\n]*\])?\s*[:：]",
    re.IGNORECASE,
)


class TextPiece(NamedTuple):
    """A fragment, or a section of one."""

    fragment: int
    """The fragment's number."""
    place: int
    """Within the fragment."""
    text: str
    is_result: bool = False
    """Whether a tool said it."""


class Unit(NamedTuple):
    """Pieces that stay or go together."""

    pieces: tuple[TextPiece, ...]
    priority: int = 0
    is_summary: bool = False
    """Whether it stands for others that are gone."""

    @property
    def text(self) -> str:
        return "\n\n".join(each.text for each in self.pieces)


def units_of(fragments: Sequence[Fragment]) -> list[Unit]:
    """The units of the fragments that are not pinned, in the order of their beginnings."""
    pieces_by_key: dict[tuple[str, int, int], list[TextPiece]] = {}
    before = ("", -1, -1)
    source = ""
    for number, fragment in enumerate(fragments):
        if fragment.pinned:
            continue
        for place, text in enumerate(pieces_of(fragment)):
            if fragment.group:
                key = (fragment.group, -1, -1)
                is_result = _is_called_result(fragment, is_later=key in pieces_by_key)
            else:
                is_result = _RESULT_START.match(text) is not None or _is_called_result(fragment, is_later=False)
                # A result goes with the call right before it.
                key = before if is_result and fragment.source == source else ("", number, place)
            pieces_by_key.setdefault(key, []).append(TextPiece(number, place, text, is_result))
            before, source = key, fragment.source
    return [
        Unit(tuple(pieces), max(fragments[each.fragment].priority for each in pieces))
        for pieces in pieces_by_key.values()
    ]


def _is_called_result(fragment: Fragment, *, is_later: bool) -> bool:
    """By what the fragment is called; of a group that is about tools, all but the first are results."""
    if fragment.label.startswith("result"):
        return True
    return is_later and _TOOL_LABEL.search(f"{fragment.source} {fragment.label} {fragment.group}") is not None


_Units = Sequence[Unit | None]

_SOURCE: Final = "compressor"
_NEWEST_SHARE: Final = 0.4
"""The share of the room that units at the end may have and be left alone."""
_EXTRACTED_SHARE: Final = 0.4
"""The share of a piece that stays of it."""
_LONG_PIECE: Final = 80
"""Tokens of a piece from which on lines are taken out of it."""
_MIN_PIECE: Final = 40
"""Tokens of a tool's result up to which a mark would save nothing."""
_HINT_LENGTH: Final = 100
"""Characters of a masked result that stay, so that one knows what it was."""
_FACTS_SHARE: Final = 0.25
"""The share of the room that the list of facts may have."""
_MAX_TRIES: Final = 8
"""How often one unit is shortened: what it loses may enter the list of facts, which then has to have room as well."""


class _Line(NamedTuple):
    """A piece of the result, and where it goes."""

    at: tuple[int, int, int]
    text: str
    source: str = ""
    """The source that the compression made it for; empty: it was there."""


class Compression:
    """Compresses some fragments to a number of tokens. Each stage does no more than is needed."""

    def __init__(
        self,
        fragments: Sequence[Fragment],
        room: int,
        query_terms: Collection[str],
        words: Messages,
        count: Callable[[str], int],
    ) -> None:
        self._fragments = fragments
        self._query_terms = query_terms
        self._words = words
        self._count = count = cache(count)
        self._pinned = [each.text for each in fragments if each.pinned]
        pinned = sum(count(each) + 1 for each in self._pinned)
        # Where what is pinned leaves nothing, a little of the rest is still better than none of it.
        self.room = max(room - pinned, room // 10)
        self._originals = units_of(fragments)
        self._facts_of = cache(facts_of)
        self._facts = merge_facts(self._facts_of(each.text) for each in self._originals)
        self._units: _Units = self._originals
        """The units as they are now; None: left out."""
        self._middle = range(1, self._begin_of_newest())

    @property
    def is_enough(self) -> bool:
        return self._size(self._units) <= self.room

    @property
    def middle(self) -> list[str]:
        """The original text of the units between both ends."""
        return [self._originals[each].text for each in self._middle]

    # --- stages

    def mask(self) -> None:
        self._change_middle(self._mark)

    def extract(self) -> None:
        self._change_middle(self._extract_lines)

    def material(self, begin: int) -> str:
        """Returns the rest of the middle, starting at one of its units."""
        return "\n\n".join(unit.text for each in self._middle[begin:] if (unit := self._units[each]))

    def summarise(self, text: str, number: int) -> None:
        """Have a text stand for the first so many units of the middle."""
        units = [*self._units]
        stood_for = self._middle[:number]
        place = self._originals[stood_for[0]].pieces[0]
        highest = max(self._originals[each].priority for each in stood_for)
        units[stood_for[0]] = Unit((place._replace(text=text, is_result=False),), highest, is_summary=True)
        for each in stood_for[1:]:
            units[each] = None
        self._units = units

    def cut(self) -> None:
        if self.is_enough:
            return
        loose = [(each, unit) for each, unit in self._present() if each in self._middle and not unit.is_summary]
        lowest = sorted(loose, key=lambda pair: (pair[1].priority, pair[0]))
        self._change([(each, None) for each, _ in lowest])
        # Each keeps its share at first, so that the longest does not pay for all.
        for least in (self.room // (len(self._present()) + 1), 1):
            for each, unit in sorted(self._present(), key=lambda pair: -self._tokens(pair[1])):
                self._reduce(each, unit, least)

    def fragments(self) -> list[Fragment]:
        """Returns the remaining fragments in order, with the list of facts between the middle and the newest ones."""
        lines = sorted(self._lines(), key=lambda line: line.at)
        fragments: list[Fragment] = []
        for (number, source), same in groupby(lines, key=lambda line: (line.at[0], line.source)):
            texts = [line.text for line in same]
            if source:
                fragments.append(Fragment("\n\n".join(texts), _SOURCE, label=source))
            else:
                fragments.append(of_pieces(self._fragments[number], texts))
        return fragments

    def _lines(self) -> Iterator[_Line]:
        for number, fragment in enumerate(self._fragments):
            if fragment.pinned:
                yield _Line((number, 0, 0), fragment.text)
        for _, unit in self._present():
            for piece in unit.pieces:
                yield _Line((piece.fragment, piece.place, 1), piece.text, "summary" if unit.is_summary else "")
        if facts := self._facts_text(self._units):
            newest = self._originals[min(self._middle.stop, len(self._originals) - 1)].pieces[0]
            yield _Line((newest.fragment, newest.place, 0), facts, "facts")

    # --- units

    def _begin_of_newest(self) -> int:
        room = self.room * _NEWEST_SHARE
        begin = len(self._originals)
        while begin > 1 and (begin == len(self._originals) or self._tokens(self._originals[begin - 1]) <= room):
            begin -= 1
            room -= self._tokens(self._originals[begin])
        return begin

    def _present(self) -> list[tuple[int, Unit]]:
        return [(each, unit) for each, unit in enumerate(self._units) if unit]

    def _change(self, changes: Sequence[tuple[int, Unit | None]]) -> None:
        """Make the first of the changes, as many as are needed."""
        needed = bisect_left(
            range(len(changes) + 1),
            True,
            key=lambda number: self._size(self._apply_changes(changes[:number])) <= self.room,
        )
        self._units = self._apply_changes(changes[:needed])

    def _apply_changes(self, changes: Sequence[tuple[int, Unit | None]]) -> _Units:
        units = [*self._units]
        for each, unit in changes:
            units[each] = unit
        return units

    def _change_middle(self, change: Callable[[TextPiece], TextPiece]) -> None:
        middle = [(each, unit) for each, unit in self._present() if each in self._middle]
        self._change([(each, unit._replace(pieces=tuple(map(change, unit.pieces)))) for each, unit in middle])

    def _mark(self, piece: TextPiece) -> TextPiece:
        if not piece.is_result:
            return piece
        tokens = self._count(piece.text)
        hint = piece.text.lstrip().partition("\n")[0][:_HINT_LENGTH]
        mark = f"{hint} {self._words('compression.masked', tokens=tokens)}"
        return piece._replace(text=mark) if tokens > _MIN_PIECE and self._count(mark) < tokens else piece

    def _extract_lines(self, piece: TextPiece) -> TextPiece:
        tokens = self._count(piece.text)
        if tokens < _LONG_PIECE:
            return piece
        room = int(tokens * _EXTRACTED_SHARE)
        return piece._replace(text=extract_sentences(piece.text, room, self._query_terms, self._count))

    def _reduce(self, number: int, unit: Unit, least: int) -> None:
        """Shorten a unit by what is too much, its longest piece to `least` tokens: by lines, or else in its middle."""
        for _ in range(_MAX_TRIES):
            excess = self._size(self._units) - self.room
            if excess <= 0:
                return
            longest = max(unit.pieces, key=lambda each: self._count(each.text))
            room = max(self._count(longest.text) - excess - 1, least)
            lines = extract_sentences(longest.text, room, self._query_terms, self._count)
            text = lines if self._count(lines) <= room else ends_of(longest.text, room, self._count) or MARK
            if self._count(text) >= self._count(longest.text):
                return
            unit = unit._replace(
                pieces=tuple(each._replace(text=text) if each is longest else each for each in unit.pieces)
            )
            self._units = self._apply_changes([(number, unit)])

    # --- sizes

    def _tokens(self, unit: Unit) -> int:
        return sum(self._count(each.text) + 1 for each in unit.pieces)

    def _size(self, units: _Units) -> int:
        return sum(self._tokens(each) for each in units if each) + self._count(self._facts_text(units)) + 1

    def _facts_text(self, units: _Units) -> str:
        visible = merge_facts(map(self._facts_of, [*self._pinned, *(each.text for each in units if each)]))
        missing = unseen(self._facts, visible)
        return facts_text(self._words, missing, int(self.room * _FACTS_SHARE), self._count)
