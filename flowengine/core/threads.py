"""A word about the running event loop: that it ends with the call that it was made for.

What is made for such a loop alone is made for nothing. Who cares asks here; who makes loops says it here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

__all__ = ["Post", "event_of_this_loop", "is_short_lived", "post_to_this_loop", "short_lived"]

# --- How another thread says something to the event loop that this code runs in, on asyncio and on trio


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
    """An event of the loop that runs the caller, and the way in for whoever sets it."""
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():  # first: trio may be a guest inside an asyncio loop
        return trio.lowlevel.current_trio_token().run_sync_soon, trio.Event()
    return asyncio.get_running_loop().call_soon_threadsafe, asyncio.Event()


_says_so: Final = ContextVar("the loop ends with this call", default=False)


@contextmanager
def short_lived() -> Generator[None]:
    """The running loop ends with this block."""
    token = _says_so.set(True)
    try:
        yield
    finally:
        _says_so.reset(token)


def is_short_lived() -> bool:
    """Whether the code that runs has been told so."""
    return _says_so.get()
