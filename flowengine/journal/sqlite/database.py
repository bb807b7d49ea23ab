"""Opens the SQLite file: its tables, the settings of a connection, and what its errors mean to a user.

    run    one row a run, from its first event on; `owner` names its writer, `epoch` counts those it had,
           `labels` is a JSON object
    event  events in order; position = run number * 2**32 + the event's number, counted from 0
    beside what is kept beside the runs; made when something is
    blob   contents of files, under their hashes
    blob_use  the runs, and the values beside them, that need a content
    digest, digest_text, origin, session  what lists tell of runs, and search in (see `index_tables`)

Each row has a checksum; that of a run is of what never changes, and `ended` is the one
of its end. Rows that were written before there were checksums have none, and are read as they are.

That one integer key makes an append touch the end of one B-tree: 12 µs for the two events of a node where a
two-column key costs 15 (measured). It knows tables and bytes, not events.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from flowengine.core.storage import (
    SQLITE_ERRORS,
    open_connection,
    primary_code,
    read_identity,
    reason_of,
    transaction,
    use_log,
)
from flowengine.engine import Durability
from flowengine.errors import JournalError, StoreCorruptError, StoreUnavailableError, StoreVersionError

# --- Checksums


def checksum_of_event(position: int, body: bytes) -> int:
    """The checksum of a row of events, whose position names its run too."""
    return crc32(body, crc32(position.to_bytes(8, "big", signed=True)))


def checksum_of_texts(*values: Any) -> int:
    """The checksum of some texts and numbers that stand together; None is as an empty text.

    >>> checksum_of_texts("r1", 1.5, None) == checksum_of_texts("r1", 1.5, "") != checksum_of_texts("r2", 1.5, "")
    True
    """
    return crc32("\0".join("" if value is None else str(value) for value in values).encode())


SPAN: Final = 2**32
"""Positions that a run has."""

_APPLICATION_ID: Final = 0x464C4F57
"""`FLOW`, in the header of the file."""
_VERSION: Final = 6
_BLOB: Final = """
    CREATE TABLE IF NOT EXISTS blob (
        number INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, body BLOB NOT NULL
    )
"""
_BLOB_USE: Final = """
    CREATE TABLE IF NOT EXISTS blob_use (
        owner TEXT NOT NULL, hash TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (owner, hash)
    ) WITHOUT ROWID
"""
_BLOB_USE_INDEX: Final = "CREATE INDEX IF NOT EXISTS blob_use_hash ON blob_use (hash)"
_LISTS: Final = (
    "CREATE INDEX IF NOT EXISTS run_list ON run (started, status, flow)",
    "CREATE TABLE IF NOT EXISTS digest (number INTEGER PRIMARY KEY, body TEXT NOT NULL, inputs TEXT NOT NULL, "
    "outputs TEXT NOT NULL, errors TEXT NOT NULL, is_new INTEGER NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS digest_new ON digest (number) WHERE is_new",
    "CREATE VIRTUAL TABLE IF NOT EXISTS digest_text USING fts5"
    "(inputs, outputs, errors, tokenize = 'unicode61 remove_diacritics 0')",
    "CREATE TABLE IF NOT EXISTS origin (run_id TEXT, number INTEGER, PRIMARY KEY (run_id, number)) WITHOUT ROWID",
)
_SESSION: Final = "CREATE TABLE IF NOT EXISTS session (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
_SESSION_INDEX: Final = "CREATE INDEX IF NOT EXISTS session_name ON session (name)"
_IN_DIGEST: Final = "CASE WHEN json_valid(CAST(body AS TEXT)) THEN json_extract(CAST(body AS TEXT), '$[8]') END"
"""The session of a run that has ended; none where its digest is damaged."""
_SCHEMA: Final = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS run (
        number INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        flow TEXT NOT NULL,
        status TEXT NOT NULL,
        started REAL NOT NULL,
        finished REAL,
        path TEXT,
        owner TEXT,
        epoch INTEGER NOT NULL DEFAULT 1,
        labels TEXT,
        checksum INTEGER,
        ended INTEGER
    );
    CREATE TABLE IF NOT EXISTS event (position INTEGER PRIMARY KEY, body TEXT NOT NULL, checksum INTEGER);
    {_BLOB};
    {_BLOB_USE};
    {_BLOB_USE_INDEX};
    {";".join(_LISTS)};
    {_SESSION};
    {_SESSION_INDEX};
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {_VERSION};
    COMMIT;
"""

