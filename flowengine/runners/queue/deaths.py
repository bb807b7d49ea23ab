"""Gives a run its turn in a worker: beside others, alone where its workers may have died of it, or given up.

What the decision needs is noted beside the run: how many runs each worker had that died with it. A worker that drives a
run alone notes so before; for all others the note is made by the worker that takes the runs over. The first note of
a death counts: a later one may see fewer of the worker's runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread

from flowengine.core.values import thaw
from flowengine.engine.events import Event
from flowengine.engine.ports import JournalStore
from flowengine.errors import JournalError, RunError
from flowengine.journal.postgres.store import PostgresJournal
from flowengine.runners.queue import crash_count as queue_loading
from flowengine.runners.queue.crash_count import Company, Deaths, is_progress
from flowengine.runners.queue.suspicion import Suspicion

__all__ = ["Turns", "companies_of", "forget_companies", "note_companies"]

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
    """What was noted of a run's deaths, the last one at the end."""
    return tuple(company for _, company in _to_pairs(store.recall(_KIND, run_id)))


def forget_companies(store: JournalStore, run_id: str, epoch: int | None = None) -> None:
    """The run came to an end; or, with an epoch, was stopped in it."""

    def change(known: Any) -> Any:
        return None if epoch is None else [list(pair) for pair in _to_pairs(known) if pair[0] != epoch] or None

    store.revise(_KIND, run_id, change)


def _add_death(death: tuple[int, int], known: Any) -> Any:
    pairs = _to_pairs(known)
    if death[0] not in dict(pairs):
        pairs.append(death)
    return [list(pair) for pair in pairs[-_MOST:]]


def _to_pairs(known: Any) -> list[tuple[int, int]]:
    found: Iterable[Any] = [] if known is None else thaw(known)
    return [(epoch, company) for epoch, company in found]


def _explain_giving_up(deaths: Deaths, loading: int, takeovers: int) -> str:
    if loading:
        return f"given up after {takeovers} takeovers: each worker that loaded the flow's code died of it"
    nodes = " and ".join(f"'{each}'" for each in deaths.nodes)
    where = f", last in node{'s' if len(deaths.nodes) > 1 else ''} {nodes}" if nodes else ""
    return f"given up after {takeovers} takeovers{where}: each worker that had the run died, and nothing new finished"


def _clear_at_progress(clear: Callable[[], None], event: Event) -> None:
    """What finishes something has not killed its worker."""
    if is_progress(event):
        clear()
