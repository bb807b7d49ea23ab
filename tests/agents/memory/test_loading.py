"""What is loaded for an answer, and how memories come up to date, over real stores."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowengine.agents.memory.database import MemoryDatabase
from flowengine.agents.memory.scopes.channel_messages import ChannelMemory, ChannelMessage
from flowengine.agents.memory.scopes.generation import MemoryGenerator, MemoryLimits
from flowengine.agents.memory.scopes.memories import Memory, MemoryScope, MemoryType, thread_scope_id
from flowengine.agents.memory.scopes.memory_prompt import system_prompt
from flowengine.agents.memory.scopes.memory_updater import MemoryKeeper, MemoryLoader, Windows
from flowengine.agents.memory.scopes.sql_stores import SQLConversationStore, SQLMemoryRepository
from flowengine.agents.standalone import DirectGateway
from flowengine.errors import DefinitionError, OutputError
from flowengine.models.scripted import ScriptedModel
from flowengine.models.tokens import count_tokens

NOW = datetime(2025, 3, 31, 12, tzinfo=UTC)
LONG, SHORT = MemoryType.LONG_TERM, MemoryType.SHORT_TERM
CHANNEL, THREAD, WORKSPACE = MemoryScope.CHANNEL, MemoryScope.THREAD, MemoryScope.WORKSPACE


def said(ts: str, days_ago: float, thread: str | None = None) -> ChannelMessage:
    return ChannelMessage(ts, "aki", f"message {ts}", NOW - timedelta(days=days_ago), thread)


class Bot:
    """The stores of one bot, and what works on them."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.repository = SQLMemoryRepository(database)
        self.conversations = SQLConversationStore(database)
        self.model = ScriptedModel([])

    def loader(self, **options: Any) -> MemoryLoader:
        return MemoryLoader(self.repository, self.conversations, **options)

    def keeper(self, *answers: str) -> MemoryKeeper:
        self.model = ScriptedModel(list(answers))
        generator = MemoryGenerator(self.model, DirectGateway())
        return MemoryKeeper(self.repository, self.conversations, generator)

    async def remember(self, scope: MemoryScope, id: str, type: MemoryType, text: str, days_ago: float = 1) -> None:
        await self.repository.save(Memory(scope, id, type, text, NOW - timedelta(days=days_ago)))

    async def text(self, scope: MemoryScope, id: str, type: MemoryType) -> str | None:
        found = await self.repository.find_by_scope_and_type(scope, id, type)
        return found and found.text


@pytest.fixture
async def bot(database: MemoryDatabase) -> Bot:
    """A bot in two active channels and in one that has been silent for ten days."""
    made = Bot(database)
    await made.conversations.add("C1", "general", [said("1", 1), said("2", 0.5, "1"), said("3", 0.2)])
    await made.conversations.add("C2", "dev", [said("1", 6)])
    await made.conversations.add("C3", "old", [said("1", 10)])
    return made


async def test_only_channels_that_were_active_in_the_window_are_loaded(bot: Bot):
    for channel in ("C1", "C3"):
        await bot.remember(CHANNEL, channel, LONG, f"history of {channel}")
    record = await bot.loader().load("P", "C1", now=NOW)
    assert record.channel_memories == {
        "C2": ChannelMemory("C2", "dev"),
        "C1": ChannelMemory("C1", "general", "history of C1"),
    }
    wider = await bot.loader(windows=Windows(active_channel_days=11)).load("P", "C1", now=NOW)
    assert wider.channel_memories["C3"].long_term == "history of C3"


async def test_only_threads_of_this_channel_and_within_the_window_are_loaded(bot: Bot):
    for channel, ts, days_ago in [("C1", "1", 1), ("C1", "0", 8), ("C2", "1", 1)]:
        await bot.remember(THREAD, thread_scope_id(channel, ts), SHORT, f"{channel} {ts}", days_ago)
    await bot.remember(THREAD, thread_scope_id("C1", "1"), LONG, "its history")
    record = await bot.loader().load("P", "C1", now=NOW)
    assert record.thread_memories == {"1": "C1 1"}


async def test_the_conversation_is_the_channels_top_level_or_the_thread(bot: Bot):
    top = await bot.loader().load("P", "C1", now=NOW)
    assert [each.ts for each in top.conversation_history.messages] == ["1", "3"]
    thread = await bot.loader().load("P", "C1", thread_ts="1", now=NOW)
    assert [each.ts for each in thread.conversation_history.messages] == ["1", "2"]
    assert thread.target_thread_ts == "1"
    newest = await bot.loader(windows=Windows(messages=1)).load("P", "C1", now=NOW)
    assert [each.ts for each in newest.conversation_history.messages] == ["3"]


