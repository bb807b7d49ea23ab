"""Which runs are at work beside each other in a worker: one that is suspected to kill its workers is driven alone.

It knows no store and no deaths: whether a run is to be alone is decided by `suspicion`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

__all__ = ["Company", "LeftError"]


class LeftError(Exception):
    """The run waited for its turn, and is left to a worker that has nothing to do."""


class _Place:
    """One of those that wait."""

    def __init__(self, *, alone: bool, may_leave: bool) -> None:
        self.alone, self.may_leave = alone, may_leave
        self.is_leaving = False


class Company:
    """The runs that a worker has at work, and those that wait for their turn."""

    def __init__(self) -> None:
        self._at_work = 0
        self._line: list[_Place] = []
        self._alone: object | None = None
        """Stands for the run that is alone, until it is above suspicion."""
        self._changed = anyio.Event()

    @property
    def waiting(self) -> int:
        """How many wait that may be left to others."""
        return sum(place.may_leave and not place.is_leaving for place in self._line)

    def leave(self, count: int) -> None:
        """Let so many of those that wait go, with a `LeftError`: first those that are to be alone, the last ones of
        each first."""
        waiting = [place for place in reversed(self._line) if place.may_leave and not place.is_leaving]
        for place in sorted(waiting, key=lambda place: not place.alone)[:count]:
            place.is_leaving = True
        self._tell()

    @asynccontextmanager
    async def among_others(self, *, may_leave: bool = False) -> AsyncGenerator[None]:
        """Be at work beside others, once nobody is, or is to be, alone."""
        place = _Place(alone=False, may_leave=may_leave)
        await self._await_turn(place, lambda: self._alone is not None or any(each.alone for each in self._line))
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            self._tell()

    @asynccontextmanager
    async def alone(self, *, may_leave: bool = False) -> AsyncGenerator[Callable[[], None]]:
        """Be at work once all others have ended; they begin again after it.

        Gives what to call once the run is above suspicion: then nothing waits for its end any more, so that of many
        runs that a worker's death left behind each holds up the others only until something of it has finished.
        """
        await self._await_turn(_Place(alone=True, may_leave=may_leave), lambda: self._at_work > 0)
        mine = self._alone = object()
        self._at_work += 1

        def clear() -> None:
            if self._alone is mine:
                self._alone = None
                self._at_work -= 1
                self._tell()

        try:
            yield clear
        finally:
            clear()

    async def _await_turn(self, place: _Place, is_blocked: Callable[[], bool]) -> None:
        if not is_blocked():
            return
        self._line.append(place)
        try:
            while is_blocked():
                if place.is_leaving:
                    raise LeftError
                await self._changed.wait()
        finally:
            self._line.remove(place)
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
