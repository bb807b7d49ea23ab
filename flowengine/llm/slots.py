"""At most so many at once, in the order of asking, across threads and event loops.

anyio's limiters belong to one event loop; a process may have several (`run` in two threads), and
a vendor's limit holds for all of them. Nobody polls: who leaves wakes the next.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from flowengine.llm.wakeup import Post, post_to_this_loop

__all__ = ["Slots"]


class _Waiter:
    def __init__(self) -> None:
        self.post: Post = post_to_this_loop()
        self.ready = anyio.Event()


class Slots:
    """`async with slots.taken():` holds one of `count` slots."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"at least 1 has to be allowed at once, not {count}")
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[_Waiter] = deque()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        await self._take()
        try:
            yield
        finally:
            self._give_back()

    async def _take(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.ready.wait()
        except BaseException:
            self._withdraw(waiter)
            raise

    def _withdraw(self, waiter: _Waiter) -> None:
        """A waiter was cancelled; a slot that was just given to it goes to the next."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                try:
                    waiter.post(waiter.ready.set)
                except RuntimeError:  # its event loop has ended, and the waiter with it
                    continue
                return
            self._free += 1