async def test_a_bot_that_remembers_nothing_has_the_shortest_prompt(bot: Bot):
    text = system_prompt(await bot.loader().load("P", "C1", now=NOW), locale="ja")
    assert [line for line in text.splitlines() if line.startswith(("#", "上"))] == [
        "## 現在の会話",
        "### #general",
        "#### トップレベルメッセージ",
        "上記の情報をもとに、現在の会話に返答してください。",
    ]


async def test_a_memory_above_its_limit_is_shortened_with_a_notice(bot: Bot):
    await bot.remember(WORKSPACE, "workspace", LONG, "設立は2019年です。" * 100)
    loader = bot.loader(limits=MemoryLimits(long_term=60), locale="ja")
    text = (await loader.load("P", "C1", now=NOW)).workspace_long_term_memory
    assert text is not None
    assert count_tokens(text) <= 60
    assert text.endswith("。\n（長さの上限に達したため、以下は省略されています。）")


async def test_a_debug_log_says_which_memories_were_used(bot: Bot, caplog: pytest.LogCaptureFixture):
    await bot.remember(WORKSPACE, "workspace", SHORT, "Moved.")
    await bot.remember(CHANNEL, "C2", LONG, "Code.")
    await bot.remember(CHANNEL, "C3", LONG, "Old.")
    await bot.remember(THREAD, thread_scope_id("C1", "1"), SHORT, "Lunch.")
    with caplog.at_level(logging.DEBUG, "flowengine.memory"):
        await bot.loader().load("P", "C1", now=NOW)
    assert caplog.messages == [
        "memories used in #general: "
        "workspace short_term (2 tokens), channel C2 long_term (2 tokens), thread 1 (2 tokens)"
    ]


@pytest.mark.parametrize("days", ["7", None, True, float("inf"), 1e9])
def test_a_window_is_a_number_of_days_that_a_calendar_has(days: Any):
    with pytest.raises(DefinitionError, match="'active_channel_days' is a number of days above 0, at most 36500, not"):
        Windows(active_channel_days=days)


def test_a_window_of_messages_is_a_whole_number():
    half: Any = 1.5
    with pytest.raises(DefinitionError, match=r"'messages' is a whole number of at least 1, not 1\.5"):
        Windows(messages=half)


async def test_windows_are_above_zero(bot: Bot):
    with pytest.raises(DefinitionError, match="'thread_memory_days' is a number of days above 0, at most 36500, not 0"):
        Windows(thread_memory_days=0)
    with pytest.raises(DefinitionError, match="now needs a time zone"):
        await bot.loader().load("P", "C1", now=NOW.replace(tzinfo=None))


# --- memories brought up to date


async def test_a_channels_memories_are_written_from_its_messages(bot: Bot):
    await bot.keeper("recent 1", "history 1").update_channel("C1", now=NOW)
    assert [line for line in bot.model.requests[0].messages[1].content.splitlines() if line.startswith("message")] == [
        "message 1",
        "message 2",
        "message 3",
    ]
    await bot.keeper("recent 2", "history 2").update_channel("C1", now=NOW + timedelta(hours=1))
    assert bot.model.requests[1].messages[1].content.endswith("history 1\n\n## Recent events\n\nrecent 2")
    assert await bot.text(CHANNEL, "C1", SHORT) == "recent 2"
    assert [each.text for each in await bot.repository.history(CHANNEL, "C1", LONG)] == ["history 2", "history 1"]


async def test_a_threads_memory_is_its_recent_events(bot: Bot):
    await bot.keeper("lunch").update_thread("C1", "1", now=NOW)
    assert await bot.text(THREAD, thread_scope_id("C1", "1"), SHORT) == "lunch"
    assert "message 3" not in bot.model.requests[0].messages[1].content


async def test_the_workspaces_memories_are_written_from_all_active_channels(bot: Bot):
    await bot.keeper("recent", "history").update_workspace(now=NOW)
    asked = bot.model.requests[0].messages[1].content
    assert [line for line in asked.splitlines() if line.startswith("#")] == ["## Messages", "### #dev", "### #general"]
    assert await bot.text(WORKSPACE, "workspace", LONG) == "history"


async def test_where_nothing_was_said_a_memory_stays_as_it_is(bot: Bot):
    await bot.keeper().update_channel("C3", now=NOW)
    await bot.keeper().update_thread("C1", "99", now=NOW)
    assert bot.model.requests == []


async def test_a_model_that_fails_leaves_the_memories_as_they_were(bot: Bot):
    await bot.remember(CHANNEL, "C1", SHORT, "before")
    with pytest.raises(OutputError):
        await bot.keeper("recent", "").update_channel("C1", now=NOW)
    assert await bot.text(CHANNEL, "C1", SHORT) == "before"
