"""Knows of a run that goes on what its record does not tell: whom it asks, what is being written, and the time left.

Agents' text is heard while they write it, from this process or, of a run of another one, from the store. The time
left is by earlier runs of the flow, which a thread reads once the run has gone on for a while. It prints nothing.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import Any, Final

from flowengine.cli.terminal import format_seconds
from flowengine.core import ModelCall
from flowengine.engine import (
    Event,
    JournalStore,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    RunFinished,
    TokenStreamed,
)
from flowengine.errors import JournalError
from flowengine.journal import LiveFollower, LiveText, LiveTexts, RunsAsked, only_looking, run_index_of
from visualize.progress import Progress, fold_events
from visualize.usual_times import MOST_EVENTS_TIMED, RUNS_TIMED, RunPoint, point_of, time_left, usual_times

_QUICK: Final = 1.0
"""Seconds that a run has gone on before earlier ones are read for it."""
_LOOKED_AT: Final = 40
"""Earlier runs among which those are sought that are short enough to be read."""
_PAUSE: Final = 0.5
"""Seconds between two looks at what another process writes."""
_AT_END: Final = 2.0
"""Seconds that the end waits for the thread."""

_ENDS: Final = (NodeFinished, NodeFailed, NodeSkipped, NodeCancelled)


class RunOutlook:
    """Expectations about one run, whose progress somebody else folds."""

    def __init__(self, progress: Progress, store: JournalStore | None = None) -> None:
        """`store`: where earlier runs of the flow are; None: nothing is said of the time that is left."""
        self._progress = progress
        self._store = store
        self._texts = LiveTexts()
        self._follower = LiveFollower()
        self._ended: dict[str, float] = {}
        """Node → when a call of it, or itself, ended last."""
        self._start = monotonic()
        self._look_at = 0.0
        self._thread: Thread | None = None
        self._usual: dict[str, Any] = {}

    # --- what is heard

    def apply(self, event: Event) -> None:
        """Something is on record by now, so that it is not being written any more."""
        if isinstance(event, RunFinished):
            self._texts = LiveTexts()
        elif isinstance(event, _ENDS) or (isinstance(event, NodeRecorded) and type(event.record) is ModelCall):
            self._ended[event.node] = event.at
            stream = self._texts.of(event.node)
            if stream is not None and stream.asked <= event.at:
                self._texts.settle(event.node)

    def hear(self, piece: TokenStreamed) -> None:
        """A piece of text, or who is asked; what comes late, of a call that is on record, is left out."""
        if piece.at >= self._ended.get(piece.node, 0.0):
            self._texts.hear(piece)

    def read(self, run_id: str) -> None:
        """Hear what the process that drives the run shows in the store, now and then."""
        if self._store is None or monotonic() < self._look_at:
            return
        self._look_at = monotonic() + _PAUSE
        with suppress(JournalError):  # It is tried again.
            for piece in self._follower.look(self._store, run_id):
                self.hear(piece)

    def of(self, node: str) -> LiveText | None:
        """Returns the last request of a running node, and the answer so far."""
        row = self._progress.nodes.get(node)
        return self._texts.of(node) if row is not None and row.status == "running" else None

    # --- how long it takes

    def describe_left(self, now: float) -> str:
        """`about 12 s left (by 5 runs)`; empty where nothing is known of it."""
        self._look_back()
        seconds = time_left(self._progress, self._usual.get("seconds", {}), now)
        if seconds is None:
            return ""
        runs = self._usual["runs"]
        words = "done any moment" if seconds < 1 else f"about {format_seconds(seconds)} left"
        return f"{words} (by {runs} run{'s' * (runs != 1)})"

    def _look_back(self) -> None:
        """Have earlier runs read, once; a short run ends before."""
        started = self._progress.started
        if self._thread is None and started is not None and monotonic() > self._start + _QUICK:
            self._thread = Thread(target=self._read_earlier, args=(started.flow, started.run_id), daemon=True)
            self._thread.start()

    def _read_earlier(self, flow: str, run_id: str) -> None:
        store = self._store
        # Whatever is wrong with earlier runs is no matter of this one; its end may have closed the store.
        with suppress(Exception):
            if store is not None:
                self._usual = usual_times(_read_points(store, flow, run_id))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(_AT_END)


def _read_points(store: JournalStore, flow: str, run_id: str) -> list[RunPoint]:
    """The last runs of a flow that succeeded."""
    infos = run_index_of(store).find(RunsAsked(flow, "succeeded"), _LOOKED_AT).infos
    short = [info for info in infos if info.events <= MOST_EVENTS_TIMED and info.run_id != run_id]
    with only_looking():
        return [point_of(fold_events(store.events(info.run_id))) for info in short[:RUNS_TIMED]]
