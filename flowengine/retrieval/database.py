"""Opens the SQLite file of an index, checks it and brings it to this version.

It knows tables and transactions. What is searched for, and how, is known in `fts`.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from flowengine.errors import DefinitionError, RunError
from flowengine.retrieval import vectors
from flowengine.retrieval.terms import TOKENIZER, VERSION, to_index_text
from flowengine.storage.sqlite_file import SQLiteFile, primary_code, read_identity, transaction, use_log

__all__ = ["IndexDatabase"]

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


class IndexDatabase(SQLiteFile):
    """The file of an index, or `:memory:`."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        """The tables as this version wants them. Words of another version are made anew from the texts."""
        self._is_new(connection)  # Before the log, which nothing of a foreign file is to be turned into.
        use_log(connection, self._patience)
        connection.execute("PRAGMA foreign_keys = ON")
        with transaction(connection):
            if self._is_new(connection):
                identity = f"PRAGMA application_id = {_APPLICATION_ID}"
                for statement in (_DOCUMENTS, _BY_HASH, vectors.SCHEMA, _WORDS, identity):
                    connection.execute(statement)
            else:
                _bring_up(connection, read_identity(connection).version)
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        application, _, tables = read_identity(connection)
        is_new = not application and not tables
        if application != _APPLICATION_ID and not is_new:
            raise DefinitionError(f"'{self.path}' is an SQLite file of something else, so it is no index")
        return is_new

    def explain(self, error: sqlite3.Error | UnicodeError | OSError) -> Exception:
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            return DefinitionError(f"'{self.path}' is no SQLite file, so it is no index")
        return RunError(f"the index '{self.path}' cannot be used: {error}")


def _bring_up(connection: sqlite3.Connection, version: int) -> None:
    """Upgrades a database of an earlier version."""
    if not any(name == "hash" for _, name, *_ in connection.execute("PRAGMA table_info(documents)")):
        _key_vectors_by_text(connection)
    if version != VERSION:
        connection.execute("DROP TABLE words")
        connection.execute(_WORDS)
        texts = connection.execute("SELECT row, text FROM documents").fetchall()
        rows = ((row, to_index_text(text)) for row, text in texts)
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
