"""Cancels a job at the first Ctrl-C or SIGTERM, and ends the process at the second.

The handlers run between two instructions of the main thread, so the second one also ends a node that
blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, TypeVar

import anyio

from flowengine.cli.terminal import complain
from flowengine.core.user_code import is_interrupt

__all__ = ["INTERRUPTED", "run_until_interrupted"]

INTERRUPTED: Final = 130
"""Exit code."""

_SHOW_CURSOR: Final = b"\x1b[?25h"

T = TypeVar("T")


def run_until_interrupted(job: Callable[[], Awaitable[T]]) -> T | None:
    """Run the job and return what it returns; None where a signal ended it, or a `KeyboardInterrupt` in it. Its
    clean-up has run by then.

    After a signal the handlers stay: what is left is the end of the process, and a second signal in its last
    milliseconds ends it at once with the same exit code.
    """
    failure: BaseException | None = None
    stopping = _Stopping()

    async def main() -> T | None:
        nonlocal failure
        with anyio.CancelScope() as scope, stopping.cancels(scope):
            try:
                return await job()
            except KeyboardInterrupt:  # by code of a node: the signals themselves are heard here
                return None
            except BaseExceptionGroup as group:  # raised below: asyncio prints what it finds in a main task that died
                failure = group
        return None

    value: T | None = None
    with stopping.listening(), suppress(KeyboardInterrupt):  # of a task beside: asyncio ends its loop with it
        value = anyio.run(main)
    if failure is not None and is_interrupt(failure):
        return None
    if failure is not None:
        raise failure
    return value


class _Stopping:
    """Listens from before there is a loop until after it is gone: an interrupted start or end of a loop is a mess."""

    def __init__(self) -> None:
        self._is_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None

    @contextmanager
    def listening(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread alone.
            return
        before = {each: signal.signal(each, self._on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            if not self._is_asked:
                for number, handler in before.items():
                    signal.signal(number, handler)

    @contextmanager
    def cancels(self, scope: anyio.CancelScope) -> Generator[None]:
        """While this lasts, a signal cancels the scope; one that came before does at once."""
        self._scope, self._loop = scope, asyncio.get_running_loop()
        if self._is_asked:
            self._stop()
        try:
            yield
        finally:
            self._scope = self._loop = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked:
            _end_at_once()
        self._is_asked = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._scope is not None:
            complain("stopping; Ctrl-C again ends at once")
            self._scope.cancel()


def _end_at_once() -> None:
    """Nothing is cleaned up; what the journal has committed stays, and what this process started ends with it."""
    with suppress(Exception):  # it ends, whatever comes
        from flowengine.skills.sandbox.process import end_below  # Only here.

        end_below(os.getpid())
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        os.write(2, _SHOW_CURSOR)
    os._exit(INTERRUPTED)
