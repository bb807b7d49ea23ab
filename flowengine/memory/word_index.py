"""The index of items by their words: which few of very many items can answer a question at all.

It knows the tables `item_words` and `word` and nothing of what is in an item beside its words. Every word carries the
number of its scope, so a list of items is one scope's by its making, and rare is what is rare there.

The words of a question are taken from the rarest on. Items that have a rare word are all found. Words that very
many items have tell those apart, and are looked for by themselves two at a time, the newest items first.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import combinations
from typing import Final

from flowengine.memory.database import instant
from flowengine.memory.dates import Period
from flowengine.memory.ranking import Weighed
from flowengine.memory.words import VERSION, words_of

__all__ = ["add", "candidates", "is_current", "of_period", "refresh", "spread"]

_RARE: Final = 2000
"""Items that may have a word which is looked for alone."""

_NEWEST: Final = 1000
"""Items that are taken of those that have two common words, or that are of a time."""

_COMMON_WORDS: Final = 5
"""Of the words that more items have, so many are paired, the rarest."""

_CANDIDATES: Final = 500

_FIND: Final = "SELECT rowid FROM item_words WHERE item_words MATCH ? ORDER BY rowid DESC LIMIT ?"


def add(connection: sqlite3.Connection, scope: int, number: int, text: str) -> None:
    """Index one item."""
    words = sorted(words_of(text))
    tokens = " ".join(_token(scope, word) for word in words)
    connection.execute("INSERT INTO item_words (rowid, words) VALUES (?, ?)", (number, tokens))
    connection.executemany(
        "INSERT INTO word (scope, word, items) VALUES (?, ?, 1)"
        " ON CONFLICT (scope, word) DO UPDATE SET items = items + 1",
        [(scope, word) for word in words],
    )


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the words in the index are those that are made today."""
    return connection.execute("SELECT max(version) FROM word_version").fetchone()[0] == VERSION


def refresh(connection: sqlite3.Connection) -> None:
    """Make the index anew."""
    connection.execute("INSERT INTO item_words (item_words) VALUES ('delete-all')")
    connection.execute("DELETE FROM word")
    for number, scope, text in connection.execute("SELECT number, scope, text FROM item").fetchall():
        add(connection, scope, number, text)
    connection.execute("DELETE FROM word_version")
    connection.execute("INSERT INTO word_version (version) VALUES (?)", (VERSION,))


def spread(connection: sqlite3.Connection, scope: int, words: Iterable[str]) -> dict[str, int]:
    """Word → how many items of the scope have it; words that none has are left out."""
    query = "SELECT items FROM word WHERE scope = ? AND word = ?"
    rows = ((word, connection.execute(query, (scope, word)).fetchone()) for word in words)
    return {word: row[0] for word, row in rows if row is not None}


def of_period(connection: sqlite3.Connection, scope: int, period: Period | None) -> list[int]:
    """The items that began in a period, the newest of them."""
    if period is None:
        return []
    query = "SELECT number FROM item WHERE scope = ? AND valid_from >= ? AND valid_from < ?"
    rows = connection.execute(
        f"{query} ORDER BY valid_from DESC LIMIT ?", (scope, instant(period.begin), instant(period.end), _NEWEST)
    )
    return [number for (number,) in rows]


def candidates(
    connection: sqlite3.Connection, scope: int, asked: Weighed, spread: Mapping[str, int], of_then: Sequence[int]
) -> list[int]:
    """The items that may answer best, those first that have most of what was found here."""
    gains: defaultdict[str, float] = defaultdict(float)
    for each in asked.aspects:
        for word in each.words:
            gains[word] += each.weight / len(each.words)
    reached: defaultdict[int, float] = defaultdict(float)
    for number in of_then:
        reached[number] += asked.period_weight
    known = sorted((word for word in gains if word in spread), key=lambda word: spread[word])
    common = [word for word in known if spread[word] > _RARE]
    for word in known:
        if spread[word] <= _RARE:
            gain = gains[word]
            for (number,) in connection.execute(_FIND, (_quoted(scope, word), _RARE)).fetchall():
                reached[number] += gain
    for number, gain in _of_common(connection, scope, common, gains).items():
        reached[number] += gain
    best = nlargest(_CANDIDATES, zip(reached.values(), reached, strict=True))
    return [number for _, number in best]


def _of_common(
    connection: sqlite3.Connection, scope: int, words: Sequence[str], gains: Mapping[str, float]
) -> dict[int, float]:
    """Items that have two common words each, and what they gain by all that were found of theirs."""
    having: dict[str, set[int]] = {}
    for pair in [*combinations(words[:_COMMON_WORDS], 2)] or [(word,) for word in words]:
        expression = " AND ".join(_quoted(scope, word) for word in pair)
        found = [number for (number,) in connection.execute(_FIND, (expression, _NEWEST)).fetchall()]
        for word in pair:
            having.setdefault(word, set()).update(found)
    reached: dict[int, float] = {}
    for word, numbers in having.items():
        for number in numbers:
            reached[number] = reached.get(number, 0.0) + gains[word]
    return reached


def _token(scope: int, word: str) -> str:
    """A word of a scope as one token of the index, whatever is in it."""
    return f"{scope}x" + "".join(each if each.isalnum() or not each.isascii() else "_" for each in word)


def _quoted(scope: int, word: str) -> str:
    return f'"{_token(scope, word)}"'
