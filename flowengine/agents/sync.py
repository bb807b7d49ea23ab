"""The one way from synchronous code into asynchronous code.

It knows event loops and threads and nothing of what runs in them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio

from flowengine.llm.short_lived import short_lived

__all__ = ["in_event_loop", "run_sync"]

T = TypeVar("T")


def run_sync(function: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function to its end and return its result.

    Where an event loop is already running in this thread (a notebook, a server), a thread with a
    loop of its own does it, and the running loop stands still meanwhile: prefer `await` there.

    >>> async def answer() -> int:
    ...     return 42
    >>> run_sync(answer)
    42
    """

    async def run() -> T:
        with short_lived():
            return await function()

    if not in_event_loop():
        return anyio.run(run)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="flowengine") as pool:
        return pool.submit(anyio.run, run).result()


def in_event_loop() -> bool:
    """Whether this thread is running an event loop, of whatever kind."""
    try:
        anyio.current_time()
    except RuntimeError:
        return False
    return True
