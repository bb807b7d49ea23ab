"""Memories brought up to date: read what was said, have it summed up, save what comes out.

It knows the order of these steps for each scope. A scope in which nothing was said keeps the memory that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from flowengine.memory.conversation import ChannelMessages, ConversationStore
from flowengine.memory.generation import MemoryGenerator
from flowengine.memory.loading import Windows
from flowengine.memory.repository import MemoryRepository
from flowengine.memory.scopes import Memory, MemoryScope, MemoryType, aware, thread_scope_id

__all__ = ["MemoryKeeper"]


class MemoryKeeper:
    """Writes the memories of threads, channels and the workspace."""

    def __init__(
        self,
        repository: MemoryRepository,
        conversations: ConversationStore,
        generator: MemoryGenerator,
        *,
        workspace_id: str = "workspace",
        windows: Windows = Windows(),  # noqa: B008 - frozen
    ) -> None:
        self._repository = repository
        self._conversations = conversations
        self._generator = generator
        self._workspace_id = workspace_id
        self._windows = windows

    async def update_thread(self, channel_id: str, thread_ts: str, *, now: datetime) -> None:
        """A thread has recent events only: its history is its messages."""
        said = await self._conversations.thread(channel_id, thread_ts)
        recent = await self._generator.short_term([said])
        if recent is not None:
            scope_id = thread_scope_id(channel_id, thread_ts)
            await self._save(MemoryScope.THREAD, scope_id, MemoryType.SHORT_TERM, recent, now)

    async def update_channel(self, channel_id: str, *, now: datetime) -> None:
        """Recent events from all that was said in the window, its threads included; then the history."""
        since = aware("now", now) - timedelta(days=self._windows.active_channel_days)
        said = await self._conversations.messages(channel_id, since=since)
        await self._update(MemoryScope.CHANNEL, channel_id, [said], now)

    async def update_workspace(self, *, now: datetime) -> None:
        """The same over all active channels."""
        since = aware("now", now) - timedelta(days=self._windows.active_channel_days)
        active = await self._conversations.channels(active_since=since)
        said = [await self._conversations.messages(each.id, since=since) for each in active]
        await self._update(MemoryScope.WORKSPACE, self._workspace_id, said, now)

    async def _update(self, scope: MemoryScope, scope_id: str, said: Sequence[ChannelMessages], now: datetime) -> None:
        recent = await self._generator.short_term(said)
        if recent is None:
            return
        before = await self._repository.find_by_scope_and_type(scope, scope_id, MemoryType.LONG_TERM)
        history = await self._generator.long_term(None if before is None else before.text, recent)
        # Both at the end: a failure in between leaves the memories as they were.
        await self._save(scope, scope_id, MemoryType.SHORT_TERM, recent, now)
        await self._save(scope, scope_id, MemoryType.LONG_TERM, history, now)

    async def _save(self, scope: MemoryScope, scope_id: str, type: MemoryType, text: str, now: datetime) -> None:
        await self._repository.save(Memory(scope, scope_id, type, text, now))
