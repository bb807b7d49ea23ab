"""Which runs are at work beside each other in a worker: one whose writers keep dying is driven alone.

A worker that dies takes all its runs with it, and only one of them may be at fault. So deaths among others count up to
a point, and from there on only those that a run had to itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import anyio

from flowengine.engine.ports import JournalStore
from flowengine.values import thaw

__all__ = ["SUSPECT", "Company", "Suspicion", "forget_suspicion", "note_suspicion"]

SUSPECT: Final = 2
"""Deaths in a row after which a run is driven alone."""
_KIND: Final = "queue.alone"


class Company:
    """The runs that a worker has at work."""

    def __init__(self) -> None:
        self._at_work = 0
        self._waiting = 0
        """Runs that are to be alone."""
        self._alone: object | None = None
        """Stands for the run that is alone, until it is above suspicion."""
        self._changed = anyio.Event()

    @asynccontextmanager
    async def among_others(self) -> AsyncGenerator[None]:
        """Be at work beside others, once nobody is, or is to be, alone."""
        while self._alone is not None or self._waiting:
            await self._changed.wait()
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            self._tell()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[Callable[[], None]]:
        """Be at work once all others have ended; they begin again after it.

        Gives what to call once the run is above suspicion: then nothing waits for its end any more, so that of many
        runs that a worker's death left behind each holds up the others only until something of it has finished.
        """
        self._waiting += 1
        try:
            while self._at_work:
                await self._changed.wait()
            mine = self._alone = object()
            self._at_work += 1
        finally:
            self._waiting -= 1
            self._tell()

        def clear() -> None:
            if self._alone is mine:
                self._alone = None
                self._at_work -= 1
                self._tell()

        try:
            yield clear
        finally:
            clear()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Suspicion(NamedTuple):
    """What is noted of a run before it is driven alone."""

    deaths: int
    """In a row, by then."""
    alone: int
    """How many of them it had to itself."""

    def after(self, deaths: int) -> Suspicion:
        """What is to be noted the next time.

        >>> Suspicion(2, 0).after(3), Suspicion(3, 1).after(3), Suspicion(4, 2).after(2)
        (Suspicion(deaths=3, alone=1), Suspicion(deaths=3, alone=1), Suspicion(deaths=2, alone=0))
        """
        if deaths < self.deaths:  # Something new finished since.
            return Suspicion(deaths, 0)
        return Suspicion(deaths, self.alone + (deaths > self.deaths))

    def is_proven(self, takeovers: int) -> bool:
        """Whether the run is at fault: of so many deaths, all but the first ones were its own.

        >>> Suspicion(6, 4).is_proven(5), Suspicion(6, 3).is_proven(5), Suspicion(5, 5).is_proven(5)
        (True, False, False)
        """
        return self.deaths > takeovers and self.alone > takeovers - SUSPECT


def note_suspicion(store: JournalStore, run_id: str, deaths: int) -> Suspicion:
    """The run is about to be driven alone after so many deaths; it says so if this process does not live."""
    found = Suspicion(deaths, 0)

    def change(known: Any) -> Any:
        nonlocal found
        found = Suspicion(deaths, 0) if known is None else Suspicion(*thaw(known)).after(deaths)
        return list(found)

    store.revise(_KIND, run_id, change)
    return found


def forget_suspicion(store: JournalStore, run_id: str) -> None:
    """The run came to an end, or was stopped, and this process lives."""
    store.revise(_KIND, run_id, lambda known: None)
