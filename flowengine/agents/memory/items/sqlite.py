"""Keeps items in SQLite: for good, and found by their words within one scope.

It knows SQL. Which items can answer is the index's matter (`flowengine.agents.memory.items.word_index`), which of them
answers best the ranking's.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from anyio import to_thread

from flowengine.agents.memory.database import MemoryDatabase, instant, moment, scope_number
from flowengine.agents.memory.items import word_index
from flowengine.agents.memory.items.ranking import ItemQuery, MemoryItem, Recalled, rank_items, read, weigh
from flowengine.agents.memory.items.words import words_of
from flowengine.agents.memory.scopes import MemoryScope, aware
from flowengine.errors import DefinitionError

_LOOKED_AT: Final = 100
"""Items that are ranked, those with most of what was asked for."""

_FIELDS: Final = "number, id, subject, text, valid_from, valid_to, metadata"


class SQLiteMemoryItems:
    """Memory items in a SQLite file. A search never returns items of another scope."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._is_current = False

    async def add(self, items: Sequence[MemoryItem]) -> None:
        """Keep items, all or none. A fact closes the one of its subject that held when it began."""
        closed = next((each for each in items if each.valid_to is not None), None)
        if closed is not None:
            raise DefinitionError(f"an item is kept open, what closes it is the next one: {closed.text!r:.80}")
        await self._refresh()
        await self._database.write(partial(_add, items))

    async def search(
        self,
        scope: MemoryScope,
        scope_id: str,
        query: str,
        *,
        limit: int = 5,
        threshold: float = 0.0,
        now: datetime | None = None,
        also: Sequence[MemoryItem] = (),
    ) -> Sequence[Recalled]:
        """The items nearest to a query, best first; none whose score is below the threshold.

        `also`: items of this scope that are not kept yet, found as if they were.

        Facts that are closed are found only where the query names a time at which they held. `now` (the present where
        it is not given) is what `last week` is reckoned from.
        """
        # A query may be a whole document.
        question = await to_thread.run_sync(read, query, aware("now", now or datetime.now(UTC)))
        await self._refresh()
        matches = await self._database.read(partial(_search, scope, scope_id, question, also))
        return [each for each in matches if each.score > 0 and each.score >= threshold][:limit]

    async def around(self, item: MemoryItem) -> Sequence[MemoryItem]:
        """Returns the valid items right before and after an item in its scope, without facts."""
        return await self._database.read(partial(_around, item))

    async def close(self, scope: MemoryScope, scope_id: str, *, at: datetime) -> None:
        """Forget the items of a scope: from `at` on none of them holds. They stay on record."""
        await self._refresh()
        await self._database.write(partial(_close, scope, scope_id, instant(aware("at", at))))

    async def _refresh(self) -> None:
        """Once: an index that another version of this package made may hold other words."""
        if not self._is_current and not await self._database.read(word_index.is_current):
            await self._database.write(word_index.refresh)
        self._is_current = True


def _add(items: Sequence[MemoryItem], connection: sqlite3.Connection) -> None:
    for each in items:
        scope = scope_number(connection, each.scope.value, each.scope_id, make=True)
        assert scope is not None  # It was made.
        if connection.execute("SELECT 1 FROM item WHERE id = ?", (each.id,)).fetchone() is None:
            end = (
                None
                if each.subject is None
                else _close_earlier_fact(connection, scope, each.subject, instant(each.valid_from))
            )
            number = _insert_item(connection, scope, each, end)
            word_index.add(connection, scope, number, each.text, holds=end is None)


def _close_earlier_fact(connection: sqlite3.Connection, scope: int, subject: str, begin: int) -> int | None:
    """Close the fact that held when this one begins; the end of this one, if another has followed already."""
    about = (scope, subject)
    later = "SELECT min(valid_from) FROM item WHERE scope = ? AND subject = ? AND valid_from > ?"
    (following,) = connection.execute(later, (*about, begin)).fetchone()
    _end(connection, scope, begin, "subject = ? AND valid_from <= ?", subject, begin)
    return following


def _end(connection: sqlite3.Connection, scope: int, at: int, which: str, *values: Any) -> None:
    """Ends these items of the scope: from `at` on, none of them holds."""
    where = f"WHERE scope = ? AND {which} AND (valid_to IS NULL OR valid_to > ?)"
    arguments = (scope, *values, at)
    for number, text, end in connection.execute(
        f"SELECT number, text, valid_to FROM item {where}", arguments
    ).fetchall():
        if end is None:
            word_index.close(connection, scope, number, text)
    connection.execute(f"UPDATE item SET valid_to = ? {where}", (at, *arguments))