_BESIDE_BEFORE: Final = """
    CREATE TABLE IF NOT EXISTS beside (
        kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key)
    ) WITHOUT ROWID
"""
_MIGRATIONS: Final = {
    1: ("ALTER TABLE run ADD COLUMN labels TEXT",),
    2: (
        "ALTER TABLE run ADD COLUMN checksum INTEGER",
        "ALTER TABLE run ADD COLUMN ended INTEGER",
        "ALTER TABLE event ADD COLUMN checksum INTEGER",
        _BESIDE_BEFORE,
        "ALTER TABLE beside ADD COLUMN checksum INTEGER",
    ),
    3: (_BLOB, _BLOB_USE, _BLOB_USE_INDEX),
    4: _LISTS,
    5: (
        _SESSION,
        _SESSION_INDEX,
        f"INSERT OR IGNORE INTO session SELECT number, {_IN_DIGEST} FROM digest WHERE {_IN_DIGEST} <> ''",
    ),
}
"""Version of a store → the statements that make the next one of it. They change no row."""

BESIDE: Final = """
    CREATE TABLE IF NOT EXISTS beside (
        kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, value TEXT NOT NULL, checksum INTEGER,
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID
"""

_GROWN: Final = 2**20
"""An fsync that also makes its file longer costs twice one that does not (measured: 100–140 instead of 55 µs
of CPU). So for `full` the log is grown to 1 MiB once, which costs 1.5 ms, and is used again from its start when
250 pages have filled it; growing to 4 MiB costs 6 ms and gains nothing more."""

_SETTINGS: Final[dict[Durability, str]] = {
    "full": f"PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA wal_autocheckpoint = {_GROWN // 4096 - 6}",
    "process": "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 1000",
    "memory": "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 1000",
}
_LOG_HEADER: Final = 32
"""Bytes of a log without any page."""
_LOG_LIMIT: Final = 64 * 2**20
"""Bytes that the log keeps on disk after one very large commit."""


def connect(path: Path, durability: Durability, patience: float) -> sqlite3.Connection:
    """An open, checked and configured store; made where there is none. `patience` is in seconds."""
    try:
        _save_log(path)
        connection = open_connection(path, patience)
    except OSError as error:
        raise StoreUnavailableError(f"the folder of {path} cannot be made: {error.strerror}") from error
    except SQLITE_ERRORS as error:
        raise store_error(path, error) from error
    try:
        _check(path, connection, patience)
        connection.executescript(f"{_SETTINGS[durability]}; PRAGMA journal_size_limit = {_LOG_LIMIT}")
    except BaseException as error:
        connection.close()
        if isinstance(error, SQLITE_ERRORS):
            raise store_error(path, error) from error
        raise
    return connection


def _save_log(path: Path) -> None:
    """SQLite takes a file of no or one byte for a new one, and deletes its log, which may hold every page of it."""
    with suppress(OSError):
        if os.path.getsize(path) <= 1 and os.path.getsize(f"{path}-wal") > _LOG_HEADER:
            os.truncate(path, 4096)


def _check(path: Path, connection: sqlite3.Connection, patience: float) -> None:
    """Refuse what is not ours or is too new; make the tables of a new file."""
    if _is_current(connection):
        return
    application, version, tables = read_identity(connection)
    if application == _APPLICATION_ID and version > _VERSION:
        raise StoreVersionError(
            f"{path} was written by a newer FlowEngine (store version {version}; this one reads up to {_VERSION}): "
            f"upgrade FlowEngine to use it"
        )
    if application == _APPLICATION_ID:
        if version not in (*_MIGRATIONS, _VERSION):
            raise StoreCorruptError(f"{path} says that it is of store version {version}, which never was")
        if version < _VERSION:
            _migrate(connection)
        return
    if tables:
        raise StoreCorruptError(f"{path} is a SQLite database, but not a store of FlowEngine: give another path")
    use_log(connection, patience)
    connection.executescript(_SCHEMA)


