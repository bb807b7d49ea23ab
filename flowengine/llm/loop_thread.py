"""One asyncio loop in a thread of its own, for a library that wants just that.

A caller on any event loop, asyncio or trio, hands over a coroutine function and waits without
blocking; being cancelled, it cancels the coroutine. Nothing here knows what runs there.

Why not the caller's own asyncio loop, where there is one: every `run` may bring a new loop, while
the library keeps HTTP connections and background tasks that belong to the loop of their birth.
Left behind in a closed loop they end as warnings on stderr.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar, cast

from flowengine.llm.wakeup import event_of_this_loop

__all__ = ["Job", "LoopThread"]

T = TypeVar("T")


class Job(Generic[T]):
    """A coroutine on its way in the other loop. Made and awaited in one and the same task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._loop = loop
        self._start = start
        self._post, self._ended = event_of_this_loop()
        self._task: asyncio.Task[None] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        loop.call_soon_threadsafe(self._begin, context=_context_for_asyncio())

    async def wait(self) -> T:
        """What the coroutine returned or raised. Leaving early cancels it."""
        try:
            await self._ended.wait()
        except BaseException:
            self.cancel()
            raise
        if isinstance(self._error, asyncio.CancelledError):
            raise RuntimeError("the loop thread was stopped while a call was under way")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def cancel(self) -> None:
        """Stop the coroutine; nothing happens where it has ended."""
        with suppress(RuntimeError):  # the loop is gone, and the coroutine with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._value = await self._start()
        except BaseException as error:  # whatever it is, it is the waiting caller's
            self._error = error
        with suppress(RuntimeError):  # the caller was cancelled and its loop has ended
            self._post(self._ended.set)


def _context_for_asyncio() -> Context:
    """The caller's context variables, but for the one in which trio's presence is noted."""
    context = copy_context()
    sniffio: Any = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


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

    def begin(self, start: Callable[[], Coroutine[Any, Any, T]]) -> Job[T]:
        """Start a coroutine; it sees the caller's context variables."""
        return Job(self._running_loop(), start)

    async def call(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine to its end."""
        return await self.begin(start).wait()

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
