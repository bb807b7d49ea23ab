"""Finds runs whose worker died or hangs, by the queue's heartbeats, and gives them to another.

A worker that hangs may wake up. So its run is taken from it in the store first (it writes and begins nothing
more), and its job is replaced, not handed on: whatever it says of that job then is of no account.

All workers look, and several may find the same: nothing here is done twice, and none waits for another, which may
hang itself. No process looks for a while after the server, or the own connection to it, was away: then everybody's
heartbeats are old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final

import anyio
import anyio.to_thread
import psycopg
from procrastinate import App
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job, JobDeferrer, Status

from flowengine.engine import RunFinished
from flowengine.errors import RunBusyError, RunNotFoundError, StoreCorruptError, StoreVersionError
from flowengine.journal import ANSWER, answers_left, only_looking
from flowengine.journal.postgres import VERSION, PostgresStore
from flowengine.runtime.queue.run_positions import HELD, SCHEMA, ask_queue, queue_and_priority
from flowengine.runtime.queue.run_queue import close_run
from flowengine.runtime.queue.suspicion import note_companies
from flowengine.runtime.queue.tables import before_new, job_of, look_into_queue, put_jobs

# --- Runs without a job

_JOBS: Final = f"{SCHEMA}.procrastinate_jobs"
_ORPHANS: Final = f"""
    SELECT run_id, status = 'waiting' FROM flowengine.run AS run WHERE (
        status = 'running' OR status = 'waiting'
        AND NOT EXISTS (SELECT FROM flowengine.beside WHERE kind = '{HELD}' AND key = run_id)
        AND (
            EXISTS (SELECT FROM flowengine.beside WHERE kind = '{ANSWER}' AND key = run_id)
            OR EXISTS (
                SELECT FROM flowengine.event WHERE event.number = run.number AND position = run.length - 1
                AND body !~ '^.[0-9]+,"RunFinished"'
            )
        )
    ) AND NOT EXISTS (SELECT FROM {_JOBS} WHERE lock = run_id AND status IN ('todo', 'doing'))
"""
"""And whether it has waited for a person, whose answer is there since: then only its next step is missing."""
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
    """`look` is called repeatedly; what it finds twice is an orphan: no process takes so long between two steps."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._last_jobless: set[str] = set()
        self._others: set[str] = set()
        """Runs that were begun without a queue, and are for those who began them to go on with."""

    @property
    def count(self) -> int:
        """The number of runs without a job at the last look."""
        return len(self._last_jobless)

    async def look(self) -> Sequence[str]:
        """Put the runs back that had no job the last time either; which they were."""
        return await anyio.to_thread.run_sync(self._look)

    def find(self) -> Mapping[str, Job]:
        """The runs that have no job now → the one that each needs."""
        rows = ask_queue(self._store, _ORPHANS)
        abandoned = set(self._store.abandoned()) if rows else set[str]()
        jobless = {run_id for run_id, waits in rows if (self._is_answered(run_id) if waits else run_id in abandoned)}
        self._others &= jobless
        jobs = {run_id: self._job_of(run_id) for run_id in sorted(jobless - self._others)}
        self._others.update(run_id for run_id, job in jobs.items() if job is None)
        return {run_id: job for run_id, job in jobs.items() if job is not None}

    def _look(self) -> Sequence[str]:
        jobs = self.find()
        again, self._last_jobless = jobs.keys() & self._last_jobless, set(jobs)
        back = [run_id for run_id in sorted(again) if self._store.transact(partial(_put, jobs[run_id]))]
        self._store.transact(_forget_ended)
        return back

    def _is_answered(self, run_id: str) -> bool:
        """Tells whether a run that waits has an answer; one that is kept for a question of long ago is none."""
        try:
            with only_looking():
                events = self._store.events(run_id)
        except (RunNotFoundError, StoreCorruptError, StoreVersionError):
            return False
        is_parked = isinstance(events[-1], RunFinished)
        return not is_parked or bool(answers_left(self._store, run_id, events))

    def _job_of(self, run_id: str) -> Job | None:
        try:
            with only_looking():
                settings = self._store.start_of(run_id).settings
        except (RunNotFoundError, StoreCorruptError, StoreVersionError):  # It is told of where somebody looks at it.
            return None
        queue, priority = queue_and_priority(settings)
        return None if queue is None else job_of(run_id, queue, before_new(priority))


def _forget_ended(connection: psycopg.Connection[Any]) -> None:
    look_into_queue(connection)
    connection.execute(_ENDED.encode())


def _put(job: Job, connection: psycopg.Connection[Any]) -> bool:
    connection.execute(_LOCK, (job.lock,))
    if not connection.execute(_STILL.encode(), (job.lock,)).fetchall():
        return False
    put_jobs(connection, [job])
    return True


WORKER: Final = "worker"
"""The role in which workers write runs: no other writer's run is taken away."""
_MISSED: Final = 3
"""Looks that were left out mean that we were away ourselves."""


_SIGN: Final = """
    WITH sign AS (UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = %(worker)s)
    SELECT version.number AS version, job.id, coalesce(job.worker_id = %(worker)s, false) AS is_ours
    FROM flowengine.version AS version LEFT JOIN (
        procrastinate_jobs AS job LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
    ) ON job.status = 'doing' AND job.queue_name = %(queue)s AND (
        job.worker_id = %(worker)s OR worker.id IS NULL
        OR worker.last_heartbeat < now() - make_interval(secs => %(stalled)s)
    )
"""
"""That a worker lives; with it the store's version, the jobs that it has, and those of workers that are silent."""


