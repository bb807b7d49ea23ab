"""Ranks the items that answer a question best. Pure: words and times in, an order out.

A question falls into aspects: a word, or characters that belong together. An item's score is the share of the
aspects that it speaks of, each weighed by how rare it is in the scope. The time that a question names counts as one
more aspect, which an item has that happened, or held, then. Equal items follow each other from the newest to the
oldest, so that of two versions told in the same words the newer comes first.

Who a question is about weighs more than what, but an item that shares nothing except a name is no answer. What
nothing in the scope speaks of weighs less than what is rare: it may be the asker's way to put it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from flowengine.agents.memory.items.words import (
    Period,
    WordPiece,
    find_time,
    is_chinese_name,
    is_empty,
    pieces_of,
    words_of,
)
from flowengine.agents.memory.scopes import MemoryScope, aware, parse_thread_scope_id
from flowengine.errors import DefinitionError

# --- Single things to remember


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One thing to remember."""

    scope: MemoryScope
    scope_id: str
    text: str
    valid_from: datetime
    subject: str | None = None
    """The subject of the fact: `Mika's home`."""
    valid_to: datetime | None = None
    """When another fact took its place; None for what holds."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON values."""
    id: str = ""
    """Adding it again changes nothing. Made from the rest where none is given."""

    def __post_init__(self) -> None:
        aware("valid_from", self.valid_from)
        if self.scope is MemoryScope.THREAD:
            parse_thread_scope_id(self.scope_id)
        elif not self.scope_id.strip():
            raise DefinitionError(f"an item of a {self.scope} needs that {self.scope}'s id")
        if not self.id:
            object.__setattr__(self, "id", self._made_id())

    def _made_id(self) -> str:
        identity = [self.scope, self.scope_id, self.text, self.valid_from.timestamp(), self.subject]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


class Recalled(NamedTuple):
    """An item that was found."""

    item: MemoryItem
    score: float
    """0.0–1.0: the share of what was asked that the item speaks of, rare words weighing more."""


_MOST: Final = 64
"""Words of either end of a question that are asked for: a long prompt says what it wants at one of them."""
_END_LENGTH: Final = 10_000
"""Characters of either end of a question in which these words and a time are looked for."""

_NAME: Final = 2.0
"""The weight of a name, against what its rareness says."""

_NAME_ONLY: Final = 0.5
"""The share that remains of the score of an item that shares only names with a question that is about more."""

_UNSPOKEN: Final = 0.4
"""The weight of a word that no item has, against the mean of those that some have."""

_GRAMMAR: Final = 0.3
"""The weight of a run of hiragana, against what its rareness says."""

_SINGLE: Final = 0.6
"""The weight of a Chinese character alone, against what its rareness says: it is a word less surely than a pair is."""

_COHESION: Final = 0.5
"""Two characters are one word where they stand together in this share of the items that have the rarer one."""


class ItemQuery(NamedTuple):
    """A question as it was read."""

    pieces: tuple[WordPiece, ...]
    period: Period | None = None
    when: frozenset[str] = frozenset()
    """The words by which the question names the time: an item may name it so too."""

    def words(self) -> list[str]:
        """All words whose spread has to be known."""
        return list(dict.fromkeys(word for each in self.pieces for word in (*each.words, *each.characters)))


class Aspect(NamedTuple):
    """One thing that a question is about."""

    words: tuple[str, ...]
    """An item speaks of it as far as it has these."""
    weight: float
    is_name: bool = False

    def measure_reach(self, words: frozenset[str]) -> float:
        return self.weight * sum(word in words for word in self.words) / len(self.words)


class Weighed(NamedTuple):
    """A question as one scope sees it."""

    aspects: tuple[Aspect, ...]
    period: Period | None
    period_weight: float
    when: frozenset[str]

    def score(self, item: MemoryItem) -> float:
        """0.0–1.0."""
        words = words_of(item.text)
        then = self.period is not None and (_is_of(item, self.period) or bool(self.when and self.when <= words))
        names = [each for each in self.aspects if each.is_name]
        of_names = sum(each.measure_reach(words) for each in names)
        of_others = (
            sum(each.measure_reach(words) for each in self.aspects if not each.is_name) + self.period_weight * then
        )
        is_about_more = len(names) < len(self.aspects) or self.period is not None
        total = self.period_weight + sum(each.weight for each in self.aspects)
        reached = of_names + of_others if of_others or not is_about_more else of_names * _NAME_ONLY
        return reached / total if total else 0.0


