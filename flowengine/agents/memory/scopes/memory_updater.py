"""Brings memories up to date: read what was said, have it summed up, save what comes out.

It knows the order of these steps for each scope. A scope in which nothing was said keeps the memory that it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Final

from flowengine.agents.memory.open_database import shortened
from flowengine.agents.memory.scopes.channel_messages import (
    Channel,
    ChannelMemory,
    ChannelMessages,
    ConversationStore,
    PromptRecord,
)
from flowengine.agents.memory.scopes.generation import MemoryGenerator, MemoryLimits
from flowengine.agents.memory.scopes.memories import (
    WORKSPACE_ID,
    Memory,
    MemoryRepository,
    MemoryScope,
    MemoryType,
    aware,
    days_of,
    parse_thread_scope_id,
    thread_scope_id,
)
from flowengine.core import load_messages
from flowengine.errors import DefinitionError
from flowengine.models import count_tokens

# --- From the stores to the record of a prompt

_LOGGER: Final = logging.getLogger("flowengine.memory")


@dataclass(frozen=True, slots=True)
class Windows:
    """How far back memories and messages are read."""

    active_channel_days: float = 7.0
    """Channels in which something was said since then."""
    thread_memory_days: float = 7.0
    """Threads whose memory was written since then."""
    messages: int = 50
    """Messages of the current conversation, the newest."""

    def __post_init__(self) -> None:
        days_of("active_channel_days", self.active_channel_days)
        days_of("thread_memory_days", self.thread_memory_days)
        if type(self.messages) is not int or self.messages < 1:
            raise DefinitionError(f"'messages' is a whole number of at least 1, not {self.messages!r}")


class MemoryLoader:
    """Loads what a bot remembers when it is to answer."""

    def __init__(
        self,
        repository: MemoryRepository,
        conversations: ConversationStore,
        *,
        workspace_id: str = WORKSPACE_ID,
        windows: Windows = Windows(),
        limits: MemoryLimits = MemoryLimits(),  # noqa: B008 - frozen
        locale: str = "en",
    ) -> None:
        """A memory that is longer than its limit is shortened; `locale` is the language of that notice."""
        self._repository = repository
        self._conversations = conversations
        self._workspace_id = workspace_id
        self._windows = windows
        self._limits = {MemoryType.SHORT_TERM: limits.short_term, MemoryType.LONG_TERM: limits.long_term}
        self._notice = load_messages(locale)("memory.shortened")

    async def load(
        self, persona: str | None, channel_id: str, *, thread_ts: str | None = None, now: datetime
    ) -> PromptRecord:
        """The record for an answer in a channel, or in one of its threads."""
        since = aware("now", now) - days_of("active_channel_days", self._windows.active_channel_days)
        active = await self._conversations.channels(active_since=since)
        limit = self._windows.messages
        if thread_ts is None:
            history = await self._conversations.top_level(channel_id, limit=limit)
        else:
            history = await self._conversations.thread(channel_id, thread_ts, limit=limit)
        workspace = (MemoryScope.WORKSPACE, self._workspace_id)
        record = PromptRecord(
            persona=persona,
            conversation_history=history,
            workspace_long_term_memory=await self._text(*workspace, MemoryType.LONG_TERM),
            workspace_short_term_memory=await self._text(*workspace, MemoryType.SHORT_TERM),
            channel_memories={each.id: await self._channel(each) for each in active},
            thread_memories=await self._threads(channel_id, now),
            target_thread_ts=thread_ts,
        )
        _tell(record)
        return record

    async def _channel(self, channel: Channel) -> ChannelMemory:
        scope = (MemoryScope.CHANNEL, channel.id)
        long_term = await self._text(*scope, MemoryType.LONG_TERM)
        return ChannelMemory(channel.id, channel.name, long_term, await self._text(*scope, MemoryType.SHORT_TERM))

    async def _threads(self, channel_id: str, now: datetime) -> Mapping[str, str]:
        """Returns the recent events of each thread, or where there are none its history."""
        days = self._windows.thread_memory_days
        memories = await self._repository.find_recent_thread_memories(channel_id, days, now=now)
        recent_last = sorted(memories, key=lambda each: each.type is MemoryType.SHORT_TERM)
        return {parse_thread_scope_id(each.scope_id).ts: self._cut(each.text, each.type) for each in recent_last}

    async def _text(self, scope: MemoryScope, scope_id: str, type: MemoryType) -> str | None:
        memory = await self._repository.find_by_scope_and_type(scope, scope_id, type)
        return None if memory is None else self._cut(memory.text, type)

    def _cut(self, text: str, type: MemoryType) -> str:
        return shortened(text, self._limits[type], self._notice)


def _tell(record: PromptRecord) -> None:
    """Records which memories are used, with their tokens, if there is a listener."""
    if not _LOGGER.isEnabledFor(logging.DEBUG):
        return
    used = [f"{name} ({count_tokens(text)} tokens)" for name, text in _memories(record) if text]
    _LOGGER.debug("memories used in #%s: %s", record.conversation_history.channel_name, ", ".join(used) or "none")


def _memories(record: PromptRecord) -> Iterator[tuple[str, str | None]]:
    yield "workspace long_term", record.workspace_long_term_memory
    yield "workspace short_term", record.workspace_short_term_memory
    for each in record.channel_memories.values():
        yield f"channel {each.channel_id} long_term", each.long_term
        yield f"channel {each.channel_id} short_term", each.short_term
    for ts, text in record.thread_memories.items():
        yield f"thread {ts}", text


@dataclass(frozen=True, slots=True)
class MemoryKeeper:
    """Writes the memories of threads, channels and the workspace."""

    repository: MemoryRepository
    conversations: ConversationStore
    generator: MemoryGenerator
    _: KW_ONLY
    workspace_id: str = WORKSPACE_ID
    windows: Windows = Windows()

    async def update_thread(self, channel_id: str, thread_ts: str, *, now: datetime) -> None:
        """A thread has recent events only: its history is its messages."""
        messages = await self.conversations.thread(channel_id, thread_ts)
        recent = await self.generator.short_term([messages])
        if recent is not None:
            scope_id = thread_scope_id(channel_id, thread_ts)
            await self._save(MemoryScope.THREAD, scope_id, MemoryType.SHORT_TERM, recent, now)

    async def update_channel(self, channel_id: str, *, now: datetime) -> None:
        """Recent events from all that was said in the window, its threads included; then the history."""
        since = aware("now", now) - days_of("active_channel_days", self.windows.active_channel_days)
        messages = await self.conversations.messages(channel_id, since=since)
        await self._update(MemoryScope.CHANNEL, channel_id, [messages], now)

    async def update_workspace(self, *, now: datetime) -> None:
        """The same over all active channels."""
        since = aware("now", now) - days_of("active_channel_days", self.windows.active_channel_days)
        active = await self.conversations.channels(active_since=since)
        messages = [await self.conversations.messages(each.id, since=since) for each in active]
        await self._update(MemoryScope.WORKSPACE, self.workspace_id, messages, now)

    async def _update(
        self, scope: MemoryScope, scope_id: str, messages: Sequence[ChannelMessages], now: datetime
    ) -> None:
        recent = await self.generator.short_term(messages)
        if recent is None:
            return
        before = await self.repository.find_by_scope_and_type(scope, scope_id, MemoryType.LONG_TERM)
        history = await self.generator.long_term(None if before is None else before.text, recent)
        # Both at the end: a failure in between leaves the memories as they were.
        await self._save(scope, scope_id, MemoryType.SHORT_TERM, recent, now)
        await self._save(scope, scope_id, MemoryType.LONG_TERM, history, now)

    async def _save(self, scope: MemoryScope, scope_id: str, type: MemoryType, text: str, now: datetime) -> None:
        await self.repository.save(Memory(scope, scope_id, type, text, now))
