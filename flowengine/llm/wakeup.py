"""How another thread says something to the event loop that this code runs in, on asyncio and on trio.

Everything else about threads and loops is the business of those who use it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Post", "post_to_this_loop"]


class Post(Protocol):
    """Has a function called in the loop it was made for; from any thread, in order of posting.

    Raises `RuntimeError` once that loop has ended.
    """

    def __call__(self, call: Callable[..., Any], /, *args: Any) -> Any: ...


def post_to_this_loop() -> Post:
    """The way into the event loop that runs the caller."""
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():  # first: trio may be a guest inside an asyncio loop
        return trio.lowlevel.current_trio_token().run_sync_soon
    return asyncio.get_running_loop().call_soon_threadsafe
