"""Keeps the SQLite file of memories: its tables, and what its errors mean to a user.

    scope    whose memories there are; a number stands for kind and id
    memory   texts by scope and type; the one without `valid_to` holds
    channel  where the bot is; its last activity
    message  what was said there
    item     single things to remember
    item_words  the words of items, each with its scope's number before it, so that no search can leave its scope
    word     in how many items of a scope a word is
    word_version  by which rules the words were made

It knows tables, not what they mean.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from flowengine.core.storage import SQLiteFile, primary_code, read_identity, reason_of, use_log
from flowengine.errors import (
    FlowEngineError,
    NotJournalableError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreVersionError,
)

# --- What SQL of memories may count on, whatever the database

T = TypeVar("T")

NO_LIMIT: Final = 2**62
"""Rows, where all are wanted."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Rows(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class SqlConnection(Protocol):
    """Executes statements inside a transaction."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...


class SQLDatabase(Protocol):
    """Runs work on its connection, outside of the event loop's thread."""

    async def read(self, work: Callable[[Any], T]) -> T: ...

    async def write(self, work: Callable[[Any], T]) -> T:
        """All of the work, or nothing of it; one writer at a time."""
        ...


def instant(time: datetime) -> int:
    """A time as it is kept: whole microseconds of Unix time.

    >>> moment(instant(datetime(2025, 3, 1, 9, 0, 0, 5, tzinfo=UTC))).isoformat()
    '2025-03-01T09:00:00.000005+00:00'
    """
    return (time - _EPOCH) // _MICROSECOND


def moment(instant: int) -> datetime:
    """A kept time, in UTC."""
    return _EPOCH + instant * _MICROSECOND


def scope_number(connection: SqlConnection, kind: str, id: str, *, make: bool = False) -> int | None:
    """The number of a scope; None where it is not known, unless it is to be made."""
    row = connection.execute("SELECT number FROM scope WHERE kind = ? AND id = ?", (kind, id)).fetchone()
    if row is None and make:
        row = connection.execute("INSERT INTO scope (kind, id) VALUES (?, ?) RETURNING number", (kind, id)).fetchone()
    return None if row is None else row[0]


_APPLICATION_ID: Final = 0x464C4D45
"""`FLME`, in the header of the file."""
_VERSION: Final = 1
_ITEM_BY_NUMBER: Final = (
    "CREATE INDEX IF NOT EXISTS item_by_number ON item (scope, number) WHERE subject IS NULL AND valid_to IS NULL"
)
"""Finds the neighbours of an item without a look at other scopes."""
_SCHEMA: Final = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS scope (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, items INTEGER NOT NULL DEFAULT 0,
        UNIQUE (kind, id)
    );
    CREATE TABLE IF NOT EXISTS memory (
        scope INTEGER NOT NULL REFERENCES scope, type TEXT NOT NULL, text TEXT NOT NULL,
        valid_from INTEGER NOT NULL, valid_to INTEGER,
        number INTEGER PRIMARY KEY
    );
    CREATE INDEX IF NOT EXISTS memory_by_time ON memory (scope, type, valid_from);
    CREATE TABLE IF NOT EXISTS channel (id TEXT PRIMARY KEY, name TEXT NOT NULL, last_activity INTEGER) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS message (
        channel TEXT NOT NULL, ts TEXT NOT NULL, thread TEXT,
        author TEXT NOT NULL, text TEXT NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (channel, ts)
    );
    CREATE INDEX IF NOT EXISTS message_by_time ON message (channel, at);
    CREATE INDEX IF NOT EXISTS message_by_thread ON message (channel, thread, at) WHERE thread IS NOT NULL;
    CREATE TABLE IF NOT EXISTS item (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope INTEGER NOT NULL REFERENCES scope,
        subject TEXT, text TEXT NOT NULL, valid_from INTEGER NOT NULL, valid_to INTEGER, metadata TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS item_by_time ON item (scope, valid_from);
    CREATE INDEX IF NOT EXISTS item_by_subject ON item (scope, subject, valid_from) WHERE subject IS NOT NULL;
    {_ITEM_BY_NUMBER};
    CREATE VIRTUAL TABLE IF NOT EXISTS item_words USING fts5 (
        words, content = '', detail = none, tokenize = "ascii tokenchars '_'"
    );
    CREATE TABLE IF NOT EXISTS word (
        scope INTEGER NOT NULL, word TEXT NOT NULL, items INTEGER NOT NULL, PRIMARY KEY (scope, word)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS word_version (version INTEGER NOT NULL);
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {_VERSION};
    COMMIT;
"""


class MemoryDatabase(SQLiteFile):
    """The file of memories; `:memory:` keeps nothing."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        application, version, tables = read_identity(connection)
        if application == _APPLICATION_ID and version > _VERSION:
            raise StoreVersionError(
                f"{self.path} was written by a newer FlowEngine (version {version} of the memory store; this one reads "
                f"up to {_VERSION}): upgrade FlowEngine to use it"
            )
        if application != _APPLICATION_ID:
            if tables:
                raise StoreCorruptError(f"{self.path} is a SQLite database, but no memory store: give another path")
            use_log(connection, self._patience)
            connection.executescript(_SCHEMA)
        else:
            with suppress(sqlite3.OperationalError):  # Files of before lack it, and are only slower without.
                connection.execute(_ITEM_BY_NUMBER)

    def explain(self, error: sqlite3.Error | UnicodeError | OSError) -> FlowEngineError:
        path, code = self.path, primary_code(error)
        if isinstance(error, OSError):
            return StoreUnavailableError(f"the folder of {path} cannot be made: {error.strerror}")
        if isinstance(error, UnicodeEncodeError):
            return NotJournalableError(f"a text cannot be kept in {path}, it holds half a surrogate pair ({error})")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, UnicodeError):
            return StoreCorruptError(f"{path} is damaged, or is no memory store ({error}): restore it from a copy")
        if code == sqlite3.SQLITE_ERROR and "no such" in str(error):
            return StoreCorruptError(f"{path} lacks a part of its tables ({error}): restore it from a copy")
        return StoreUnavailableError(f"{path} {reason_of(code, path)} ({error})")
