"""A coroutine on its way in an asyncio loop: the caller's own (`Job`), or one in another thread (`DistantJob`).

Either way it is a task of its own: what a library does with context variables and with being cancelled
stays out of the caller's. Nothing here knows what runs there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Generic, TypeAlias, TypeVar, cast

import anyio

from flowengine.llm.arrived import put_off
from flowengine.llm.wakeup import event_of_this_loop

__all__ = ["DistantJob", "Job", "Start"]

T = TypeVar("T")

Start: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
"""Makes the coroutine, in the loop that runs it."""


class Job(Generic[T]):
    """In the asyncio loop that runs the caller; made and awaited in one and the same task.

    `timeout`: seconds, after which the coroutine is cancelled.
    """

    def __init__(self, start: Start[T], timeout: float | None = None, told: Callable[[], None] | None = None) -> None:
        """`told` is called at the end instead of whoever waits here."""
        loop = asyncio.get_running_loop()
        self._start = start
        self._told = told
        self._value: T | None = None
        self._error: BaseException | None = None
        self._is_late = False
        self._has_value = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._timer = None if timeout is None else loop.call_later(timeout, self._expire)
        self._task = loop.create_task(self._run())

    async def wait(self) -> T:
        """What the coroutine returned or raised; a `TimeoutError` if it took too long. Leaving early cancels it, but
        for a value that is there already: a cancelled caller gets it, and is cancelled at its next wait."""
        try:
            await self._ended
        except BaseException as error:
            self.cancel()
            if not self.has_value or not isinstance(error, anyio.get_cancelled_exc_class()):
                raise
            put_off(error)
        return self.outcome()

    @property
    def has_value(self) -> bool:
        """Whether it has ended, and well."""
        return self._has_value

    def outcome(self) -> T:
        """What it returned or raised, once it has ended."""
        if self._error is None:
            return cast(T, self._value)
        if self._is_late:
            raise TimeoutError from self._error
        if isinstance(self._error, asyncio.CancelledError):
            raise RuntimeError("the loop of a call was stopped while it was under way")
        raise self._error

    def cancel(self) -> None:
        """Stop the coroutine; nothing happens where it has ended."""
        self._task.cancel()

    def _expire(self) -> None:
        self._is_late = True
        self._task.cancel()

    async def _run(self) -> None:
        try:
            self._value = await self._start()
            self._has_value = True
        except BaseException as error:  # whatever it is, it is the waiting caller's
            self._error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._told is not None:
            self._told()
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
            put_off(error)
        assert self._job is not None, "it has ended"
        return self._job.outcome()

    def cancel(self) -> None:
        with suppress(RuntimeError):  # the loop is gone, and the coroutine with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        self._job = Job(self._start, self._timeout, self._told)

    def _cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()

    def _told(self) -> None:
        with suppress(RuntimeError):  # the caller was cancelled and its loop has ended
            self._post(self._ended.set)


def _context_for_asyncio() -> Context:
    """The caller's context variables, but for the one in which trio's presence is noted."""
    context = copy_context()
    sniffio: Any = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context
