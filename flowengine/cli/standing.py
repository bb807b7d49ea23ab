"""What is said of runs beside what is on record of them: queued, taken by whom, left by a writer that died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic

from flowengine.cli.units import clock
from flowengine.engine.ports import JournalStore
from flowengine.runners.queue_view import Standing, standing_of

__all__ = ["Following", "lines_of"]


def lines_of(store: JournalStore, run_id: str) -> Iterator[str]:
    """Where a run stands, and what its workers lack; nothing for one that nobody has to take."""
    standing = standing_of(store, run_id)
    if standing is not None:
        yield from _told(standing)
    elif run_id in store.abandoned():
        yield "interrupted: nobody works on it any more"


def _told(standing: Standing) -> Iterator[str]:
    at = f", not before {clock(standing.at)}" if standing.at is not None else ""
    if standing.is_question:
        yield f"waits for an answer until {clock(standing.at or 0)}"
        return
    yield f"{standing.text}{at}"
    for worker, lack in standing.lacks.items():
        yield f"worker {worker} lacks {lack}"


class Following:
    """What has changed since it was last asked, for somebody who watches a run."""

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
        self._not_before = monotonic() + self.pause
        standing = standing_of(self._store, self._run_id)
        self.is_in_queue = standing is not None and not standing.is_question
        lines = tuple(lines_of(self._store, self._run_id)) if standing is None else tuple(_told(standing))
        said, self._said = self._said, lines
        return [line for line in lines if line not in said]
