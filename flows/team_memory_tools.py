"""What the flow `team_memory.yaml` does with its store: it reads the memory and decides, then it writes the memory.

Models are asked through the gateway of the node, so each call is on record, counted, and not paid again on resume.

Messages and memories are in a file of this folder, or where the variable `TEAM_MEMORY` says (a file, or postgresql://…).
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from flowengine import Context, gateway_of, get_llm
from flowengine.agents.memory import (
    WORKSPACE_ID,
    ChannelMessage,
    MemoryGenerator,
    MemoryKeeper,
    MemoryLimits,
    MemoryLoader,
    MemoryScope,
    MemoryType,
    SQLConversationStore,
    SQLMemoryRepository,
    judge,
    open_memory,
    prompt_messages,
)

__all__ = ["listen", "remember_channel", "remember_workspace"]

KEPT: Final = str(Path(__file__).parent / ".flowengine" / "team_memory.db")
LIMITS: Final = MemoryLimits(short_term=300, long_term=600)


async def listen(
    persona: str, channel: str, user: str, text: str, at: str, remember: bool, keeper: str, context: Context
) -> dict[str, Any]:
    """Take the message in, load what is remembered, and decide whether to answer."""
    now = datetime.fromisoformat(at) if at else datetime.now(UTC)
    with stores_of(remember) as (repository, conversations):
        await say(conversations, channel, user, text, now)
        record = await MemoryLoader(repository, conversations, limits=LIMITS).load(persona, channel, now=now)
    decision = await judge(record, get_llm(keeper or None), gateway_of(context))
    prompt, task = prompt_messages(record, "answer")
    return {**decision.model_dump(), "prompt": prompt.content, "task": task.content, "at": now.isoformat()}


async def remember_channel(channel: str, at: str, reply: str, remember: bool, keeper: str, context: Context) -> None:
    """Add the reply, and have the memory of the channel written anew."""
    now = datetime.fromisoformat(at) + timedelta(seconds=1)
    with stores_of(remember) as (repository, conversations):
        if reply:
            await say(conversations, channel, "bot", reply, now)
        generator = MemoryGenerator(get_llm(keeper or None), gateway_of(context), limits=LIMITS)
        await MemoryKeeper(repository, conversations, generator).update_channel(channel, now=now)


async def remember_workspace(at: str, remember: bool, keeper: str, context: Context) -> str:
    """Have the memory of the workspace written anew from all channels; its history, or the empty text."""
    now = datetime.fromisoformat(at) + timedelta(seconds=1)
    with stores_of(remember) as (repository, conversations):
        generator = MemoryGenerator(get_llm(keeper or None), gateway_of(context), limits=LIMITS)
        await MemoryKeeper(repository, conversations, generator).update_workspace(now=now)
        kept = await repository.find_by_scope_and_type(MemoryScope.WORKSPACE, WORKSPACE_ID, MemoryType.LONG_TERM)
    return kept.text if kept else ""


async def say(conversations: SQLConversationStore, channel: str, user: str, text: str, at: datetime) -> None:
    """Add a message to a channel."""
    await conversations.add(channel, channel, [ChannelMessage(f"{at.timestamp():.6f}", user, text, at)])


@contextmanager
def stores_of(remember: bool) -> Generator[tuple[SQLMemoryRepository, SQLConversationStore]]:
    """Memories and messages of the team; without `remember` empty ones, which are gone afterwards."""
    database = open_memory(os.environ.get("TEAM_MEMORY", KEPT) if remember else ":memory:")
    try:
        yield SQLMemoryRepository(database), SQLConversationStore(database)
    finally:
        database.close()
