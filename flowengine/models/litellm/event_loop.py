"""Runs an asyncio library's coroutines, whatever event loop their caller is on.

On the caller's own loop, where that is asyncio: nothing crosses threads. Such a library keeps HTTP
connections that belong to the loop of their birth, so they are closed when that loop ends. Callers on
trio, and those in a loop that lasts for one call only (`short_lived`), share a loop in a thread, whose
connections stay for the next call. Nothing here knows which library that is.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import anyio

from flowengine.core import event_of_this_loop, is_short_lived, postpone_cancellation

# --- Jobs: coroutines under way in an asyncio loop

T = TypeVar("T")

Start: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
"""Makes the coroutine, in the loop that runs it."""


class Job(Generic[T]):
    """In the asyncio loop that runs the caller; made and awaited in one and the same task.

    `timeout`: seconds, after which the coroutine is cancelled. `has_value`: whether it has ended, and well.
    """

    def __init__(
        self, start: Start[T], timeout: float | None = None, report_end: Callable[[], None] | None = None
    ) -> None:
        """`report_end` is called at the end instead of the task that waits here."""
        loop = asyncio.get_running_loop()
        self._start = start
        self._timeout = timeout
        self._report_end = report_end
        self._value: T | None = None
        self._error: BaseException | None = None
        self.has_value = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._run())

    async def wait(self) -> T:
        """Waits for the coroutine's result; a `TimeoutError` if it took too long. Leaving early cancels it, but for a
        value that is there already: a cancelled caller gets it, and is cancelled at its next wait.
        """
        try:
            await self._ended
        except BaseException as error:
            self.cancel()
            if not self.has_value or not isinstance(error, anyio.get_cancelled_exc_class()):
                raise
            postpone_cancellation(error)
        return self.outcome()

    def outcome(self) -> T:
        """Returns or raises the coroutine's outcome, after it has ended."""
        if self._error is None:
            return cast(T, self._value)
        if isinstance(self._error, asyncio.CancelledError):
            raise RuntimeError("the loop of a call was stopped while it was under way")
        raise self._error

    def cancel(self) -> None:
        """Stop the coroutine; nothing happens where it has ended."""
        self._task.cancel()

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                self._value = await self._start()
            self.has_value = True
        except BaseException as error:  # whatever it is, it is the waiting caller's
            self._error = error
        if self._report_end is not None:
            self._report_end()
        elif not self._ended.done():  # as it is once the caller was cancelled
            self._ended.set_result(None)


class DistantJob(Generic[T]):
    """The same in a loop that runs in another thread, awaited on any event loop."""

    def __init__(self, start: Start[T], loop: asyncio.AbstractEventLoop, timeout: float | None = None) -> None:
        self._start = start
        self._loop = loop
        self._timeout = timeout
        self._job: Job[T] | None = None
        self._post, self._ended = event_of_this_loop()
        loop.call_soon_threadsafe(self._begin, context=_context_for_asyncio())

    async def wait(self) -> T:
        try:
            await self._ended.wait()
        except BaseException as error:
            self.cancel()
            has_value = self._job is not None and self._job.has_value
            if not has_value or not isinstance(error, anyio.get_cancelled_exc_class()):
                raise
            postpone_cancellation(error)
        assert self._job is not None, "it has ended"
        return self._job.outcome()

    def cancel(self) -> None:
        with suppress(RuntimeError):  # the loop is gone, and the coroutine with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        self._job = Job(self._start, self._timeout, self._report_end)

    def _cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()

    def _report_end(self) -> None:
        with suppress(RuntimeError):  # the caller was cancelled and its loop has ended
            self._post(self._ended.set)


def _context_for_asyncio() -> Context:
    """The caller's context variables, but for the one in which trio's presence is noted."""
    context = copy_context()
    sniffio: Any = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


# --- An asyncio loop in its own thread


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
                self._loop = self._start_loop()
            return self._loop

    def _start_loop(self) -> asyncio.AbstractEventLoop:
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
        with suppress(Exception):  # at the end of the process there is no task to tell
            await asyncio.wait_for(self._close(), timeout=5)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        loop.stop()


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
            self._adopt_loop(loop)
        return Job(start, timeout)

    async def call(self, start: Start[T], timeout: float | None = None) -> T:
        """Run a coroutine to its end; a `TimeoutError` if it takes longer than `timeout` seconds."""
        return await self.begin(start, timeout).wait()

    def stop(self) -> None:
        """End the thread, and with it the jobs under way in it; to be called at the end of the process."""
        self._thread.stop()

    def _adopt_loop(self, loop: asyncio.AbstractEventLoop) -> None:
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
            with suppress(Exception):  # the caller that ends the loop has nothing to do with it
                async with asyncio.timeout(_CLOSING):
                    await self._close()


def _own_loop() -> asyncio.AbstractEventLoop | None:
    """The asyncio loop that the caller runs on, if it lasts."""
    trio: Any = sys.modules.get("trio")
    if is_short_lived() or (trio is not None and trio.lowlevel.in_trio_run()):
        return None
    return asyncio.get_running_loop()
