"""Reads runs from the store on threads, and keeps what pages need of them while they are looked at.

It knows the store's reading side only: nothing here writes, and no caller waits on the event loop's own thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from flowengine.engine import Event, JournalStore, RunInfo
from flowengine.errors import RunNotFoundError
from flowengine.journal import ListedRuns, RunLine, RunQuery, notes_of, only_looking
from flowengine.runtime import RunLister
from visualize.usual_times import MOST_EVENTS_TIMED, RUNS_TIMED, RunPoint, point_of, usual_times
from visualize.viewer import PAGE_SIZE, Acting, ListFrame, Reading, RunAbout, presets_of, query_of

T = TypeVar("T")

_MAX_THREADS: Final = 2
"""Reading and drawing; each has a connection of its own to the store."""
_MAX_EVENTS: Final = 60_000
"""Events of the runs that are kept together; one run is kept however long it is."""
_MAX_POINTS: Final = 50
"""Runs of a flow that are plotted."""
_FLOWS_SECONDS: Final = 5.0
"""Seconds for which the names of flows are not asked for again: every run is looked at for them."""
_MAX_PLOT_EVENTS: Final = 50_000
"""Events that are read for one plot; runs beyond them have no cost in it until another time."""


class _CachedRun:
    """One run, and what was made of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reading: Reading | None = None
        self.made: dict[str, tuple[int, bytes]] = {}
        """Kind of content → how many events it was made of, and the content."""

    @property
    def size(self) -> int:
        return 0 if self.reading is None else len(self.reading.events)


class RunCache:
    """Read-only runs of one store."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self._threads = anyio.CapacityLimiter(_MAX_THREADS)
        self._entries: OrderedDict[str, _CachedRun] = OrderedDict()
        self._lock = threading.Lock()
        self._points: dict[str, RunPoint] = {}
        self._lister = RunLister(store)
        self._flows: Sequence[str] = ()
        self._flows_until = 0.0
        self._listing = threading.Lock()

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """The work, on a thread."""
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._threads)

    async def events(self, run_id: str, after: int = 0) -> Sequence[Event]:
        return await self.do(self._events, run_id, after)

    def page(self, query: RunQuery, number: int) -> ListedRuns:
        """A page of the list of runs, counted from 1; the last one where there are fewer. Call it on a thread."""
        with self._listing:
            runs = self._lister.page(query, PAGE_SIZE, (number - 1) * PAGE_SIZE)
            if not runs.lines and runs.total:
                runs = self._lister.page(query, PAGE_SIZE, (runs.total - 1) // PAGE_SIZE * PAGE_SIZE)
        return runs

    def list_named(self, run_ids: Sequence[str]) -> Sequence[RunLine]:
        """These runs, as far as there are such, without their digests. Call it on a thread."""
        return self._lister.list_named(run_ids)

    def remove(self, run_id: str) -> None:
        """Forget a run. Call it on a thread."""
        self.store.remove(run_id)
        self._forget(run_id)

    def frame(self, answerer: str, acting: Acting | None) -> ListFrame:
        """Returns the frame of the list. Call it in a thread."""
        with self._listing:
            presets = presets_of(answerer)
            counts = iter(self._lister.count(*(query_of(each.filters) for each in presets if each.is_counted)))
            counted = [each._replace(runs=next(counts)) if each.is_counted else each for each in presets]
            if monotonic() > self._flows_until:
                self._flows, self._flows_until = self._lister.flows(), monotonic() + _FLOWS_SECONDS
            return ListFrame(self._flows, counted, acting)

    def about(self, run_id: str) -> RunAbout:
        """Returns what is known about a run beside its record. Call it in a thread."""
        return RunAbout(notes_of(self.store, run_id), self._lister.come_from(run_id))

    async def reading(self, run_id: str) -> Reading:
        return await self.do(self.read, run_id)

    def _events(self, run_id: str, after: int) -> Sequence[Event]:
        """To look at: no flow need be loaded."""
        with only_looking():
            return self.store.events(run_id, after)

    def read(self, run_id: str) -> Reading:
        """The run as it is now; call it on a thread. Raises what the store raises."""
        entry = self._place(run_id)
        with entry.lock:
            return self._renew_entry(run_id, entry)

    def render(self, run_id: str, what: str, make: Callable[[Reading], str]) -> bytes:
        """Returns a rendering of a run in its current state, computed once for concurrent callers. Call it in a
        thread.
        """
        entry = self._place(run_id)
        with entry.lock:
            reading = self._renew_entry(run_id, entry)
            count, content = entry.made.get(what, (0, b""))
            if count != len(reading.events):
                content = make(reading).encode()
                entry.made[what] = len(reading.events), content
        return content

    def points(self, flow: str) -> list[RunPoint]:
        """The last runs of a flow, the oldest first. Call it on a thread."""
        infos = [info for info in self.store.list() if info.flow == flow][:_MAX_POINTS]
        budget = _MAX_PLOT_EVENTS
        points: list[RunPoint] = []
        for info in infos:
            point = self._points.get(info.run_id)
            if point is None or point.status != info.status or info.finished is None:
                budget -= info.events
                point = self._point(info) if budget >= 0 else _rough_point(info)
            points.append(point)
        return points[::-1]

    def usual_times(self, flow: str) -> dict[str, Any]:
        """Returns the usual durations of a flow's nodes, by its last successful runs. Call it in a thread."""
        infos = [
            info
            for info in self.store.list()
            if info.flow == flow and info.status == "succeeded" and info.events <= MOST_EVENTS_TIMED
        ]
        return usual_times([self._points.get(info.run_id) or self._point(info) for info in infos[:RUNS_TIMED]])

    def _point(self, info: RunInfo) -> RunPoint:
        try:
            point = point_of(Reading(self._events(info.run_id, 0)).progress)
        except Exception:  # A damaged run is told of on its own page.
            return _rough_point(info)
        point = point._replace(run_id=info.run_id)
        if info.finished is not None:
            self._points[info.run_id] = point
        return point

    def _renew_entry(self, run_id: str, entry: _CachedRun) -> Reading:
        old = entry.reading
        try:
            events = self._events(run_id, 0 if old is None else len(old.events))
        except RunNotFoundError:
            self._forget(run_id)
            raise
        if old is None or events:
            entry.reading = old = Reading(list(events) if old is None else [*old.events, *events])
            self._make_room()
        return old

    def _place(self, run_id: str) -> _CachedRun:
        with self._lock:
            entry = self._entries.setdefault(run_id, _CachedRun())
            self._entries.move_to_end(run_id)
            return entry

    def _forget(self, run_id: str) -> None:
        with self._lock:
            self._entries.pop(run_id, None)

    def _make_room(self) -> None:
        with self._lock:
            while len(self._entries) > 1 and sum(each.size for each in self._entries.values()) > _MAX_EVENTS:
                self._entries.popitem(last=False)


def _rough_point(info: RunInfo) -> RunPoint:
    """Returns a run's data in the list alone."""
    return RunPoint(info.run_id, info.status, None if info.finished is None else info.finished - info.started, None)