def _is_current(connection: sqlite3.Connection) -> bool:
    """Tells whether the header has the numbers of this version: they are written in one transaction with the tables."""
    return (
        _read_number(connection, "PRAGMA user_version") == _VERSION
        and _read_number(connection, "PRAGMA application_id") == _APPLICATION_ID
    )


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to this version, in one transaction; another process may have done it meanwhile."""
    with transaction(connection):
        done = read_identity(connection).version
        for version in range(done, _VERSION):
            for statement in _MIGRATIONS[version]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(done, _VERSION)}")


def _read_number(connection: sqlite3.Connection, query: str) -> int:
    return connection.execute(query).fetchone()[0]


def grow_log(path: Path, connection: sqlite3.Connection) -> None:
    """Make the log long enough: a write that is too large for the cache spills into it and is rolled back.

    Its last pages stay in the cache, so a little more is written than is wanted: 1 MiB fell short of 1 MiB.
    Where the disk has no room for that, commits are slower and nothing else.
    """
    try:
        if os.path.getsize(f"{path}-wal") >= _GROWN:
            return
    except FileNotFoundError:
        pass
    try:
        cache_size = _read_number(connection, "PRAGMA cache_size")
        try:
            connection.executescript(f"""
                PRAGMA synchronous = OFF;
                PRAGMA cache_size = 10;
                BEGIN IMMEDIATE;
                INSERT INTO event VALUES (-1, zeroblob({_GROWN + 2**14}), NULL);
            """)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
        finally:
            connection.rollback()
            connection.executescript(f"PRAGMA cache_size = {cache_size}; PRAGMA synchronous = FULL")
    except SQLITE_ERRORS as error:
        raise store_error(path, error) from error


def damage(path: Path, problem: str) -> StoreCorruptError:
    """The error for a damaged store, which names what saves the rest of it."""
    command = shlex.join(["flowengine", "runs", "repair", "--store", str(path)])
    return StoreCorruptError(f"{path} {problem}: restore it from a copy, or save what can be read with `{command}`")


def store_error(path: Path, error: sqlite3.Error | UnicodeError) -> JournalError:
    """Makes a store error with advice out of an exception."""
    code, primary = getattr(error, "sqlite_errorcode", None), primary_code(error)
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH):
        return damage(path, f"is damaged, or is no store at all ({error})")
    if code == sqlite3.SQLITE_IOERR_SHORT_READ or (code is None and "decode" in str(error)):
        return damage(path, f"is damaged ({error})")
    if primary == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return damage(path, f"lacks a part of its tables ({error})")
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path):
        primary = sqlite3.SQLITE_FULL
    reason = reason_of(primary, path) + ", then resume the run, or begin it again" * (primary == sqlite3.SQLITE_FULL)
    return StoreUnavailableError(f"{path} {reason} ({error})")


def _is_full(path: Path) -> bool:
    """Tells whether the disk has no room even for the store's smallest file; not every error of SQLite's says so."""
    try:
        return shutil.disk_usage(path.parent).free < _SMALLEST
    except OSError:
        return False


_SMALLEST: Final = 2**16
"""Bytes that any use of a store needs: those of the index of its log."""


class SqliteQueries:
    """Statements over one connection, whose errors are those of the store."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """One transaction: no other write comes between what is read and what is written."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            self.connection.rollback()  # SQLite may have done so itself, as on a full disk.
            raise

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        try:
            return self.connection.execute(statement, values).fetchall()
        except SQLITE_ERRORS as error:
            raise store_error(self.path, error) from error
