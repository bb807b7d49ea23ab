"""The SQLite file of memories: its tables, its connection, and what its errors mean to a user.

    scope    whose memories there are; a number stands for kind and id
    memory   texts by scope and type; the one without `valid_to` holds
    channel  where the bot is; its last activity
    message  what was said there
    item     single things to remember
    item_words  the words of items, each with its scope's number before it, so that no search can leave its scope
    word     in how many items of a scope a word is
    word_version  by which rules the words were made

It knows tables, not what they mean. One connection, used by one thread
at a time; every use runs in a worker thread, so that no event loop waits for a disk.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from anyio import to_thread

from flowengine.errors import (
    FlowEngineError,
    NotJournalableError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreVersionError,
)
from flowengine.storage.private_file import make_private

__all__ = ["NO_LIMIT", "MemoryDatabase", "Rows", "SQLDatabase", "SqlConnection", "instant", "moment", "scope_number"]

# --- What SQL of memories may count on, whatever the database

T = TypeVar("T")

NO_LIMIT: Final = 2**62
"""Rows, where all are wanted."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Rows(Protocol):
    """What a statement gave."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class SqlConnection(Protocol):
    """Where statements go, inside a transaction."""

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


class MemoryDatabase:
    """One file, opened (and made, with its folder) at its first use; `:memory:` keeps nothing."""

    def __init__(self, path: str | os.PathLike[str], *, patience: float = 10.0) -> None:
        """`patience`: seconds that a write waits while another process writes."""
        self.path = os.fspath(path)
        self._patience = patience
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await to_thread.run_sync(self._used, work)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """All of the work, or nothing of it."""
        return await to_thread.run_sync(self._used, partial(_in_transaction, work))

    def close(self) -> None:
        """Let go of the file; a later use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _used(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._opened()
                return work(self._connection)
            except (sqlite3.Error, UnicodeError) as error:
                raise _explained(self.path, error) from error

    def _opened(self) -> sqlite3.Connection:
        try:
            if self.path != ":memory:":
                make_private(Path(self.path))
        except OSError as error:
            raise StoreUnavailableError(f"the folder of {self.path} cannot be made: {error.strerror}") from error
        connection = sqlite3.connect(
            self.path, timeout=self._patience, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            _prepare(self.path, connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(path: str, connection: sqlite3.Connection) -> None:
    """Refuse what is not ours or is too new; make the tables of a new file."""
    connection.execute("PRAGMA trusted_schema = OFF")
    query = (
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version"
    )
    application, version, tables = connection.execute(query).fetchone()
    if application == _APPLICATION_ID and version > _VERSION:
        raise StoreVersionError(
            f"{path} was written by a newer FlowEngine (version {version} of the memory store; this one reads up to "
            f"{_VERSION}): upgrade FlowEngine to use it"
        )
    if application != _APPLICATION_ID:
        if tables:
            raise StoreCorruptError(f"{path} is a SQLite database, but no memory store: give another path")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)
    connection.execute("PRAGMA synchronous = NORMAL")


def _in_transaction(work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        value = work(connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return value


def _explained(path: str, error: sqlite3.Error | UnicodeError) -> FlowEngineError:
    """What went wrong, as an error of ours that says what to do."""
    if isinstance(error, UnicodeEncodeError):
        return NotJournalableError(f"a text cannot be kept in {path}, it holds half a surrogate pair ({error})")
    code: Any = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, UnicodeError):
        return StoreCorruptError(f"{path} is damaged, or is no memory store ({error}): restore it from a copy")
    if primary == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return StoreCorruptError(f"{path} lacks a part of its tables ({error}): restore it from a copy")
    return StoreUnavailableError(f"{path} {_REASONS.get(primary, 'cannot be used')} ({error})")


_REASONS: Final[dict[int | None, str]] = {
    sqlite3.SQLITE_BUSY: "is locked by another process; wait until it ends, or give another path",
    sqlite3.SQLITE_LOCKED: "is locked by another process; wait until it ends, or give another path",
    sqlite3.SQLITE_READONLY: "is read-only; make the file and its folder writable, or give another path",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; the file and its folder must be readable and writable",
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full; free some space",
}
