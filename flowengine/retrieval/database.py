"""Opens the SQLite file of an index, checks it and brings it to this version; one thread at a time uses it.

It knows tables and transactions. What is searched for, and how, is known in `fts`.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

import anyio.to_thread

from flowengine.errors import DefinitionError, RunError
from flowengine.retrieval import vectors
from flowengine.retrieval.terms import TOKENIZER, VERSION, indexed
from flowengine.storage.private_file import make_private

__all__ = ["IndexDatabase"]

T = TypeVar("T")

_PATIENCE: Final = 10.0
"""Seconds to wait for another process that writes."""
_APPLICATION_ID: Final = 0x466C5269
"""Says whose file it is (SQLite's `application_id`)."""

_DOCUMENTS: Final = """
CREATE TABLE documents (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL,
    source TEXT,
    hash BLOB NOT NULL DEFAULT x''
)
"""
"""`source`: where a document is kept up with; NULL for one that was added by hand."""
_BY_HASH: Final = "CREATE INDEX by_hash ON documents (hash)"
_WORDS: Final = f"""CREATE VIRTUAL TABLE words USING fts5(terms, content='', tokenize="{TOKENIZER}")"""


class IndexDatabase:
    """A file, or `:memory:`; opened when it is first used."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What some work gives that writes nothing, done in a thread and in one transaction."""
        return await anyio.to_thread.run_sync(self._run, work, "DEFERRED")

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What some work gives, done in a thread and in one transaction: all of it, or nothing."""
        return await anyio.to_thread.run_sync(self._run, work, "IMMEDIATE")

    def _run(self, work: Callable[[sqlite3.Connection], T], kind: str) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._opened()
                with _transaction(self._connection, kind):
                    return work(self._connection)
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                    raise DefinitionError(f"'{self.path}' is no SQLite file, so it is no index") from error
                raise RunError(f"the index '{self.path}' cannot be used: {error}") from error

    def close(self) -> None:
        """Let go of the file; the next use opens it again. What was in memory is gone."""
        with self._lock:
            if self._connection is not None:
                self._closing()
                self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self.path != ":memory:":
            make_private(Path(self.path))
        connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        self._closing = weakref.finalize(self, connection.close)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        with _transaction(connection, "IMMEDIATE"):
            self._prepare(connection)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """The tables as this version wants them. Words of another version are made anew from the texts."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            identity = f"PRAGMA application_id = {_APPLICATION_ID}"
            for statement in (_DOCUMENTS, _BY_HASH, vectors.SCHEMA, _WORDS, identity):
                connection.execute(statement)
        elif application != _APPLICATION_ID:
            raise DefinitionError(f"'{self.path}' is an SQLite file of something else, so it is no index")
        else:
            _bring_up(connection, version)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _bring_up(connection: sqlite3.Connection, version: int) -> None:
    """What an earlier version made, as this one wants it."""
    if not any(name == "hash" for _, name, *_ in connection.execute("PRAGMA table_info(documents)")):
        _key_vectors_by_text(connection)
    if version != VERSION:
        connection.execute("DROP TABLE words")
        connection.execute(_WORDS)
        texts = connection.execute("SELECT row, text FROM documents").fetchall()
        rows = ((row, indexed(text)) for row, text in texts)
        connection.executemany("INSERT INTO words (rowid, terms) VALUES (?, ?)", rows)


def _key_vectors_by_text(connection: sqlite3.Connection) -> None:
    """Vectors once belonged to documents. None of them is lost."""
    connection.execute("ALTER TABLE documents ADD COLUMN source TEXT")
    connection.execute("ALTER TABLE documents ADD COLUMN hash BLOB NOT NULL DEFAULT x''")
    texts = connection.execute("SELECT row, text FROM documents").fetchall()
    hashes = [(vectors.digest(text), row) for row, text in texts]
    connection.executemany("UPDATE documents SET hash = ? WHERE row = ?", hashes)
    connection.execute(_BY_HASH)
    connection.execute("ALTER TABLE vectors RENAME TO former")
    connection.execute(vectors.SCHEMA)
    connection.execute(
        "INSERT OR IGNORE INTO vectors SELECT hash, model, signs, vector FROM former JOIN documents ON row = document"
    )
    connection.execute("DROP TABLE former")


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Generator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
