"""Transactions over one connection of SQLite's: all of them, or nothing, and none is left open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.core.storage.sqlite_file import open_connection, transaction
from flowengine.errors import StoreUnavailableError
from flowengine.journal.sqlite.database import connect
from flowengine.journal.sqlite.tables import SqliteTables

CHECKED_AT_THE_END = """
    PRAGMA foreign_keys = ON;
    CREATE TABLE parent (number INTEGER PRIMARY KEY);
    CREATE TABLE child (parent INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
"""
"""A row of `child` without its parent is refused by COMMIT, which leaves the transaction open."""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = open_connection(tmp_path / "a.db", 1.0)
    made.executescript(CHECKED_AT_THE_END)
    yield made
    made.close()


def test_a_transaction_whose_end_fails_is_not_left_open(connection: sqlite3.Connection, tmp_path: Path) -> None:
    with pytest.raises(sqlite3.IntegrityError), transaction(connection):
        connection.execute("INSERT INTO child VALUES (1)")
    assert not connection.in_transaction
    other = open_connection(tmp_path / "a.db", 0.0)
    with transaction(other):
        other.execute("INSERT INTO parent VALUES (1)")
    other.close()
    with transaction(connection):
        connection.execute("INSERT INTO child VALUES (1)")
    assert connection.execute("SELECT count(*) FROM child").fetchone() == (1,)


def test_a_store_whose_commit_fails_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    tables = SqliteTables(path, connect(path, "process", 1.0))
    tables.connection.executescript(CHECKED_AT_THE_END)

    def change(before: object) -> int:
        tables.connection.execute("INSERT INTO child VALUES (1)")
        return 1

    with pytest.raises(StoreUnavailableError, match="FOREIGN KEY"):
        tables.revise("kind", "key", change)
    assert tables.recall("kind", "key") is None
    tables.revise("kind", "key", lambda before: 2)
    assert tables.recall("kind", "key") == 2
    tables.connection.close()