class Rescue:
    """`look` is called again and again, every `pause` seconds."""

    def __init__(
        self, app: App, store: PostgresStore, queue: str, *, stalled: float, hanging: float, pause: float
    ) -> None:
        """Seconds after a worker's last heartbeat: `stalled` where its connection to the store is gone as well, and
        `hanging` where that lives. A machine that is busy is late with heartbeats, and not dead."""
        self._app, self._store, self._queue = app, store, queue
        self._stalled, self._hanging, self._pause = stalled, hanging, pause
        self._settled = 2 * stalled
        """After the server was away: then workers are late, and come back one by one."""
        self._looked = monotonic()
        self._not_before = 0.0
        self._unaccounted: dict[int, float] = {}
        """Jobs that are said to be ours and are not, and since when."""

    async def look(self, worker: int | None = None, in_hand: Collection[int] = ()) -> list[str]:
        """Show that the worker lives, and give the runs of dead workers to others, but for those that somebody wants to
        stop; which they were.

        `worker`: the one that looks, and the jobs that it has: what it was given and does not know of is lost.
        `StoreVersionError` where a newer FlowEngine has the store by now.
        """
        is_due = await self._ask(worker, in_hand)
        now = monotonic()
        if now - self._looked > _MISSED * self._pause + self._stalled / 2:
            self._not_before = now + self._settled
        if now < self._not_before:
            self._looked = now
            return []
        rescued: list[str] = []
        orphans: Sequence[Job] = await self._find_lost(worker, in_hand) if is_due else []
        if orphans and await anyio.to_thread.run_sync(self._store.is_settled, self._settled):
            runs = [_run_of(job) for job in orphans]
            writers = await anyio.to_thread.run_sync(self._store.find_writers, WORKER, runs)
            still = {job.id for job in await self._find_lost(worker, in_hand)}
            hanging = {job.id for job in await self._find_lost(worker, in_hand, self._hanging)}
            free_jobs: list[tuple[Job, int | None]] = []
            for job in orphans:
                epoch, is_alive = writers.get(_run_of(job), (None, False))
                if job.id in (hanging if is_alive else still):  # So whose epoch that is was lost when it was looked up.
                    free_jobs.append((job, epoch))
            await anyio.to_thread.run_sync(note_companies, self._store, _count_companies(free_jobs))
            for job, epoch in free_jobs:
                await self._replace(job, epoch)
                rescued.append(_run_of(job))
        self._looked = monotonic()
        return rescued

    async def _ask(self, worker: int | None, in_hand: Collection[int]) -> bool:
        """One statement says that the worker lives, and whether there may be jobs that are lost."""
        rows = await self._app.connector.execute_query_all_async(
            _SIGN, worker=worker, queue=self._queue, stalled=self._stalled
        )
        if rows[0]["version"] != VERSION:
            await anyio.to_thread.run_sync(self._store.check_version)
        ours = {row["id"] for row in rows if row["is_ours"]}
        if ours <= set(in_hand):
            self._unaccounted = {}
            return any(row["id"] is not None and not row["is_ours"] for row in rows)
        return True

    async def _find_lost(
        self, worker: int | None, in_hand: Collection[int], silent: float | None = None
    ) -> Sequence[Job]:
        """Jobs of workers that are silent for so long; and those that are said to be ours and are not."""
        manager = self._app.job_manager
        stalled = await manager.get_stalled_jobs(queue=self._queue, seconds_since_heartbeat=silent or self._stalled)
        if worker is None:
            return list(stalled)
        ours = await manager.list_jobs_async(queue=self._queue, status="doing", worker_id=worker)
        unknown = {job.id: job for job in ours if job.id is not None and job.id not in in_hand}
        self._unaccounted = {each: self._unaccounted.get(each, monotonic()) for each in unknown}
        since = monotonic() - self._stalled
        return [*stalled, *(unknown[each] for each, moment in self._unaccounted.items() if moment < since)]

    async def _replace(self, job: Job, epoch: int | None) -> None:
        """Each step may be the last that we live to see, and others may take the same ones: the new job comes first,
        and does not begin before the old one is gone. One that is left over finds nothing to do."""
        manager, run_id = self._app.job_manager, _run_of(job)
        stopped: set[int | None] = set(await manager.list_jobs_to_abort_async(queue=self._queue))
        if job.id not in stopped:
            with suppress(AlreadyEnqueued):
                await self._renew_job(job).defer_async()
        if epoch is not None:
            await anyio.to_thread.run_sync(self._store.take_from, run_id, epoch)
        if job.id in stopped:
            with suppress(RunNotFoundError, RunBusyError):  # There is nothing to stop, or not by the queue.
                await close_run(self._store, run_id)
            await manager.finish_job(job, Status.ABORTED, delete_job=True)
        else:
            await manager.finish_job(job, Status.FAILED, delete_job=True)

    def _renew_job(self, job: Job) -> JobDeferrer:
        return self._app.configure_task(
            job.task_name,
            queue=job.queue,
            priority=before_new(job.priority),
            lock=job.lock,
            queueing_lock=job.queueing_lock,
            task_kwargs=job.task_kwargs,
            allow_unknown=True,
        )


def _count_companies(jobs: Sequence[tuple[Job, int | None]]) -> Mapping[str, tuple[int, int]]:
    """Of each run that somebody wrote, the epoch and how many runs its worker had."""
    sizes = Counter(job.worker_id for job, _ in jobs)
    return {_run_of(job): (epoch, sizes[job.worker_id]) for job, epoch in jobs if epoch is not None}


def _run_of(job: Job) -> str:
    return str(job.task_kwargs.get("run_id"))
