"""Follows a run that another process writes, and says where a queued one stands. It writes nothing to the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING

from flowengine.cli.execute import ProgressWatch
from flowengine.cli.options import Reporting
from flowengine.cli.terminal import Results, complain, format_clock
from flowengine.engine import JournalStore
from flowengine.journal import only_looking
from visualize.progress import Progress

if TYPE_CHECKING:
    from flowengine.runtime.queue import Standing

# --- Standing of a queued run


def format_run_standing(store: JournalStore, run_id: str) -> Iterator[str]:
    """Formats a run's position in its queue, and what its workers lack; empty if it needs no worker."""
    from flowengine.runtime.queue import standing_of

    standing = standing_of(store, run_id)
    if standing is not None:
        yield from _format_standing(standing)
    elif run_id in store.abandoned():
        yield "interrupted: no process works on it any more"


def _format_standing(standing: Standing) -> Iterator[str]:
    at = f", not before {format_clock(standing.at)}" if standing.at is not None else ""
    if standing.is_question:
        yield f"waits for an answer until {format_clock(standing.at or 0)}"
        return
    yield f"{standing.text}{at}"
    for worker, lack in standing.lacks.items():
        yield f"worker {worker} lacks {lack}"


class RunStanding:
    """Reports changes in a run's queue position, for a command that watches it."""

    pause = 0.5
    """Seconds between two questions to the store."""

    def __init__(self, store: JournalStore, run_id: str) -> None:
        self._store, self._run_id = store, run_id
        self._lines: tuple[str, ...] = ()
        self._not_before = 0.0
        self.is_in_queue = False

    def news(self, *, now: bool = False) -> Sequence[str]:
        """The lines that are new; `now`: asked at once."""
        if not now and monotonic() < self._not_before:
            return ()
        from flowengine.runtime.queue import standing_of  # Most runs wait in no queue.

        self._not_before = monotonic() + self.pause
        standing = standing_of(self._store, self._run_id)
        self.is_in_queue = standing is not None and not standing.is_question
        lines = (
            tuple(format_run_standing(self._store, self._run_id))
            if standing is None
            else tuple(_format_standing(standing))
        )
        before, self._lines = self._lines, lines
        return [line for line in lines if line not in before]


def follow(store: JournalStore, run_id: str, reporting: Reporting, results: Results, pause: float = 0.1) -> Progress:
    """Watch a run that another process may be writing, until its last event, or until Ctrl-C. Nothing is written.

    One that is in a queue has no last event; where the tree is drawn, one that waits for a person is watched on.
    `pause`: seconds between two looks at the store.
    """
    watch, count = ProgressWatch(reporting, results, store=store), 0
    following = RunStanding(store, run_id)
    with watch.shown(), suppress(KeyboardInterrupt):
        while True:
            if not reporting.quiet and not reporting.events:
                watch.outlook.read(run_id)
            with only_looking():
                events = store.events(run_id, count)
            for event in events:
                watch(event)
                count += 1
            watch.tell_progress()
            progress = watch.fold()
            for line in following.news(now=progress.finished is not None and not events):
                if not reporting.quiet:
                    complain(f"run {run_id}: {line}")
            is_over = progress.finished is not None and not events and not following.is_in_queue
            if is_over and not (watch.is_drawn and progress.status == "waiting"):
                break
            sleep(pause)
    return watch.fold()
