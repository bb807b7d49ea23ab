"""Weighs whether a run is suspected, or proven, to kill its workers, from the deaths on record.

By that a run gets its turn: beside others, alone, or no more.

A worker that dies takes all its runs with it, and at most one of them is at fault. So a death says the less about a
run, the more runs it shared it with; and only deaths that a run had to itself prove anything.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import ceil, log
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
from procrastinate import App

from flowengine.core import thaw
from flowengine.engine import Event, JournalStore
from flowengine.errors import JournalError, RunError, SupersededError
from flowengine.journal.postgres import PostgresJournal
from flowengine.runtime.queue import crash_count as queue_loading
from flowengine.runtime.queue.crash_count import Company, Deaths, is_progress

SUSPECT: Final = 2.0
"""The weight of deaths in a row from which on a run is driven alone."""
_FEW: Final = 4
"""A death among so many runs counts in full."""


def weigh_death(company: int) -> float:
    """Returns the weight of a worker's death for one of its runs: 1, and less from five runs on.

    A run that was in each of them is suspected after two deaths among 4 runs, three among 16, four among 64.

    >>> [round(weigh_death(company), 2) for company in (1, 4, 16, 64, 256)]
    [1.0, 1.0, 0.67, 0.5, 0.4]
    """
    return min(1.0, SUSPECT / (1 + log(max(company, 1), _FEW)))


class Suspicion(NamedTuple):
    """The deaths of a run's writers in a row, without anything new on record in between; one that was silent for so
    long that its run was given to another counts as dead."""

    companies: Sequence[int | None]
    """How many runs each of those workers had, the last one at the end; None where that is not on record."""

    @classmethod
    def of(cls, deaths: int, noted: Sequence[int]) -> Suspicion:
        """So many deaths in a row, of which these companies are on record, and maybe earlier ones.

        >>> Suspicion.of(3, [50, 1]), Suspicion.of(1, [50, 1])
        (Suspicion(companies=(None, 50, 1)), Suspicion(companies=(1,)))
        """
        companies = tuple(noted)[-deaths:] if deaths else ()
        return cls((*[None] * (deaths - len(companies)), *companies))

    @property
    def weight(self) -> float:
        """Deaths of which nothing else is known count in full."""
        return sum(weigh_death(company or 1) for company in self.companies)

    @property
    def alone(self) -> int:
        """The number of deaths at which the run was alone."""
        return sum(company == 1 for company in self.companies)

    def is_suspect(self, takeovers: int) -> bool:
        """Tells whether the run is to be driven alone; after its first death where it may be taken over not even
        once.
        """
        return bool(self.companies) and (takeovers == 0 or self.weight >= SUSPECT)

    def is_proven(self, takeovers: int) -> bool:
        """Tells whether the run is at fault: more deaths than it may be taken over, all but two of which were its own.

        >>> Suspicion((9, 9, 1, 1, 1, 1)).is_proven(5), Suspicion((9, 9, 9, 1, 1, 1)).is_proven(5)
        (True, False)
        """
        own = min(takeovers, max(1, takeovers - 1))
        return self.is_suspect(takeovers) and len(self.companies) > takeovers and self.alone >= own


def share_out(waiting: int, idle: int) -> int:
    """Returns how many of the runs that wait in a worker are left to idle workers.

    >>> share_out(1, 1), share_out(9, 2), share_out(9, 0)
    (1, 6, 0)
    """
    return ceil(waiting * idle / (idle + 1))


# --- Waiting runs for idle workers

_IDLE: Final = """
    SELECT count(*) AS idle FROM procrastinate_workers AS worker JOIN flowengine_worker AS said USING (id)
    WHERE said.queue = %(queue)s AND worker.id <> %(worker)s
    AND worker.last_heartbeat > now() - make_interval(secs => %(stalled)s)
    AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE worker_id = worker.id AND status = 'doing')
