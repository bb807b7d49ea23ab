"""Indexes items by their words: which few of very many items can answer a question at all.

It knows the tables `item_words` and `word` and nothing of what is in an item beside its words. Every word carries the
number of its scope, so a list of items is one scope's by its making, and rare is what is rare there.

The words of a question are taken from the rarest on. Items that have a rare word are all found. Words that very
many items have tell those apart, and are looked for by themselves two at a time, the newest items first.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from heapq import nlargest
from itertools import combinations
from typing import Final

from flowengine.agents.memory.database import instant
from flowengine.agents.memory.items.ranking import Weighed
from flowengine.agents.memory.items.words import VERSION, Period, words_of

_RARE: Final = 2000
"""Items that may have a word which is looked for alone."""

_NEWEST: Final = 1000
"""Items that are taken of those that have two common words, or that are of a time."""

_COMMON_WORDS: Final = 5
"""Words of which pairs are made: the rarest of those that more items have."""

_CANDIDATES: Final = 500

_FIND: Final = "SELECT rowid FROM item_words WHERE item_words MATCH ? ORDER BY rowid DESC LIMIT ?"


def add(connection: sqlite3.Connection, scope: int, number: int, text: str, *, holds: bool) -> None:
    """Index one item; `holds`: whether it is open."""
    words = sorted(words_of(text))
    _write(connection, scope, number, words, holds)
    connection.executemany(
        "INSERT INTO word (scope, word, items) VALUES (?, ?, 1)"
        " ON CONFLICT (scope, word) DO UPDATE SET items = items + 1",
        [(scope, word) for word in words],
    )


def close(connection: sqlite3.Connection, scope: int, number: int, text: str) -> None:
    """An item holds no more: from now on it is found only by those that ask for what is closed as well."""
    words = sorted(words_of(text))
    tokens = " ".join(_token(scope, word, True) for word in words)
    connection.execute("INSERT INTO item_words (item_words, rowid, words) VALUES ('delete', ?, ?)", (number, tokens))
    _write(connection, scope, number, words, holds=False)


def remove(connection: sqlite3.Connection, scope: int) -> None:
    """Take the words of all items of a scope out of the index, whether they hold or not."""
    if not is_current(connection):  # Other words than those that are made today cannot be taken out.
        refresh(connection)
    rows = connection.execute("SELECT number, text, valid_to IS NULL FROM item WHERE scope = ?", (scope,)).fetchall()
    for number, text, holds in rows:
        tokens = " ".join(_token(scope, word, bool(holds)) for word in sorted(words_of(text)))
        connection.execute(
            "INSERT INTO item_words (item_words, rowid, words) VALUES ('delete', ?, ?)", (number, tokens)
        )
    connection.execute("INSERT INTO item_words (item_words) VALUES ('optimize')")  # Drops what was only marked.
    connection.execute("DELETE FROM word WHERE scope = ?", (scope,))


def _write(connection: sqlite3.Connection, scope: int, number: int, words: Sequence[str], holds: bool) -> None:
    tokens = " ".join(_token(scope, word, holds) for word in words)
    connection.execute("INSERT INTO item_words (rowid, words) VALUES (?, ?)", (number, tokens))


def is_current(connection: sqlite3.Connection) -> bool:
    """Tells whether the words in the index are those that are made today."""
    return connection.execute("SELECT max(version) FROM word_version").fetchone()[0] == VERSION


def refresh(connection: sqlite3.Connection) -> None:
    """Make the index anew."""
    connection.execute("INSERT INTO item_words (item_words) VALUES ('delete-all')")
    connection.execute("DELETE FROM word")
    for number, scope, text, end in connection.execute("SELECT number, scope, text, valid_to FROM item").fetchall():
        add(connection, scope, number, text, holds=end is None)
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
    connection: sqlite3.Connection, scope: int, query: Weighed, spread: Mapping[str, int], of_then: Sequence[int]
) -> list[int]:
    """The items that may answer best, those first that have most of what was found here."""
    gains: defaultdict[str, float] = defaultdict(float)
    for each in query.aspects:
        for word in each.words:
            gains[word] += each.weight / len(each.words)
    reached: defaultdict[int, float] = defaultdict(float)
    for number in of_then:
        reached[number] += query.period_weight
    find = partial(_find, connection, scope, (True,) if query.period is None else (True, False))
    words_by_rarity = sorted((word for word in gains if word in spread), key=lambda word: spread[word])
    rare = [word for word in words_by_rarity if spread[word] <= _RARE]
    common = words_by_rarity[len(rare) :][:_COMMON_WORDS]
    for word in rare:
        for number in find([word], _RARE):
            reached[number] += gains[word]
    having: defaultdict[str, set[int]] = defaultdict(set)
    for words in [*combinations(common, 2)] or [(word,) for word in common]:
        hits = find(words, _NEWEST)
        for word in words:
            having[word].update(hits)
    for word, numbers in having.items():
        for number in numbers:
            reached[number] += gains[word]
    best = nlargest(_CANDIDATES, zip(reached.values(), reached, strict=True))
    return [number for _, number in best]


def _find(
    connection: sqlite3.Connection, scope: int, states: Iterable[bool], words: Iterable[str], limit: int
) -> list[int]:
    """The newest items of a scope, no more than `limit`, that have all of some words. `states`: whether they hold."""
    forms = (" OR ".join(f'"{_token(scope, word, holds)}"' for holds in states) for word in words)
    expression = " AND ".join(f"({each})" for each in forms)
    return [number for (number,) in connection.execute(_FIND, (expression, limit)).fetchall()]


def _token(scope: int, word: str, holds: bool) -> str:
    """A word of a scope as one token of the index, whatever is in it; another one where its item is closed."""
    plain = "".join(each if each.isalnum() or not each.isascii() else "_" for each in word)
    return f"{scope}{'x' if holds else 'z'}{plain}"
