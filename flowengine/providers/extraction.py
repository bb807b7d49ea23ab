"""A text reduced to its lines that matter most, in their order: chosen by words and form, never rewritten.

It knows one text and one query. When to reduce, and by how much, is decided elsewhere.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import log
from typing import Final

from flowengine.providers.facts import NO_FACTS, facts_of
from flowengine.providers.shortening import MARK, shortened
from flowengine.retrieval.terms import stems

__all__ = ["ends_of", "extracted"]

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？])(?=\S)")
_ENDS: Final = 2
"""Lines at the beginning and at the end that stay."""


def extracted(text: str, room: int, asked: Collection[str], count: Callable[[str], int]) -> str:
    """The text in about `room` tokens, marks included; as it is where it fits or where nothing can be left out.

    Its first and last lines stay; of the rest what holds facts and terms of the query, and what the text says in
    words of its own.
    """
    units = _units(text)
    if len(units) <= 2 * _ENDS or count(text) <= room:
        return text
    costs = [count(unit) + 1 for unit in units]
    kept = {*range(_ENDS), *range(len(units) - _ENDS, len(units))}
    left = room - sum(costs[each] for each in kept)
    for number in sorted(range(_ENDS, len(units) - _ENDS), key=_scores(units, asked).__getitem__, reverse=True):
        if costs[number] <= left:
            kept.add(number)
            left -= costs[number]
    return _with_marks(units, sorted(kept))


def ends_of(text: str, room: int, count: Callable[[str], int]) -> str:
    """The beginning and the end of a text in `room` tokens, with a mark between them; less where that is too little.

    >>> ends_of("one two three four five six seven eight nine ten", 6, lambda text: len(text.split()))
    'one two […] eight nine ten'
    """
    if count(text) <= room:
        return text
    begin = shortened(text, room // 2, count)
    left = room - count(begin)
    if not begin or left < 1:
        return begin
    longest = min(len(text), left * 200)
    length = bisect_right(range(longest + 1), left, key=lambda number: count(text[len(text) - number :])) - 1
    end = text[len(text) - length :]
    _, space, whole = end.partition(" ")
    return f"{begin} {(whole if space else end).lstrip()}".rstrip()


def _units(text: str) -> list[str]:
    """Lines; of long ones the sentences."""
    found: list[str] = []
    for line in text.splitlines():
        if line.strip():
            found += _SENTENCE.split(line) if len(line) > 200 else [line]
    return found


def _scores(units: Sequence[str], asked: Collection[str]) -> list[float]:
    terms = [set(stems(unit)) for unit in units]
    spread = Counter(term for each in terms for term in each)
    wanted = set(asked)
    return [_score(unit, each, spread, len(units), wanted) for unit, each in zip(units, terms, strict=True)]


def _score(unit: str, terms: set[str], spread: Counter[str], total: int, wanted: set[str]) -> float:
    rarity = sum(log(1 + total / spread[term]) for term in terms) / (4 + len(terms))
    return rarity + 2 * len(terms & wanted) + (1 if facts_of(unit) != NO_FACTS else 0)


def _with_marks(units: Sequence[str], kept: Sequence[int]) -> str:
    lines: list[str] = []
    before = -1
    for number in kept:
        if number != before + 1:
            lines.append(MARK)
        lines.append(units[number])
        before = number
    return "\n".join(lines)
