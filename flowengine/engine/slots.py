"""How many nodes may be in flight at once, over all levels of a run. First come, first served."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import Final

import anyio

__all__ = ["Slots"]

_MANY: Final = 1 << 60


class Slots:
    """Slots for nodes in flight; containers hold none, and neither does a node that waits for a person.

    Where `used` is below `limit`, whoever wants a slot counts it; else it waits with `take`.
    """

    __slots__ = ("limit", "rested", "used", "waiting")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or _MANY
        self.used = 0
        self.rested = perf_counter()
        """When the run last let other tasks of its loop run."""
        self.waiting: deque[anyio.Event] = deque()
        """Those who wait for a slot; where there are none, giving one back is to count it no more."""

    async def take(self) -> None:
        """Wait for a slot; it is handed over by whoever gives one back."""
        turn = anyio.Event()
        self.waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.give_back()
            else:
                self.waiting.remove(turn)
            raise

    def give_back(self) -> None:
        if self.waiting:
            self.waiting.popleft().set()
        else:
            self.used -= 1
