"""Reports on a run while it goes on: folds its events, prints `--events` and notices, draws the live tree.

It neither runs anything nor writes to the store.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Final, NamedTuple

from flowengine.cli.terminal import Results, complain, format_clock, has_live_stderr
from flowengine.engine.events import Event, NodeStarted, TokenStreamed
from flowengine.engine.ports import JournalStore
from flowengine.journal.value_types import only_looking
from visualize.progress import Progress

if TYPE_CHECKING:
    from flowengine.cli.run_outlook import RunOutlook
    from flowengine.runners.queue.run_positions import Standing

__all__ = ["Reporting", "follow", "format_run_standing", "watching"]

# --- Standing of a queued run


def format_run_standing(store: JournalStore, run_id: str) -> Iterator[str]:
    """Formats a run's position in its queue, and what its workers lack; empty if it needs no worker."""
    from flowengine.runners.queue.run_positions import standing_of

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
        self._said: tuple[str, ...] = ()
        self._not_before = 0.0
        self.is_in_queue = False

    def news(self, *, now: bool = False) -> Sequence[str]:
        """The lines that are new; `now`: asked at once."""
        if not now and monotonic() < self._not_before:
            return ()
        from flowengine.runners.queue.run_positions import standing_of  # Most runs wait in no queue.

        self._not_before = monotonic() + self.pause
        standing = standing_of(self._store, self._run_id)
        self.is_in_queue = standing is not None and not standing.is_question
        lines = (
            tuple(format_run_standing(self._store, self._run_id))
            if standing is None
            else tuple(_format_standing(standing))
        )
        said, self._said = self._said, lines
        return [line for line in lines if line not in said]


_FIRST_LINE: Final = 10.0
"""Seconds after which a pipe is told for the first time how far a run is."""
_EACH_LINE: Final = 15.0


class Reporting(NamedTuple):
    """The parts of a run that the user wants to see."""

    json: bool = False
    """One object on stdout at the end, instead of the outputs."""
    events: bool = False
    """Each event as a line on stdout while it happens, instead of the outputs."""
    quiet: bool = False
    """Errors only on stderr."""


class ProgressWatch:
    """The journal's listener: it folds first, so that all others see the run as it is after the event."""

    def __init__(
        self, progress: Progress, reporting: Reporting, results: Results, store: JournalStore | None = None
    ) -> None:
        self._progress = progress
        self._reporting = reporting
        self._results = results
        self._store = store
        self._outlook: RunOutlook | None = None
        self._asked: dict[str, TokenStreamed] = {}
        """Node → whom it asks, as long as nobody is told."""
        self._is_live = has_live_stderr()
        self._say_at = monotonic() + _FIRST_LINE

    @property
    def is_drawn(self) -> bool:
        """Whether the tree of nodes is drawn, and drawn anew."""
        is_covered = self._reporting.events and self._results.on_terminal
        return self._is_live and not self._reporting.quiet and not is_covered

    @property
    def outlook(self) -> RunOutlook:
        """What is known about the run beside its record; computed on first use."""
        if self._outlook is None:
            from flowengine.cli.run_outlook import RunOutlook  # Most runs end before anybody asks.

            self._outlook = RunOutlook(self._progress, self._store)
            for piece in self._asked.values():
                self._outlook.hear(piece)
        return self._outlook

    def hear(self, piece: TokenStreamed) -> None:
        """Hear what an agent writes, where somebody is shown it."""
        if self._outlook is not None:
            self._outlook.hear(piece)
        elif piece.model:
            self._asked[piece.node] = piece

    def __call__(self, event: Event) -> None:
        told = len(self._progress.notices)
        self._progress.apply(event)
        if self._outlook is not None:
            self._outlook.apply(event)
        elif self._asked and not isinstance(event, NodeStarted):
            self._asked.pop(getattr(event, "node", None) or "", None)
        if self._reporting.events:
            from flowengine.journal.run_export import event_line  # Reads and writes journals; few commands need it.

            self._results.attempt(event_line(event))
        if not self._reporting.quiet and len(self._progress.notices) > told:
            complain(f"notice: {list(self._progress.notices)[-1]}")
        self.tell_progress()

    def tell_progress(self) -> None:
        """A line from time to time, where no picture can be drawn: for logs of jobs."""
        if self._is_live or self._reporting.quiet or self._reporting.events or monotonic() < self._say_at:
            return
        from flowengine.cli.live import format_progress_line  # rich is not needed before.

        self._say_at = monotonic() + _EACH_LINE
        if self._progress.started is not None and self._progress.finished is None:
            complain(format_progress_line(self._progress, time(), self.outlook))

    def close(self) -> None:
        if self._outlook is not None:
            self._outlook.close()


@contextmanager
def watching(
    progress: Progress,
    reporting: Reporting,
    results: Results,
    past: Sequence[Event] = (),
    store: JournalStore | None = None,
) -> Generator[ProgressWatch]:
    """A listener for the run's events, whose `hear` takes what agents write. It prints what the user wants.

    `past`: of a run that is resumed. `store`: where earlier runs say how long it may take.
    """
    for event in past:
        progress.apply(event)
    watch = ProgressWatch(progress, reporting, results, store)
    with ExitStack() as until_the_end:
        until_the_end.callback(watch.close)
        if watch.is_drawn:
            from flowengine.cli.live import live_tree  # rich is for terminals.

            until_the_end.enter_context(live_tree(progress, watch.outlook))
        yield watch


def follow(store: JournalStore, run_id: str, reporting: Reporting, results: Results, pause: float = 0.1) -> Progress:
    """Watch a run that another process may be writing, until its last event, or until Ctrl-C. Nothing is written.

    One that is in a queue has no last event; where the tree is drawn, one that waits for a person is watched on.
    `pause`: seconds between two looks at the store.
    """
    progress, seen = Progress(), 0
    following = RunStanding(store, run_id)
    with watching(progress, reporting, results, store=store) as watch, suppress(KeyboardInterrupt):
        while True:
            if not reporting.quiet and not reporting.events:
                watch.outlook.read(run_id)
            with only_looking():
                events = store.events(run_id, seen)
            for event in events:
                watch(event)
                seen += 1
            watch.tell_progress()
            for line in following.news(now=progress.finished is not None and not events):
                if not reporting.quiet:
                    complain(f"run {run_id}: {line}")
            is_over = progress.finished is not None and not events and not following.is_in_queue
            if is_over and not (watch.is_drawn and progress.status == "waiting"):
                break
            sleep(pause)
    return progress
