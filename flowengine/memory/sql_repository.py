"""Memories in a database: what holds, and everything that held before.

It knows SQL and the rule of validity. What a memory says is other modules' matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from flowengine.errors import DefinitionError
from flowengine.memory.scopes import Memory, MemoryScope, MemoryType, aware, thread_scope_id
from flowengine.memory.sql import Connection, SQLDatabase, instant, moment, scope_number

__all__ = ["SQLMemoryRepository"]

_FIELDS: Final = (
    "SELECT kind, id, type, text, valid_from, valid_to FROM memory JOIN scope ON scope.number = memory.scope"
)


class SQLMemoryRepository:
    """A `MemoryRepository` in a SQLite file, or on a PostgreSQL server."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    async def save(self, memory: Memory) -> None:
        if memory.valid_to is not None:
            raise DefinitionError("a memory is saved open: what closes it is the next one (valid_to must be None)")
        await self._database.write(partial(_save, memory))

    async def find_by_scope_and_type(
        self, scope: MemoryScope, scope_id: str, type: MemoryType, *, at: datetime | None = None
    ) -> Memory | None:
        given = (scope.value, scope_id, type.value)
        holds, values = "valid_to IS NULL", given
        if at is not None:
            when = instant(aware("at", at))
            holds, values = "valid_from <= ? AND (valid_to IS NULL OR valid_to > ?)", (*given, when, when)
        found = await self._memories(f"WHERE kind = ? AND id = ? AND type = ? AND {holds}", *values)
        return found[0] if found else None

    async def find_recent_thread_memories(
        self, channel_id: str, days: float, *, now: datetime | None = None
    ) -> Sequence[Memory]:
        begin = instant(aware("now", now or datetime.now(UTC)) - timedelta(days=days))
        first = thread_scope_id(channel_id, " ").removesuffix(" ")  # `channel:`, and what follows it in any thread's id
        where = "WHERE kind = 'thread' AND id >= ? AND id < ? AND valid_to IS NULL AND valid_from >= ?"
        return await self._memories(where, first, first[:-1] + chr(ord(":") + 1), begin)

    async def history(self, scope: MemoryScope, scope_id: str, type: MemoryType) -> Sequence[Memory]:
        return await self._memories("WHERE kind = ? AND id = ? AND type = ?", scope.value, scope_id, type.value)

    async def _memories(self, where: str, *values: Any) -> list[Memory]:
        query = f"{_FIELDS} {where} ORDER BY valid_from DESC, memory.number DESC"
        return [_memory(*row) for row in await self._database.read(partial(_rows, query, values))]


def _rows(query: str, values: Sequence[Any], connection: Connection) -> list[Any]:
    return connection.execute(query, values).fetchall()


def _save(memory: Memory, connection: Connection) -> None:
    scope = scope_number(connection, memory.scope.value, memory.scope_id, make=True)
    begin, key = instant(memory.valid_from), (scope, memory.type.value)
    later = "SELECT min(valid_from) FROM memory WHERE scope = ? AND type = ? AND valid_from > ?"
    (end,) = connection.execute(later, (*key, begin)).fetchone()
    connection.execute(
        "UPDATE memory SET valid_to = ? WHERE scope = ? AND type = ? AND valid_from <= ?"
        " AND (valid_to IS NULL OR valid_to > ?)",
        (begin, *key, begin, begin),
    )
    connection.execute(
        "INSERT INTO memory (scope, type, text, valid_from, valid_to) VALUES (?, ?, ?, ?, ?)",
        (*key, memory.text, begin, end),
    )


def _memory(kind: str, id: str, type: str, text: str, valid_from: int, valid_to: int | None) -> Memory:
    end = None if valid_to is None else moment(valid_to)
    return Memory(MemoryScope(kind), id, MemoryType(type), text, moment(valid_from), end)
