"""Weighs whether a run is suspected, or proven, to kill its workers, from the deaths on record. Pure.

A worker that dies takes all its runs with it, and at most one of them is at fault. So a death says the less about a
run, the more runs it shared it with; and only deaths that a run had to itself prove anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import ceil, log
from typing import Final, NamedTuple

from procrastinate import App

from flowengine.runners.queue.crash_count import Company

__all__ = ["SUSPECT", "Sharing", "Suspicion", "share_out", "weigh_death"]

SUSPECT: Final = 2.0
"""The weight of deaths in a row from which on a run is driven alone."""
_FEW: Final = 4
"""A death among so many runs counts in full."""


def weigh_death(company: int) -> float:
    """What the death of a worker with so many runs weighs for one of them: 1, and less from five runs on.

    A run that was in each of them is suspected after two deaths among 4 runs, three among 16, four among 64.

    >>> [round(weigh_death(company), 2) for company in (1, 4, 16, 64, 256)]
    [1.0, 1.0, 0.67, 0.5, 0.4]
    """
    return min(1.0, SUSPECT / (1 + log(max(company, 1), _FEW)))


class Suspicion(NamedTuple):
    """The deaths of a run's writers in a row, without anything new on record in between."""

    companies: Sequence[int | None]
    """How many runs each of those workers had, the last one at the end; None where that is not on record."""

    @classmethod
    def of(cls, deaths: int, noted: Sequence[int]) -> Suspicion:
        """So many deaths in a row, of which these companies are on record, and maybe earlier ones.

        >>> Suspicion.of(3, [50, 1]), Suspicion.of(1, [50, 1])
        (Suspicion(companies=(None, 50, 1)), Suspicion(companies=(1,)))
        """
        known = tuple(noted)[-deaths:] if deaths else ()
        return cls((*[None] * (deaths - len(known)), *known))

    @property
    def weight(self) -> float:
        """Deaths of which nothing else is known count in full."""
        return sum(weigh_death(company or 1) for company in self.companies)

    @property
    def alone(self) -> int:
        """How many deaths the run had to itself."""
        return sum(company == 1 for company in self.companies)

    def is_suspect(self, takeovers: int) -> bool:
        """Whether the run is to be driven alone; after its first death where it may be taken over not even once."""
        return bool(self.companies) and (takeovers == 0 or self.weight >= SUSPECT)

    def is_proven(self, takeovers: int) -> bool:
        """Whether the run is at fault: more deaths than it may be taken over, all but two of which were its own.

        >>> Suspicion((9, 9, 1, 1, 1, 1)).is_proven(5), Suspicion((9, 9, 9, 1, 1, 1)).is_proven(5)
        (True, False)
        """
        own = min(takeovers, max(1, takeovers - 1))
        return self.is_suspect(takeovers) and len(self.companies) > takeovers and self.alone >= own


def share_out(waiting: int, idle: int) -> int:
    """How many of the runs that wait for their turn in a worker are left to workers that have nothing to do.

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
"""As the library does for a new job."""


class Sharing:
    """`look` is called again and again. `stalled`: seconds after which a worker that gives no sign is gone."""

    def __init__(self, app: App, queue: str, company: Company, *, stalled: float) -> None:
        self._app, self._queue, self._company, self._stalled = app, queue, company, stalled
        self._left = False

    async def look(self, worker: int | None, has_rescued: bool) -> None:
        """Leave runs to idle workers, and tell all of those that were left the last time, or rescued now."""
        if self._left or has_rescued:
            said = json.dumps({"type": "job_inserted", "job_id": 0})
            await self._app.connector.execute_query_async(_TELL, queue=self._queue, said=said)
        self._left = False
        if worker is None or not self._company.waiting:
            return
        found = await self._app.connector.execute_query_one_async(
            _IDLE, queue=self._queue, worker=worker, stalled=self._stalled
        )
        leaving = share_out(self._company.waiting, found["idle"])
        if leaving:
            self._company.leave(leaving)
            self._left = True
