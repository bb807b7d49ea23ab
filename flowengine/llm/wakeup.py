"""How another thread says something to the event loop that this code runs in, on asyncio and on trio.

An event that is waited for here is the loop's own: anyio's would be wrapped round it at each call.

Everything else about threads and loops is the business of those who use it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Event", "Post", "event_of_this_loop", "post_to_this_loop"]


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