def _insert_item(connection: sqlite3.Connection, scope: int, item: MemoryItem, end: int | None) -> int:
    row = connection.execute(
        "INSERT INTO item (id, scope, subject, text, valid_from, valid_to, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " RETURNING number",
        (item.id, scope, item.subject, item.text, instant(item.valid_from), end, json.dumps(dict(item.metadata))),
    )
    (number,) = row.fetchone()
    connection.execute("UPDATE scope SET items = items + 1 WHERE number = ?", (scope,))
    return number


def _close(scope: MemoryScope, scope_id: str, at: int, connection: sqlite3.Connection) -> None:
    number = scope_number(connection, scope.value, scope_id)
    if number is not None:
        _end(connection, number, at, "valid_from <= ?", at)


def _search(
    scope: MemoryScope, scope_id: str, query: ItemQuery, also: Sequence[MemoryItem], connection: sqlite3.Connection
) -> Sequence[Recalled]:
    number = scope_number(connection, scope.value, scope_id)
    newest = {each.subject: each for each in sorted(also, key=lambda each: each.valid_from)}
    present = [each for each in also if each.subject is None or newest[each.subject] is each]
    spread = Counter(word for each in present for word in words_of(each.text))
    if number is None:
        return rank_items(weigh(query, spread, len(present)), present)
    (total,) = connection.execute("SELECT items FROM scope WHERE number = ?", (number,)).fetchone()
    spread.update(word_index.spread(connection, number, query.words()))
    of_then = word_index.of_period(connection, number, query.period)
    weighed = weigh(query, spread, total + len(present), len(of_then))
    candidates = word_index.candidates(connection, number, weighed, spread, of_then)
    items = _items(connection, scope, scope_id, number, candidates, query.period is not None)
    return rank_items(weighed, [*(each for each in items if not _is_replaced(each, newest)), *present])


def _around(item: MemoryItem, connection: sqlite3.Connection) -> Sequence[MemoryItem]:
    place = connection.execute("SELECT scope, number FROM item WHERE id = ?", (item.id,)).fetchone()
    if place is None:
        return ()
    select = f"SELECT {_FIELDS} FROM item WHERE scope = ? AND subject IS NULL AND valid_to IS NULL AND"
    rows = [
        connection.execute(f"{select} number < ? ORDER BY number DESC LIMIT 1", place).fetchone(),
        connection.execute(f"{select} number > ? ORDER BY number LIMIT 1", place).fetchone(),
    ]
    return [_item(item.scope, item.scope_id, row) for row in rows if row is not None]


def _is_replaced(item: MemoryItem, newest: Mapping[str | None, MemoryItem]) -> bool:
    """Tells whether a fact that is not kept yet takes its place."""
    other = None if item.subject is None else newest.get(item.subject)
    return other is not None and item.valid_from <= other.valid_from


def _items(
    connection: sqlite3.Connection,
    scope: MemoryScope,
    scope_id: str,
    number: int,
    candidates: Sequence[int],
    closed: bool,
) -> Iterator[MemoryItem]:
    """The first of the candidates, those that are closed only where they are asked for."""
    rest = _LOOKED_AT
    open_only = "" if closed else "AND valid_to IS NULL"
    for begin in range(0, len(candidates), _LOOKED_AT):
        chunk = candidates[begin : begin + _LOOKED_AT]
        places = ", ".join("?" * len(chunk))
        # The plus sign keeps SQLite from reading the whole scope by its index.
        query = f"SELECT {_FIELDS} FROM item WHERE number IN ({places}) AND +scope = ? {open_only}"
        rows = connection.execute(query, (*chunk, number)).fetchall()
        yield from (_item(scope, scope_id, row) for row in rows)
        rest -= len(rows)
        if rest <= 0:
            return


def _item(scope: MemoryScope, scope_id: str, row: Sequence[Any]) -> MemoryItem:
    _, id, subject, text, valid_from, valid_to, metadata = row
    end = None if valid_to is None else moment(valid_to)
    return MemoryItem(scope, scope_id, text, moment(valid_from), subject, end, json.loads(metadata), id)
