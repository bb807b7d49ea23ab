"""Everything that is kept of a scope is listed, read and removed, and nothing of another one."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from flowengine.agents.memory.database import MemoryDatabase, SQLDatabase
from flowengine.agents.memory.items.ranking import MemoryItem
from flowengine.agents.memory.items.sqlite import SQLiteMemoryItems
from flowengine.agents.memory.scopes.channel_messages import ChannelMessage
from flowengine.agents.memory.scopes.kept_scopes import list_scopes, read_scope, remove_scope
from flowengine.agents.memory.scopes.memories import Memory, MemoryScope, MemoryType, thread_scope_id
from flowengine.agents.memory.scopes.sql_stores import SQLConversationStore, SQLMemoryRepository

START = datetime(2025, 3, 1, tzinfo=UTC)
CHANNEL, THREAD, WORKSPACE = MemoryScope.CHANNEL, MemoryScope.THREAD, MemoryScope.WORKSPACE


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


def memory(text: str, scope: MemoryScope, scope_id: str, at: int = 0) -> Memory:
    return Memory(scope, scope_id, MemoryType.SHORT_TERM, text, minute(at))


def item(text: str, scope_id: str, at: int = 0, subject: str | None = None) -> MemoryItem:
    return MemoryItem(WORKSPACE, scope_id, text, minute(at), subject)


async def test_memories_and_messages_of_a_channel_go_and_those_of_others_stay(any_database: SQLDatabase):
    repository, messages = SQLMemoryRepository(any_database), SQLConversationStore(any_database)
    for each in (memory("old", CHANNEL, "C1"), memory("new", CHANNEL, "C1", 1), memory("other", CHANNEL, "C2")):
        await repository.save(each)
    for channel in ("C1", "C2"):
        await messages.add(channel, "tea", [ChannelMessage("1.0", "ada", f"hello {channel}", minute(2))])
    assert [each[:3] for each in await list_scopes(any_database)] == [(CHANNEL, "C1", 3), (CHANNEL, "C2", 2)]
    assert [each["text"] for each in await read_scope(any_database, CHANNEL, "C1")] == ["old", "new", "hello C1"]
    assert await remove_scope(any_database, CHANNEL, "C1") == 3
    assert [each[:3] for each in await list_scopes(any_database)] == [(CHANNEL, "C2", 2)]
    assert await read_scope(any_database, CHANNEL, "C1") == []
    assert await repository.history(CHANNEL, "C1", MemoryType.SHORT_TERM) == []
    assert [each.id for each in await messages.channels()] == ["C2"]


async def test_a_thread_goes_with_its_messages_and_its_channel_stays(any_database: SQLDatabase):
    repository, messages = SQLMemoryRepository(any_database), SQLConversationStore(any_database)
    thread = thread_scope_id("C1", "1.0")
    await repository.save(memory("of the thread", THREAD, thread))
    said = [("1.0", None), ("2.0", "1.0"), ("3.0", None)]
    await messages.add("C1", "tea", [ChannelMessage(ts, "ada", ts, minute(0), of) for ts, of in said])
    assert await remove_scope(any_database, THREAD, thread) == 3
    assert [each["text"] for each in await read_scope(any_database, CHANNEL, "C1")] == ["3.0"]


@pytest.mark.parametrize("is_old", [False, True])
async def test_items_go_from_the_index_and_from_the_file(database: MemoryDatabase, is_old: bool):
    items = SQLiteMemoryItems(database)
    await items.add(
        [item("the teapot is azure", "ada", 0, "teapot"), item("the teapot is vermilion", "ada", 1, "teapot")]
    )
    await items.add([item("the teapot is green", "bob")])
    if is_old:  # An index that another version made holds other words.
        await database.write(lambda connection: connection.execute("UPDATE word_version SET version = 0"))
    assert await remove_scope(database, WORKSPACE, "ada") == 2
    assert await items.search(WORKSPACE, "ada", "teapot") == []
    [found] = await items.search(WORKSPACE, "bob", "teapot")
    assert found.item.text == "the teapot is green"
    await database.write(check_index)
    database.close()
    content = await anyio.Path(database.path).read_bytes()
    assert (b"green" in content, b"azure" in content, b"vermilion" in content) == (True, False, False)


def check_index(connection: sqlite3.Connection) -> None:
    """Raises where the index holds words of an item that is not there."""
    connection.execute("INSERT INTO item_words (item_words) VALUES ('integrity-check')")
    words = {row[0] for row in connection.execute("SELECT word FROM word")}
    assert "green" in words
    assert not words & {"azure", "vermilion"}


async def test_an_unknown_scope_has_nothing(any_database: SQLDatabase):
    assert await remove_scope(any_database, WORKSPACE, "nobody") == 0
    assert await read_scope(any_database, THREAD, "a name of a flow's own") == []