"""
_TELL: Final = "SELECT pg_notify('procrastinate_queue_v1#' || %(queue)s, %(said)s)"
"""Notifies a queue as the library does for a new job."""


class Sharing:
    """`look` is called again and again. `stalled`: seconds after which a worker that gives no sign is gone."""

    def __init__(self, app: App, queue: str, company: Company, *, stalled: float) -> None:
        self._app, self._queue, self._company, self._stalled = app, queue, company, stalled
        self._has_left = False

    async def look(self, worker: int | None, has_rescued: bool) -> None:
        """Leave runs to idle workers, and tell all of those that were left the last time, or rescued now."""
        if self._has_left or has_rescued:
            payload = json.dumps({"type": "job_inserted", "job_id": 0})
            await self._app.connector.execute_query_async(_TELL, queue=self._queue, said=payload)
        self._has_left = False
        if worker is None or not self._company.waiting:
            return
        row = await self._app.connector.execute_query_one_async(
            _IDLE, queue=self._queue, worker=worker, stalled=self._stalled
        )
        leaving = share_out(self._company.waiting, row["idle"])
        if leaving:
            self._company.leave(leaving)
            self._has_left = True


# --- The turn of a run: beside others, alone where its workers may have died of it, or given up
#
# What the decision needs is noted beside the run: how many runs each worker had that died with it. A worker that drives
# a run alone notes so before; for all others the note is made by the worker that takes the runs over. The first note of
# a death counts: a later one may see fewer of the worker's runs.

_KIND: Final = "queue.deaths"
_MOST: Final = 30
"""Deaths of which the company is remembered."""


class Turns:
    """`takeovers`: how often in a row a run is taken from writers that died."""

    def __init__(self, store: JournalStore, takeovers: int) -> None:
        self._store, self._takeovers = store, takeovers
        self.company = Company()

    @asynccontextmanager
    async def turn(
        self, journal: PostgresJournal, run_id: str, deaths: Deaths, loading: int, *, is_new: bool, may_leave: bool
    ) -> AsyncGenerator[None]:
        """Drive a run when its turn has come. `loading`: deaths of workers that loaded its code. `is_new`: it was in
        nobody's hands before. `RunError` where its workers died of it, `LeftError` where it is left to others."""
        total = deaths.in_a_row + loading
        noted = await anyio.to_thread.run_sync(companies_of, self._store, run_id) if total else ()
        suspicion = Suspicion.of(total, noted)
        if not suspicion.is_suspect(self._takeovers):
            async with self.company.among_others(may_leave=may_leave):
                yield
        else:
            async with self.company.alone(may_leave=may_leave) as clear:
                if suspicion.is_proven(self._takeovers):
                    await self._forget(run_id)
                    raise RunError(_explain_giving_up(deaths, loading, self._takeovers))
                with_us = {run_id: (journal.epoch, 1)}
                await anyio.to_thread.run_sync(note_companies, self._store, with_us)
                journal.listener = partial(_clear_at_progress, clear)
                try:
                    yield
                except SupersededError:  # It stalled for so long that another took the run: as bad as a death.
                    raise
                except BaseException:  # This process lives: it was no death.
                    await self._forget(run_id, journal.epoch)
                    raise
        if total or not is_new:
            await self._forget(run_id)

    async def _forget(self, run_id: str, epoch: int | None = None) -> None:
        with anyio.CancelScope(shield=True), suppress(JournalError):
            await anyio.to_thread.run_sync(forget_companies, self._store, run_id, epoch)
            if epoch is None:
                await anyio.to_thread.run_sync(queue_loading.end, self._store, run_id)


def note_companies(store: JournalStore, companies: Mapping[str, tuple[int, int]]) -> None:
    """Of each run, the epoch of its writer and how many runs that has, or had when it died."""
    for run_id, death in companies.items():
        store.revise(_KIND, run_id, partial(_add_death, death))


def companies_of(store: JournalStore, run_id: str) -> tuple[int, ...]:
    """Returns the recorded number of runs at each death, the last one at the end."""
    return tuple(company for _, company in _to_pairs(store.recall(_KIND, run_id)))


def forget_companies(store: JournalStore, run_id: str, epoch: int | None = None) -> None:
    """The run came to an end; or, with an epoch, was stopped in it."""

    def change(stored: Any) -> Any:
        return None if epoch is None else [list(pair) for pair in _to_pairs(stored) if pair[0] != epoch] or None

    store.revise(_KIND, run_id, change)


def _add_death(death: tuple[int, int], stored: Any) -> Any:
    pairs = _to_pairs(stored)
    if death[0] not in dict(pairs):
        pairs.append(death)
    return [list(pair) for pair in pairs[-_MOST:]]


def _to_pairs(stored: Any) -> list[tuple[int, int]]:
    rows: Iterable[Any] = [] if stored is None else thaw(stored)
    return [(epoch, company) for epoch, company in rows]


def _explain_giving_up(deaths: Deaths, loading: int, takeovers: int) -> str:
    if loading:
        return f"given up after {takeovers} takeovers: each worker that loaded the flow's code died of it"
    nodes = " and ".join(f"'{each}'" for each in deaths.nodes)
    where = f", last in node{'s' if len(deaths.nodes) > 1 else ''} {nodes}" if nodes else ""
    reason = "each worker that had the run died or stalled, and nothing new finished"
    return f"given up after {takeovers} takeovers{where}: {reason}"


def _clear_at_progress(clear: Callable[[], None], event: Event) -> None:
    """Clears the suspicion when a run finishes something."""
    if is_progress(event):
        clear()
