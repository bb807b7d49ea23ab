"""Memories on a real PostgreSQL server: many writers, a restart, and errors that hold no password."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from flowengine.agents.memory.database import SqlConnection
from flowengine.agents.memory.postgres import PostgresMemoryDatabase
from flowengine.agents.memory.scopes.channel_messages import ChannelMessage
from flowengine.agents.memory.scopes.memories import Memory, MemoryScope, MemoryType
from flowengine.agents.memory.scopes.sql_stores import SQLConversationStore, SQLMemoryRepository
from flowengine.errors import StoreCorruptError, StoreUnavailableError, StoreVersionError
from tests.support.postgres import PASSWORD, Server, server

START = datetime(2025, 3, 1, tzinfo=UTC)
CHANNEL, SHORT = MemoryScope.CHANNEL, MemoryType.SHORT_TERM


@pytest.fixture
def database() -> Generator[PostgresMemoryDatabase]:
    made = PostgresMemoryDatabase(server().database())
    yield made
    made.close()


def memory(minute: int) -> Memory:
    return Memory(CHANNEL, "C1", SHORT, f"minute {minute}", START + timedelta(minutes=minute))


async def test_many_writers_on_many_connections_leave_one_memory_that_holds():
    url = server().database()
    databases = [PostgresMemoryDatabase(url) for _ in range(4)]
    async with anyio.create_task_group() as tasks:
        for minute in range(24):
            tasks.start_soon(SQLMemoryRepository(databases[minute % 4]).save, memory(minute))
    history = await SQLMemoryRepository(databases[0]).history(CHANNEL, "C1", SHORT)
    assert [each.text for each in history] == [f"minute {23 - number}" for number in range(24)]
    assert [each.valid_to for each in history] == [None, *(each.valid_from for each in history[:-1])]
    for each in databases:
        each.close()


async def test_a_connection_that_broke_is_made_anew():
    own = Server()
    try:
        database = PostgresMemoryDatabase(own.database())
        repository = SQLMemoryRepository(database)
        await repository.save(memory(1))
        own.restart()
        await repository.save(memory(2))
        assert [each.text for each in await repository.history(CHANNEL, "C1", SHORT)] == ["minute 2", "minute 1"]
        database.close()
    finally:
        own.stop()


async def test_a_write_is_whole_or_nothing(database: PostgresMemoryDatabase):
    def broken(connection: SqlConnection) -> None:
        connection.execute("INSERT INTO channel (id, name) VALUES (?, ?)", ("C1", "x"))
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(broken)
    assert await SQLConversationStore(database).channels() == []


async def test_what_cannot_be_kept_or_reached_is_told_without_the_password(database: PostgresMemoryDatabase):
    store = SQLConversationStore(database)
    for text in ("\x00", "\ud800"):
        with pytest.raises(StoreUnavailableError, match="cannot hold such text"):
            await store.add("C1", "general", [ChannelMessage("1", "aki", text, START)])
    await store.add("C1", "general", [ChannelMessage("1", "aki", "fine", START)])
    refused = PostgresMemoryDatabase(server().url(password="wrong-" + PASSWORD))
    with pytest.raises(StoreUnavailableError, match="refuses the user or the password") as error:
        await SQLConversationStore(refused).channels()
    assert PASSWORD not in str(error.value)
    with pytest.raises(StoreUnavailableError, match="cannot be read: write postgresql://") as error:
        PostgresMemoryDatabase(f"postgresql://flow:{PASSWORD}@x@127.0.0.1/db")
    assert PASSWORD not in str(error.value)


async def test_a_newer_and_a_damaged_store_are_told(database: PostgresMemoryDatabase):
    await database.write(lambda connection: connection.execute("UPDATE version SET version = 99"))
    database.close()
    with pytest.raises(StoreVersionError, match="was written by a newer FlowEngine"):
        await SQLConversationStore(database).channels()
    other = PostgresMemoryDatabase(server().database())
    await other.write(lambda connection: connection.execute("DROP TABLE channel"))
    with pytest.raises(StoreCorruptError, match="lacks a part of its tables"):
        await SQLConversationStore(other).channels()
    other.close()
