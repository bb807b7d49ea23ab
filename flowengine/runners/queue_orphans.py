"""Runs that are to go on and that no job is for, put back into their queue.

A run and its job begin in one transaction, and the job outlives the run. What is found here was left by a worker that
called the job failed (an older FlowEngine does so with a store that it cannot read), by somebody who took the job out
of the queue and did not live to say so in the run, or by a process that went on with a run of the queue and died.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio.to_thread
import psycopg
from procrastinate.jobs import Job

from flowengine.journal.classes import only_looking
from flowengine.journal.postgres import PostgresStore
from flowengine.runners.queue_jobs import before_new, job_of, look_into_queue, put_jobs
from flowengine.runners.queue_view import ask_queue
from flowengine.runners.submitted import SCHEMA

__all__ = ["Orphans"]

_JOBS: Final = f"{SCHEMA}.procrastinate_jobs"
_ORPHANS: Final = f"""
    SELECT run_id FROM flowengine.run WHERE status = 'running'
    AND NOT EXISTS (SELECT FROM {_JOBS} WHERE lock = run_id AND status IN ('todo', 'doing'))
"""
_LOCK: Final = b"SELECT FROM flowengine.run WHERE run_id = %s FOR UPDATE"
"""One at a time puts a run back."""
_STILL: Final = f"{_ORPHANS} AND run_id = %s"
_ENDED: Final = f"""
    DELETE FROM {_JOBS} AS job WHERE status NOT IN ('todo', 'doing') AND NOT EXISTS (
        SELECT FROM {SCHEMA}.procrastinate_events WHERE job_id = job.id AND at > now() - interval '1 day'
    )
"""
"""Workers delete a job that has ended; older ones and the library's own tools leave it."""


class Orphans:
    """`look` is called again and again; what it finds twice is an orphan: nobody takes so long between two steps."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._seen: set[str] = set()
        self._others: set[str] = set()
        """Runs that were begun without a queue, and are for those who began them to go on with."""

    @property
    def count(self) -> int:
        """How many runs had no job when it was last looked."""
        return len(self._seen)

    async def look(self) -> Sequence[str]:
        """Put the runs back that had no job the last time either; which they were."""
        return await anyio.to_thread.run_sync(self._look)

    def find(self) -> Mapping[str, Job]:
        """The runs that have no job now → the one that each needs."""
        jobless = {run_id for (run_id,) in ask_queue(self._store, _ORPHANS)}
        jobless = jobless.intersection(self._store.abandoned()) if jobless else jobless
        self._others &= jobless
        found = {run_id: self._job_of(run_id) for run_id in sorted(jobless - self._others)}
        self._others.update(run_id for run_id, job in found.items() if job is None)
        return {run_id: job for run_id, job in found.items() if job is not None}

    def _look(self) -> Sequence[str]:
        found = self.find()
        again, self._seen = found.keys() & self._seen, set(found)
        back = [run_id for run_id in sorted(again) if self._store.transact(partial(_put, found[run_id]))]
        self._store.transact(_forget_ended)
        return back

    def _job_of(self, run_id: str) -> Job | None:
        with only_looking():
            settings = self._store.start_of(run_id).settings
        queue, priority = settings.get("queue"), settings.get("priority", 0)
        return job_of(run_id, queue, before_new(priority)) if isinstance(queue, str) else None


def _forget_ended(connection: psycopg.Connection[Any]) -> None:
    look_into_queue(connection)
    connection.execute(_ENDED.encode())


def _put(job: Job, connection: psycopg.Connection[Any]) -> bool:
    connection.execute(_LOCK, (job.lock,))
    if not connection.execute(_STILL.encode(), (job.lock,)).fetchall():
        return False
    put_jobs(connection, [job])
    return True
