"""The seam behind which memories are kept.

A protocol: no database, no model, no prompt. Nothing is deleted: saving closes what held before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from flowengine.memory.scopes import Memory, MemoryScope, MemoryType

__all__ = ["MemoryRepository"]


class MemoryRepository(Protocol):
    """Memories by scope and type: one holds at a time, and those before it are its history."""

    async def save(self, memory: Memory) -> None:
        """Keep a memory: from its `valid_from` on it takes the place of the one that held.

        One that is older than what is kept enters the history, and what holds stays.
        """
        ...

    async def find_by_scope_and_type(
        self, scope: MemoryScope, scope_id: str, type: MemoryType, *, at: datetime | None = None
    ) -> Memory | None:
        """The memory that holds, or that held at a time; None where there is none."""
        ...

    async def find_recent_thread_memories(
        self, channel_id: str, days: float, *, now: datetime | None = None
    ) -> Sequence[Memory]:
        """The memories that hold of this channel's threads, those of the last `days`, the newest first.

        `now` is the present where it is not given.
        """
        ...

    async def history(self, scope: MemoryScope, scope_id: str, type: MemoryType) -> Sequence[Memory]:
        """All memories of a scope and type, the newest first."""
        ...
