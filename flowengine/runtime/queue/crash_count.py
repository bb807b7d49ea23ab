"""Tracks the runs of a worker, and lets one that is suspected of killing its workers run alone.

It counts deaths of a run's writers from its journal. Whether a run is to be alone is decided by `suspicion`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import anyio

from flowengine.core import Answered, ModelCall, ToolCall
from flowengine.engine import (
    Event,
    JournalStore,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)

# --- Deaths of a run's writers


class Deaths(NamedTuple):
    """Writers that died one after another, without anything new on record in between."""

    in_a_row: int
    nodes: Sequence[str]
    """The innermost nodes that the last of them was in; empty where that is not on record."""


def deaths_of(events: Iterable[Event]) -> Deaths:
    """Counts the deaths of a run that no process works on; its last writer is one, unless it said that it ended."""
    count, within = 0, dict[str, None]()
    nodes: tuple[str, ...] = ()
    before: Event | None = None
    for event in events:
        if isinstance(event, RunResumed):
            count, nodes = _count_death(count, nodes, before, within)
            within.clear()
        elif isinstance(event, NodeStarted):
            within[event.node] = None
        elif isinstance(event, NodeFinished | NodeFailed | NodeSkipped | NodeCancelled):
            within.pop(event.node, None)
        if is_progress(event):
            count = 0
        before = event
    return Deaths(*_count_death(count, nodes, before, within))


def _count_death(
    count: int, nodes: tuple[str, ...], last: Event | None, within: dict[str, None]
) -> tuple[int, tuple[str, ...]]:
    """One more, unless the writer before has said that it ended, or there was none yet.

    From the second one on, a node must have been at work: it is written which nodes are, before they are. Of the first
    that is not known.
    """
    if last is None or isinstance(last, RunStarted | RunFinished) or (count and not within):
        return count, nodes
    return count + 1, _innermost_nodes(within) or nodes


def _innermost_nodes(within: Iterable[str]) -> tuple[str, ...]:
    names = tuple(within)
    return tuple(each for each in names if not any(other.startswith((f"{each}.", f"{each}[")) for other in names))


def is_progress(event: Event) -> bool:
    """Tells whether it is something that the next writer need not do again, or somebody has seen to the run."""
    if isinstance(event, NodeRecorded):
        return type(event.record) in (ModelCall, ToolCall, Answered)
    if isinstance(event, RunFinished):
        return event.status not in ("cancelled", "running")
    return isinstance(event, NodeFinished | NodeFailed | NodeSkipped)


# --- Deaths while the flow's code was loaded

_KIND: Final = "queue.loading"


def deaths_while_loading(store: JournalStore, run_id: str) -> int:
    """Counts the deaths of workers while they loaded the run."""
    count = store.recall(_KIND, run_id)
    return count if isinstance(count, int) else 0


def begin(store: JournalStore, run_id: str) -> None:
    """The code is loaded now."""

    def change(count: Any) -> Any:
        return count + 1 if isinstance(count, int) else 1

    store.revise(_KIND, run_id, change)


def end(store: JournalStore, run_id: str) -> None:
    """It was loaded, or could not be, and this process lives."""
    store.revise(_KIND, run_id, lambda known: None)


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
        """The number of waiting runs that may be left to other workers."""
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
        """Be at work beside others, once no run is, or is to be, alone."""
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
