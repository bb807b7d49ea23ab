"""Gives a run's nodes their slots, and knows when the run has last let others of its event loop run.

It knows neither walk nor journal.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import Final, NoReturn

import anyio

from flowengine.errors import OverdueError

# --- Deadlines while templates are evaluated

_LONGEST: Final = 1.0
"""Seconds; the cancellation is due already."""


async def wait_until_cancelled() -> None:
    """Wait until the cancellation arrives that is due."""
    await anyio.sleep(_LONGEST)


async def meet_deadline(error: OverdueError) -> NoReturn:
    """Wait until the cancellation arrives that is due; raise the error where none does."""
    await wait_until_cancelled()
    raise error


# --- Slots of nodes in flight

_MANY: Final = 1 << 60
_LOOKS_AGAIN: Final = 0.0001
"""Seconds between two looks for a stop of the run."""


class NodeSlots:
    """Slots for nodes in flight; containers hold none, and neither does a node that waits for a person.

    Where `used` is below `limit`, a caller that wants a slot counts it; else it waits with `take`.
    """

    __slots__ = ("limit", "looks_next", "rested", "used", "waiting")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or _MANY
        self.used = 0
        self.rested = perf_counter()
        """When the run last let other tasks of its loop run."""
        self.looks_next = self.rested
        """When to look next whether the run was stopped; a look costs a tenth of what a node costs."""
        self.waiting: deque[anyio.Event] = deque()
        """Those who wait for a slot; where there are none, giving one back is to count it no more."""

    def has_stopped(self, now: float) -> bool:
        """Tells whether the run was stopped while others of its loop ran, though nothing of it was told so yet."""
        self.looks_next = now + _LOOKS_AGAIN
        return anyio.current_effective_deadline() <= anyio.current_time()

    async def take(self) -> None:
        """Wait for a slot; it is handed over when one is given back."""
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
