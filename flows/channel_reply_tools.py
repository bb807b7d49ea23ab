"""What the flow `channel_reply.yaml` does with its store: messages come in, memories are loaded and kept.

The models are asked by the flow's own nodes, so their calls are on record; here are only the steps between them.

Messages and memories are in a file of this folder, or where the variable `CHANNEL_MEMORY` says (a file, or postgresql://…).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from flowengine.agents.memory import (
    ChannelMessage,
    Memory,
    MemoryLimits,
    MemoryLoader,
    MemoryScope,
    MemoryType,
    ReplyDecision,
    SQLConversationStore,
    SQLMemoryRepository,
    Windows,
    long_term_messages,
    open_memory,
    prompt_messages,
    short_term_messages,
    shortened,
    thread_scope_id,
)

__all__ = ["ReplyDecision", "keep", "load", "said"]

BOT: Final = "bot"
KEPT: Final = str(Path(__file__).parent / ".flowengine" / "channel_memory.db")
LEFT_OUT: Final = "(The rest was left out because the limit of its length was reached.)"
LIMITS: Final = MemoryLimits(short_term=300, long_term=600)
WINDOWS: Final = Windows(active_channel_days=7, thread_memory_days=7, messages=30)


async def load(
    remember: bool, persona: str, channel: str, user: str, text: str, thread: str, at: str
) -> dict[str, Any]:
    """Add the new message to the conversation, and load what an answer is built from."""
    now = datetime.fromisoformat(at) if at else datetime.now(UTC)
    message = ChannelMessage(f"{now.timestamp():.6f}", user, text, now, thread or None)
    database = open_memory(where(remember))
    try:
        conversations, repository = SQLConversationStore(database), SQLMemoryRepository(database)
        await conversations.add(channel, channel, [message])
        loader = MemoryLoader(repository, conversations, windows=WINDOWS, limits=LIMITS)
        record = await loader.load(persona, channel, thread_ts=thread or None, now=now)
    finally:
        database.close()
    *shared, judge = prompt_messages(record, "judge")
    *_, answer = prompt_messages(record, "answer")
    memory = record.channel_memories.get(channel)
    return {
        # The same bytes for both questions, so that what a vendor has cached for the one serves the other.
        "prompt": "\n\n".join(each.content for each in shared),
        "judge": judge.content,
        "answer": answer.content,
        "history": (memory and memory.long_term) or "",
        "at": now.isoformat(),
    }


async def said(remember: bool, channel: str, thread: str, at: str, reply: str) -> dict[str, Any]:
    """Add the reply to the conversation, if there is one, and say how the recent events are to be written down."""
    then = datetime.fromisoformat(at) + timedelta(seconds=1)
    database = open_memory(where(remember))
    try:
        conversations = SQLConversationStore(database)
        if reply:
            message = ChannelMessage(f"{then.timestamp():.6f}", BOT, reply, then, thread or None)
            await conversations.add(channel, channel, [message])
        since = then - timedelta(days=WINDOWS.active_channel_days)
        if thread:
            history = await conversations.thread(channel, thread)
        else:
            history = await conversations.messages(channel, since=since)
    finally:
        database.close()
    # A store in memory has forgotten the message by now: then there is the channel's name alone to write about.
    asked = short_term_messages([history], limits=LIMITS) or long_term_messages(None, f"#{channel}", limits=LIMITS)
    merging = long_term_messages(None, "-", limits=LIMITS)
    return {"task": asked[0].content, "material": asked[1].content, "merging": merging[0].content}


async def keep(remember: bool, channel: str, thread: str, at: str, recent: str, history: str) -> list[str]:
    """Save what was written, each memory within its limit; the ones before it are closed, and stay on record."""
    scope, scope_id = MemoryScope.CHANNEL, channel
    if thread:
        scope, scope_id = MemoryScope.THREAD, thread_scope_id(channel, thread)
    texts: Mapping[MemoryType, str] = {MemoryType.SHORT_TERM: recent, MemoryType.LONG_TERM: history}
    limits = {MemoryType.SHORT_TERM: LIMITS.short_term, MemoryType.LONG_TERM: LIMITS.long_term}
    database = open_memory(where(remember))
    try:
        repository = SQLMemoryRepository(database)
        for kind, text in texts.items():
            if text:
                kept = shortened(text, limits[kind], LEFT_OUT)
                await repository.save(Memory(scope, scope_id, kind, kept, datetime.fromisoformat(at)))
    finally:
        database.close()
    return [f"{scope} {kind}" for kind, text in texts.items() if text]


def where(remember: bool) -> str:
    """The store of messages and memories; without `remember` an empty one, which is gone afterwards."""
    return os.environ.get("CHANNEL_MEMORY", KEPT) if remember else ":memory:"
