"""Many equal pieces of work, some at a time, begun in order. Workers are hired only while pieces suspend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

__all__ = ["Crew"]

ON_THEIR_WAY: Final = 2
FOR_EACH_SUSPENDED: Final = 4
"""As in the scheduler: how many workers are hired ahead. Pieces are larger than nodes, so more of them are."""


class Crew:
    """Does `work(0)` … `work(count - 1)`, `limit` at once; `stop` begins no further piece.

    `work` should raise nothing: what it raises ends the crew.
    """

    def __init__(self, count: int, work: Callable[[int], Awaitable[None]], limit: int | None = None) -> None:
        self._count = count
        self._work = work
        self._limit = limit or count + 1
        self._next = 0
        self._at_work = 0
        self._on_their_way = 0

    async def run(self) -> None:
        if self._count:
            async with anyio.create_task_group() as tasks:
                await self._worker(tasks)

    def stop(self) -> None:
        self._next = self._count

    async def _hired(self, tasks: TaskGroup) -> None:
        self._on_their_way -= 1
        await self._worker(tasks)

    async def _worker(self, tasks: TaskGroup) -> None:
        while self._next < self._count and self._at_work < self._limit:
            index = self._next
            self._next += 1
            self._at_work += 1
            self._hire(tasks)
            try:
                await self._work(index)
            finally:
                self._at_work -= 1

    def _hire(self, tasks: TaskGroup) -> None:
        most = ON_THEIR_WAY + FOR_EACH_SUSPENDED * (self._at_work - 1)
        wanted = min(most, self._count - self._next, self._limit - self._at_work)
        while self._on_their_way < wanted:
            self._on_their_way += 1
            tasks.start_soon(self._hired, tasks)
