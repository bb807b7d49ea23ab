"""One asyncio loop in a thread of its own, for a library that wants just that.

A caller on any event loop, asyncio or trio, hands over a coroutine function and waits without
blocking; being cancelled, it cancels the coroutine. Nothing here knows what runs there, nor who should
rather run it on a loop of his own (`flowengine.llm.asyncio_home`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from flowengine.llm.job import DistantJob, Start

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Starts its thread at the first job and keeps it until `stop`, which its owner calls at the end.

    `close` is a coroutine function run in the loop before it stops.
    """

    def __init__(self, name: str, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._name = name
        self._close = close
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    def begin(self, start: Start[T], timeout: float | None = None) -> DistantJob[T]:
        """Start a coroutine; it sees the caller's context variables."""
        return DistantJob(start, self._running_loop(), timeout)

    async def call(self, start: Start[T], timeout: float | None = None) -> T:
        """Run a coroutine to its end."""
        return await self.begin(start, timeout).wait()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is not None and self._process == os.getpid():
            return loop
        with self._lock:
            if self._loop is None or self._process != os.getpid():  # a forked child has no thread yet
                self._loop = self._started()
            return self._loop

    def _started(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
        self._thread.start()
        return loop

    def stop(self) -> None:
        """End the thread, and with it the jobs under way; to be called at the end of the process."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None or self._process != os.getpid():
            return
        asyncio.run_coroutine_threadsafe(self._end(loop), loop)
        self._thread.join(timeout=60)  # after which it is stuck in foreign code
        if not self._thread.is_alive():
            loop.close()

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(Exception):  # at the end of the process there is nobody to tell
            await asyncio.wait_for(self._close(), timeout=5)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        loop.stop()
