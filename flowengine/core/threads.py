"""Posts calls into a running event loop from other threads, and marks loops that end with one call.

An object that serves one loop only is not worth making for such a loop: `is_short_lived` tells. Works on asyncio and
on trio; knows nothing of what is posted. A cancellation can be put off to the
caller's next wait, which is the one for the journal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, Final, Protocol

import anyio

# --- Messages from other threads


class Post(Protocol):
    """Has a function called in the loop it was made for; from any thread, in order of posting.

    Raises `RuntimeError` once that loop has ended.
    """

    def __call__(self, call: Callable[..., Any], /, *args: Any) -> Any: ...


class Event(Protocol):
    """Set once, from inside of its loop; `wait` can be cancelled."""

    def set(self) -> None: ...

    async def wait(self) -> Any: ...


def post_to_this_loop() -> Post:
    """The way into the event loop that runs the caller."""
    return event_of_this_loop()[0]


def event_of_this_loop() -> tuple[Post, Event]:
    """An event of the loop that runs the caller, and the way in for the thread that sets it."""
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():  # first: trio may be a guest inside an asyncio loop
        return trio.lowlevel.current_trio_token().run_sync_soon, trio.Event()
    return asyncio.get_running_loop().call_soon_threadsafe, asyncio.Event()


_ends_with_call: Final = ContextVar("the loop ends with this call", default=False)


@contextmanager
def short_lived() -> Generator[None]:
    """The running loop ends with this block."""
    token = _ends_with_call.set(True)
    try:
        yield
    finally:
        _ends_with_call.reset(token)


def is_short_lived() -> bool:
    """Tells whether the code that runs has been told so."""
    return _ends_with_call.get()


# --- What has arrived whole is returned although its caller is being cancelled: it is paid for, and belongs on record


def postpone_cancellation(cancellation: BaseException) -> None:
    """Have a cancellation that is swallowed now come again at the next wait of this task.

    Those of cancel scopes do by themselves; one of an asyncio task is told once.
    """
    if isinstance(cancellation, asyncio.CancelledError) and anyio.current_effective_deadline() > -inf:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()  # Code that counts the cancellations of this task counts one.
            task.cancel(*cancellation.args[:1])
