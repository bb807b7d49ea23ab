"""Keeps memories in a database: what holds, and everything that held before.

It knows SQL and the rule of validity. What a memory says is other modules' matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from flowengine.agents.memory.database import NO_LIMIT, SqlConnection, SQLDatabase, instant, moment, scope_number
from flowengine.agents.memory.scopes.channel_messages import Channel, ChannelMessage, ChannelMessages
from flowengine.agents.memory.scopes.memories import (
    Memory,
    MemoryScope,
    MemoryType,
    aware,
    days_of,
    scope_of,
    thread_scope_id,
    type_of,
)
from flowengine.errors import DefinitionError, refuse_other_kind

# --- Messages of channels in a database

_NEWEST_FIRST: Final = "ORDER BY at DESC, ts DESC LIMIT ?"
_MESSAGE: Final = """
    INSERT INTO message (channel, ts, thread, author, text, at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (channel, ts) DO UPDATE SET
        thread = excluded.thread, author = excluded.author, text = excluded.text, at = excluded.at
"""
_CHANNEL: Final = "INSERT INTO channel (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
_TOP_LEVEL: Final = "(thread IS NULL OR thread = ts)"


class SQLConversationStore:
    """A `ConversationStore` in a SQLite file, or on a PostgreSQL server."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    async def add(self, channel_id: str, channel_name: str, messages: Sequence[ChannelMessage]) -> None:
        refuse_other_kind(channel_id, str, "a channel's id is text", DefinitionError)
        refuse_other_kind(channel_name, str, "a channel's name is text", DefinitionError)
        if not channel_id:
            raise DefinitionError("a channel needs an id, found the empty text")
        await self._database.write(partial(_add, channel_id, channel_name, messages))

    async def messages(
        self, channel_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> ChannelMessages:
        return await self._since(channel_id, "channel = ? AND at >= ?", since, limit)

    async def top_level(
        self, channel_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> ChannelMessages:
        return await self._since(channel_id, f"channel = ? AND at >= ? AND {_TOP_LEVEL}", since, limit)

    async def thread(self, channel_id: str, ts: str, *, limit: int | None = None) -> ChannelMessages:
        first = await self._messages("channel = ? AND ts = ?", channel_id, ts, limit=1)
        rest = None if limit is None else max(limit - len(first), 0)
        others = await self._messages("channel = ? AND thread = ? AND ts <> ?", channel_id, ts, ts, limit=rest)
        return await self._channel(channel_id, (*first, *others))

    async def channels(self, *, active_since: datetime | None = None) -> Sequence[Channel]:
        where, values = (
            ("", ()) if active_since is None else ("WHERE last_activity >= ?", (_to_stored_time(active_since),))
        )
        query = f"SELECT id, name, last_activity FROM channel {where}"
        rows = await self._rows(query, *values)
        channels = [Channel(id, name, None if last is None else moment(last)) for id, name, last in rows]
        return sorted(channels, key=lambda each: (each.name, each.id))  # Databases sort texts in orders of their own.

    async def _since(self, channel_id: str, where: str, since: datetime | None, limit: int | None) -> ChannelMessages:
        begin = -(2**63) if since is None else _to_stored_time(since)
        return await self._channel(channel_id, await self._messages(where, channel_id, begin, limit=limit))

    async def _messages(self, where: str, *values: Any, limit: int | None) -> tuple[ChannelMessage, ...]:
        """The newest `limit` of them, in the order of time."""
        query = f"SELECT ts, author, text, at, thread FROM message WHERE {where} {_NEWEST_FIRST}"
        rows = await self._rows(query, *values, NO_LIMIT if limit is None else limit)
        return tuple(
            ChannelMessage(ts, user, text, moment(at), thread) for ts, user, text, at, thread in reversed(rows)
        )

    async def _channel(self, channel_id: str, messages: Sequence[ChannelMessage]) -> ChannelMessages:
        names = await self._rows("SELECT name FROM channel WHERE id = ?", channel_id)
        return ChannelMessages(channel_id, names[0][0] if names else channel_id, tuple(messages))

    async def _rows(self, query: str, *values: Any) -> list[Any]:
        return await self._database.read(partial(_all, query, values))


def _all(query: str, values: Sequence[Any], connection: SqlConnection) -> list[Any]:
    return connection.execute(query, values).fetchall()


def _add(id: str, name: str, messages: Sequence[ChannelMessage], connection: SqlConnection) -> None:
    for each in messages:
        connection.execute(_MESSAGE, (id, each.ts, each.thread_ts, each.user, each.text, instant(each.at)))
    connection.execute(_CHANNEL, (id, name))
    if messages:
        last = max(instant(each.at) for each in messages)
        later = "UPDATE channel SET last_activity = ? WHERE id = ? AND (last_activity IS NULL OR last_activity < ?)"
        connection.execute(later, (last, id, last))


def _to_stored_time(time: datetime) -> int:
    return instant(aware("a time", time))


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
        key = (scope_of(scope).value, scope_id, type_of(type).value)
        holds, values = "valid_to IS NULL", key
        if at is not None:
            when = instant(aware("at", at))
            holds, values = "valid_from <= ? AND (valid_to IS NULL OR valid_to > ?)", (*key, when, when)
        memories = await self._memories(f"WHERE kind = ? AND id = ? AND type = ? AND {holds}", *values)
        return memories[0] if memories else None

    async def find_recent_thread_memories(
        self, channel_id: str, days: float, *, now: datetime | None = None
    ) -> Sequence[Memory]:
        begin = instant(aware("now", now or datetime.now(UTC)) - days_of("days", days))
        first = thread_scope_id(channel_id, " ").removesuffix(" ")  # `channel:`, and what follows it in any thread's id
        where = "WHERE kind = 'thread' AND id >= ? AND id < ? AND valid_to IS NULL AND valid_from >= ?"
        return await self._memories(where, first, first[:-1] + chr(ord(":") + 1), begin)

    async def history(self, scope: MemoryScope, scope_id: str, type: MemoryType) -> Sequence[Memory]:
        where = "WHERE kind = ? AND id = ? AND type = ?"
        return await self._memories(where, scope_of(scope).value, scope_id, type_of(type).value)

    async def _memories(self, where: str, *values: Any) -> list[Memory]:
        query = f"{_FIELDS} {where} ORDER BY valid_from DESC, memory.number DESC"
        return [_memory(*row) for row in await self._database.read(partial(_all, query, values))]


def _save(memory: Memory, connection: SqlConnection) -> None:
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