def read(question: str, now: datetime) -> ItemQuery:
    """A question, read for its words and its time; of a very long one, that of its beginning and its end."""
    if len(question) > 2 * _END_LENGTH:
        question = f"{question[:_END_LENGTH]}\n{question[-_END_LENGTH:]}"
    period, rest, names = find_time(question, now)
    return ItemQuery(_both_ends(pieces_of(rest)), period, words_of(names))


def weigh(query: ItemQuery, spread: Mapping[str, int], total: int, in_period: int = 0) -> Weighed:
    """`spread`: word → how many of the `total` items have it; `in_period`: how many are of the time asked for."""
    parts = [(piece, words) for piece in query.pieces for words in _parts(piece, spread)]
    weights: dict[tuple[str, ...], float] = {}
    for _, words in parts:
        counts = [spread[word] for word in words if spread.get(word)]
        if counts:
            weights[words] = _rareness(min(counts), total)
    mean = sum(weights.values()) / len(weights) if weights else 1.0
    unknown = _rareness(0, total)
    aspects = (_aspect(piece, words, weights.get(words), mean, unknown) for piece, words in parts)
    period_weight = _rareness(in_period, total) if query.period else 0.0
    return Weighed(tuple(dict.fromkeys(each for each in aspects if each)), query.period, period_weight, query.when)


def rank_items(query: Weighed, items: Iterable[MemoryItem]) -> Sequence[Recalled]:
    """The items that hold, or that held at the time asked for, best first."""
    matches = [Recalled(each, query.score(each)) for each in items if _counts(each, query.period)]
    return sorted(matches, key=lambda each: (-round(each.score, 6), -each.item.valid_from.timestamp()))


def _aspect(
    piece: WordPiece, words: tuple[str, ...], rareness: float | None, mean: float, unknown: float
) -> Aspect | None:
    """The part of a piece, weighed; `rareness` is None where no item speaks of it."""
    if piece.is_name or is_chinese_name(words):
        return Aspect(words, _NAME * (unknown if rareness is None else rareness), is_name=True)
    if rareness is None:
        return None if piece.is_grammar else Aspect(words, mean * _UNSPOKEN)
    if piece.is_grammar:
        return Aspect(words, rareness * _GRAMMAR)
    return Aspect(words, rareness * (_SINGLE if piece.characters and len(words[0]) == 1 else 1.0))


def _parts(piece: WordPiece, spread: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """The words of a piece; a run of Chinese characters falls apart where they seldom stand together."""
    if not piece.characters:
        yield piece.words
        return
    run, begin = piece.characters, 0
    for end in range(1, len(run) + 1):
        if end == len(run) or not _cohere(run[end - 1], run[end], spread):
            part = run[begin:end]
            if not is_empty(part):
                yield tuple(dict.fromkeys(first + second for first, second in pairwise(part))) or (part,)
            begin = end


def _cohere(first: str, second: str, spread: Mapping[str, int]) -> bool:
    apart = spread.get(first, 0), spread.get(second, 0)
    together = spread.get(first + second, 0)
    return together >= _COHESION * min(apart) if together else not any(apart)


def _rareness(count: int, total: int) -> float:
    """Returns the rareness of BM25 (Robertson and Spärck Jones), never below zero."""
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def _both_ends(pieces: Sequence[WordPiece]) -> tuple[WordPiece, ...]:
    """The pieces, without those in the middle where there are very many words."""
    first = _within(pieces)
    last = _within(pieces[len(first) :][::-1])
    return (*first, *last[::-1])


def _within(pieces: Sequence[WordPiece]) -> Sequence[WordPiece]:
    words = 0
    for number, each in enumerate(pieces):
        words += len(each.words) + len(each.characters)
        if words > _MOST:
            return pieces[:number]
    return pieces


def _counts(item: MemoryItem, period: Period | None) -> bool:
    return item.valid_to is None or (period is not None and _is_of(item, period))


def _is_of(item: MemoryItem, period: Period) -> bool:
    """Tells whether a fact held in a period, or whether something happened in it."""
    if item.subject is None:
        return period.begin <= item.valid_from < period.end
    return item.valid_from < period.end and (item.valid_to is None or item.valid_to > period.begin)
