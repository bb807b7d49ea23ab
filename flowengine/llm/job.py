"""A coroutine on its way in an asyncio loop, awaited from any event loop.

The loop is the caller's own, or one that runs in another thread. Nothing here knows what runs there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar, cast

from flowengine.llm.wakeup import event_of_this_loop

__all__ = ["Job"]

T = TypeVar("T")


class Job(Generic[T]):
    """Made and awaited in one and the same task. `elsewhere`: a loop in another thread; None for the caller's own.

    It is a task of its own there too: what the library does with context variables and with being
    cancelled stays out of the caller's, and each step of it need not pass through the caller's frames.
    """

    def __init__(
        self, start: Callable[[], Coroutine[Any, Any, T]], elsewhere: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._start = start
        self._elsewhere = elsewhere
        self._post, self._ended = event_of_this_loop()
        self._task: asyncio.Task[None] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        if elsewhere is None:
            self._begin()
        else:
            elsewhere.call_soon_threadsafe(self._begin, context=_context_for_asyncio())

    async def wait(self) -> T:
        """What the coroutine returned or raised. Leaving early cancels it."""
        try:
            await self._ended.wait()
        except BaseException:
            self.cancel()
            raise
        if isinstance(self._error, asyncio.CancelledError):
            raise RuntimeError("the loop of a call was stopped while it was under way")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def cancel(self) -> None:
        """Stop the coroutine; nothing happens where it has ended."""
        if self._elsewhere is None:
            self._cancel()
        else:
            with suppress(RuntimeError):  # the loop is gone, and the coroutine with it
                self._elsewhere.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._value = await self._start()
        except BaseException as error:  # whatever it is, it is the waiting caller's
            self._error = error
        if self._elsewhere is None:
            self._ended.set()
        else:
            with suppress(RuntimeError):  # the caller was cancelled and its loop has ended
                self._post(self._ended.set)


def _context_for_asyncio() -> Context:
    """The caller's context variables, but for the one in which trio's presence is noted."""
    context = copy_context()
    sniffio: Any = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context
