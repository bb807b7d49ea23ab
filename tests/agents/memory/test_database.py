"""The file of memories: what is refused, what errors say, and that a write is whole or nothing."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.memory.database import MemoryDatabase, instant, moment
from flowengine.errors import NotJournalableError, StoreCorruptError, StoreUnavailableError, StoreVersionError


def count(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT count(*) FROM channel").fetchone()[0]


def add(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO channel (id, name) VALUES (?, 'x')", (str(count(connection)),))


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_are_kept_to_the_microsecond(time: datetime):
    assert moment(instant(time)) == time


async def test_a_write_is_whole_or_nothing(database: MemoryDatabase):
    def broken(connection: sqlite3.Connection) -> None:
        add(connection)
        raise LookupError

    await database.write(add)
    with pytest.raises(LookupError):
        await database.write(broken)
    await database.write(add)
    assert await database.read(count) == 2


async def test_many_tasks_and_two_connections_lose_no_write(database: MemoryDatabase):
    other = MemoryDatabase(database.path)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(database.write, add)
            tasks.start_soon(other.write, add)
    assert await other.read(count) == 40
    other.close()


async def test_work_is_done_outside_the_event_loops_thread(database: MemoryDatabase):
    assert await database.read(lambda connection: threading.get_ident()) != threading.get_ident()


async def test_a_closed_store_opens_again_where_it_is_used(database: MemoryDatabase):
    await database.write(add)
    database.close()
    assert await database.read(count) == 1


async def test_another_database_is_not_touched(tmp_path: Path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(StoreCorruptError, match=r"other\.db is a SQLite database, but no memory store"):
        await MemoryDatabase(path).read(count)


async def test_a_file_that_is_no_database_is_told(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("memories " * 1000)
    with pytest.raises(StoreCorruptError, match=r"notes\.txt is damaged, or is no memory store"):
        await MemoryDatabase(path).read(count)


async def test_a_newer_store_is_refused(database: MemoryDatabase):
    await database.read(count)
    database.close()
    with sqlite3.connect(database.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreVersionError, match="written by a newer FlowEngine"):
        await database.read(count)


async def test_a_store_that_lacks_a_table_is_damaged(database: MemoryDatabase):
    await database.write(lambda connection: connection.execute("DROP TABLE channel"))
    with pytest.raises(StoreCorruptError, match="lacks a part of its tables"):
        await database.read(count)


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError, match="cannot be made"):
        await MemoryDatabase(tmp_path / "file" / "memory.db").read(count)


async def test_a_locked_store_is_told(database: MemoryDatabase):
    await database.read(count)
    impatient = MemoryDatabase(database.path, patience=0.01)
    await impatient.read(count)
    with sqlite3.connect(database.path, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="is locked by another process"):
            await impatient.write(add)
        holder.execute("ROLLBACK")
    holder.close()
    impatient.close()


async def test_text_that_is_no_text_is_told(database: MemoryDatabase):
    with pytest.raises(NotJournalableError, match="half a surrogate pair"):
        await database.write(lambda connection: connection.execute("SELECT ?", ("\ud800",)))
