"""Lists the scopes that something is remembered of, reads all that is kept of one, and removes it for good.

It is for those who answer for personal data: `close` and what replaces a memory leave it on record, this does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from flowengine.agents.memory.database import MemoryDatabase, SqlConnection, SQLDatabase, moment, scope_number
from flowengine.agents.memory.items import word_index
from flowengine.agents.memory.scopes.memories import MemoryScope, parse_thread_scope_id
from flowengine.errors import DefinitionError


class KeptScope(NamedTuple):
    """A scope, and how much is kept of it."""

    scope: MemoryScope
    scope_id: str
    entries: int
    """Items, memories (also those that hold no more) and messages."""
    last: datetime
    """When the newest of them began."""


async def list_scopes(database: SQLDatabase) -> Sequence[KeptScope]:
    """All scopes that something is kept of, by kind and id."""
    return await database.read(partial(_list_scopes, _tables_of(database)))


async def read_scope(database: SQLDatabase, scope: MemoryScope, scope_id: str) -> Sequence[Mapping[str, Any]]:
    """Everything that is kept of a scope, as JSON can hold it; of a channel and a thread their messages as well."""
    return await database.read(lambda connection: list(_read(_tables_of(database), scope, scope_id, connection)))


async def remove_scope(database: SQLDatabase, scope: MemoryScope, scope_id: str) -> int:
    """Removes everything that is kept of a scope, and says how many entries that were."""
    return await database.write(partial(_remove, _tables_of(database), scope, scope_id))


def _tables_of(database: SQLDatabase) -> Sequence[str]:
    """The tables whose rows belong to a scope: items are kept in SQLite alone."""
    return ("memory", "item") if isinstance(database, MemoryDatabase) else ("memory",)


_COLUMNS: Final = {
    "memory": ("type", "text", "valid_from", "valid_to"),
    "item": ("subject", "text", "valid_from", "valid_to", "metadata"),
    "message": ("thread", "author", "text", "at"),
}
_TIMES: Final = ("valid_from", "valid_to", "at")


def _list_scopes(tables: Sequence[str], connection: SqlConnection) -> Sequence[KeptScope]:
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    counts = [
        f"SELECT scope.kind, scope.id, count(*), max({table}.valid_from) FROM {table} JOIN scope"
        f" ON scope.number = {table}.scope GROUP BY scope.kind, scope.id"
        for table in tables
    ]
    for query in (*counts, "SELECT 'channel', channel, count(*), max(at) FROM message GROUP BY channel"):
        for kind, id, entries, last in connection.execute(query).fetchall():
            before, latest = totals.get((kind, id), (0, last))
            totals[kind, id] = before + entries, max(last, latest)
    return [KeptScope(MemoryScope(kind), id, *_of(totals[kind, id])) for kind, id in sorted(totals)]


def _of(total: tuple[int, int]) -> tuple[int, datetime]:
    entries, last = total
    return entries, moment(last)


def _read(
    tables: Sequence[str], scope: MemoryScope, scope_id: str, connection: SqlConnection
) -> Iterator[Mapping[str, Any]]:
    number = scope_number(connection, scope.value, scope_id)
    for table in tables if number is not None else ():
        yield from _rows(table, "scope = ? ORDER BY valid_from, number", (number,), connection)
    messages = _messages_of(scope, scope_id)
    if messages is not None:
        where, values = messages
        yield from _rows("message", f"{where} ORDER BY at", values, connection)


def _rows(table: str, where: str, values: Sequence[Any], connection: SqlConnection) -> Iterator[Mapping[str, Any]]:
    columns = _COLUMNS[table]
    for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", values).fetchall():
        fields = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        times = {name: moment(fields[name]).isoformat() for name in _TIMES if name in fields}
        more = {"metadata": json.loads(fields["metadata"])} if "metadata" in fields else {}
        yield {"kept_as": table, **fields, **times, **more}


def _messages_of(scope: MemoryScope, scope_id: str) -> tuple[str, tuple[str, ...]] | None:
    """Which messages belong to a scope."""
    if scope is MemoryScope.CHANNEL:
        return "channel = ?", (scope_id,)
    if scope is not MemoryScope.THREAD:
        return None
    try:
        channel, ts = parse_thread_scope_id(scope_id)
    except DefinitionError:  # A name that a flow gave to its thread.
        return None
    return "channel = ? AND (thread = ? OR ts = ?)", (channel, ts, ts)


def _remove(tables: Sequence[str], scope: MemoryScope, scope_id: str, connection: Any) -> int:
    number = scope_number(connection, scope.value, scope_id)
    messages = _messages_of(scope, scope_id)
    removed = 0
    if "item" in tables:
        connection.execute("PRAGMA secure_delete = ON")  # What stood there is overwritten.
        if number is not None:
            word_index.remove(connection, number)
    for table in tables if number is not None else ():
        removed += _delete(connection, table, "scope = ?", (number,))
    if number is not None:
        connection.execute("DELETE FROM scope WHERE number = ?", (number,))
    if messages is not None:
        removed += _delete(connection, "message", *messages)
    if scope is MemoryScope.CHANNEL:
        connection.execute("DELETE FROM channel WHERE id = ?", (scope_id,))
    return removed


def _delete(connection: SqlConnection, table: str, where: str, values: Sequence[Any]) -> int:
    ((count,),) = connection.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchall()
    connection.execute(f"DELETE FROM {table} WHERE {where}", values)
    return count
