"""Where an asyncio library's coroutines run, whatever event loop their caller is on.

On the caller's own loop, where that is asyncio: nothing crosses threads. Such a library keeps HTTP
connections that belong to the loop of their birth, so they are closed when that loop ends. Callers on
trio, and those in a loop that lasts for one call only (`short_lived`), share a loop in a thread, whose
connections stay for the next call. Nothing here knows which library that is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from flowengine.llm.job import DistantJob, Job, Start
from flowengine.llm.loop_thread import LoopThread
from flowengine.llm.short_lived import is_short_lived

__all__ = ["AsyncioHome"]

T = TypeVar("T")

_CLOSING: Final = 5.0
"""Seconds that closing may hold up the end of a loop."""


class AsyncioHome:
    """`close` is run in each loop before it ends; `forget` is told of a loop that has ended without that."""

    def __init__(
        self,
        name: str,
        close: Callable[[], Coroutine[Any, Any, None]],
        forget: Callable[[asyncio.AbstractEventLoop], object],
    ) -> None:
        self._thread = LoopThread(name, close)
        self._close = close
        self._forget = forget
        self._keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None]] = {}

    def begin(self, start: Start[T], timeout: float | None = None) -> Job[T] | DistantJob[T]:
        """Start a coroutine, for `timeout` seconds at most; it sees the caller's context variables."""
        loop = _own_loop()
        if loop is None:
            return self._thread.begin(start, timeout)
        if loop not in self._keepers:
            self._adopt(loop)
        return Job(start, timeout)

    async def call(self, start: Start[T], timeout: float | None = None) -> T:
        """Run a coroutine to its end; a `TimeoutError` if it takes longer than `timeout` seconds."""
        return await self.begin(start, timeout).wait()

    def stop(self) -> None:
        """End the thread, and with it the jobs under way in it; to be called at the end of the process."""
        self._thread.stop()

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        for ended in [each for each in self._keepers if each.is_closed()]:
            del self._keepers[ended]
            self._forget(ended)
        keeper = self._keepers[loop] = self._keeper(loop)
        with suppress(StopIteration):  # it waits for nothing before its `yield`
            keeper.asend(None).send(None)

    async def _keeper(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None]:
        """Closes at the loop's end: a loop that is shut down ends the generators that were begun in it."""
        try:
            yield
        finally:
            del self._keepers[loop]
            with suppress(Exception):  # whoever ends the loop has nothing to do with it
                async with asyncio.timeout(_CLOSING):
                    await self._close()


def _own_loop() -> asyncio.AbstractEventLoop | None:
    """The asyncio loop that the caller runs on, if it lasts."""
    trio: Any = sys.modules.get("trio")
    if is_short_lived() or (trio is not None and trio.lowlevel.in_trio_run()):
        return None
    return asyncio.get_running_loop()
