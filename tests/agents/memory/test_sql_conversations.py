"""Messages in SQLite and PostgreSQL: in the order of time, each once, channels with their last activity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from flowengine.agents.memory.database import SQLDatabase
from flowengine.agents.memory.scopes.channel_messages import Channel, ChannelMessage, ChannelMessages
from flowengine.agents.memory.scopes.sql_stores import SQLConversationStore
from flowengine.errors import DefinitionError

START = datetime(2025, 3, 1, 9, tzinfo=UTC)


def said(ts: str, minute: float, thread: str | None = None, text: str = "") -> ChannelMessage:
    return ChannelMessage(ts, "aki", text or f"message {ts}", START + timedelta(minutes=minute), thread)


TALK = (said("1", 1), said("2", 2, "1"), said("3", 3, "3"), said("4", 4, "1"), said("5", 5), said("6", 6, "3"))


@pytest.fixture
def store(any_database: SQLDatabase) -> SQLConversationStore:
    return SQLConversationStore(any_database)


def ids(messages: ChannelMessages) -> list[str]:
    return [each.ts for each in messages.messages]


async def test_messages_come_in_the_order_of_time_whatever_the_order_of_adding(store: SQLConversationStore):
    await store.add("C1", "general", TALK[::-1])
    found = await store.messages("C1")
    assert found == ChannelMessages("C1", "general", TALK)
    assert [each.ts for each in found.top_level_messages] == ["1", "3", "5"]
    assert [each.ts for each in found.get_thread("1")] == ["1", "2", "4"]
    assert found.get_thread("99") == ()


async def test_the_newest_are_taken_where_there_is_a_limit(store: SQLConversationStore):
    await store.add("C1", "general", TALK)
    assert ids(await store.messages("C1", limit=2)) == ["5", "6"]
    assert ids(await store.top_level("C1", limit=2)) == ["3", "5"]
    assert ids(await store.messages("C1", since=START + timedelta(minutes=4))) == ["4", "5", "6"]
    assert ids(await store.thread("C1", "1", limit=2)) == ["1", "4"], "the first message is what a thread is about"
    assert ids(await store.thread("C1", "1", limit=1)) == ["1"]
    assert ids(await store.thread("C1", "3")) == ["3", "6"]


async def test_a_message_that_is_added_again_is_replaced(store: SQLConversationStore):
    await store.add("C1", "general", TALK)
    await store.add("C1", "general", [said("5", 5, text="corrected")])
    found = await store.messages("C1")
    assert len(found.messages) == len(TALK)
    assert found.messages[4].text == "corrected"


async def test_channels_do_not_mix(store: SQLConversationStore):
    await store.add("C1", "general", TALK[:1])
    await store.add("C2", "random", TALK[1:2])
    assert ids(await store.messages("C1")) == ["1"]
    assert ids(await store.thread("C1", "2")) == []


async def test_channels_know_their_last_activity_and_take_the_newest_name(store: SQLConversationStore):
    await store.add("C2", "silent", [])
    await store.add("C1", "old name", TALK)
    await store.add("C1", "general", [said("0", 0)])
    last = START + timedelta(minutes=6)
    assert await store.channels() == [Channel("C1", "general", last), Channel("C2", "silent", None)]
    assert await store.channels(active_since=last) == [Channel("C1", "general", last)]
    assert await store.channels(active_since=last + timedelta(seconds=1)) == []


async def test_a_channel_that_nobody_has_added_has_its_id_for_a_name(store: SQLConversationStore):
    assert await store.messages("C9") == ChannelMessages("C9", "C9")


async def test_a_channel_has_an_id(store: SQLConversationStore):
    with pytest.raises(DefinitionError, match="a channel needs an id"):
        await store.add("", "general", [])
