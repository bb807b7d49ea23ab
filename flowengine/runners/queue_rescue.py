"""Runs whose worker died or hangs: found by the queue's heartbeats, taken from it, and given to another.

A worker that hangs may wake up. So its run is taken from it in the store first (it writes and begins nothing
more), and its job is replaced, not handed on: whatever it says of that job then is of no account.

One worker at a time looks. Nobody does for a while after the server, or the own connection to it, was away: then
everybody's heartbeats are old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from time import monotonic
from typing import Final

import anyio
import anyio.to_thread
from procrastinate import App
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job, Status

from flowengine.journal.postgres import PostgresStore
from flowengine.runners.queue import close_run

__all__ = ["WORKER", "Rescue"]

WORKER: Final = "worker"
"""The role in which workers write runs: no other writer's run is taken away."""
_LOCK: Final = 0x464C4F59
"""One worker at a time rescues."""
_MISSED: Final = 3
"""Looks that were left out mean that we were away ourselves."""


class Rescue:
    """`look` is called again and again, every `pause` seconds."""

    def __init__(self, app: App, store: PostgresStore, queue: str, *, stalled: float, pause: float) -> None:
        self._app, self._store, self._queue = app, store, queue
        self._stalled, self._pause = stalled, pause
        self._looked = monotonic()
        self._not_before = 0.0
        self._unaccounted: dict[int, float] = {}
        """Jobs that are said to be ours and are not, and since when."""

    async def look(self, worker: int | None = None, in_hand: Collection[int] = ()) -> list[str]:
        """Give the runs of dead workers to others, but for those that somebody wants to stop; which they were.

        `worker`: the one that looks, and the jobs that it has: what it was given and does not know of is lost.
        """
        now = monotonic()
        if now - self._looked > _MISSED * self._pause + self._stalled / 2:
            self._not_before = now + self._stalled
        if now < self._not_before:
            self._looked = now
            return []
        rescued: list[str] = []
        if await anyio.to_thread.run_sync(self._store.claim, _LOCK, self._stalled):
            try:
                rescued = [await self._rescued(job) for job in await self._lost(worker, in_hand)]
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._store.unclaim, _LOCK)
        self._looked = monotonic()
        return rescued

    async def _lost(self, worker: int | None, in_hand: Collection[int]) -> Iterable[Job]:
        manager = self._app.job_manager
        stalled = await manager.get_stalled_jobs(queue=self._queue, seconds_since_heartbeat=self._stalled)
        if worker is None:
            return stalled
        ours = await manager.list_jobs_async(queue=self._queue, status="doing", worker_id=worker)
        unknown = {job.id: job for job in ours if job.id is not None and job.id not in in_hand}
        self._unaccounted = {each: self._unaccounted.get(each, monotonic()) for each in unknown}
        since = monotonic() - self._stalled
        return [*stalled, *(unknown[each] for each, seen in self._unaccounted.items() if seen < since)]

    async def _rescued(self, job: Job) -> str:
        manager = self._app.job_manager
        run_id = str(job.task_kwargs.get("run_id"))
        await anyio.to_thread.run_sync(self._store.take_from, WORKER, run_id)
        stopped: set[int | None] = set(await manager.list_jobs_to_abort_async(queue=self._queue))
        if job.id in stopped:
            await manager.finish_job(job, Status.ABORTED, delete_job=False)
            await close_run(self._store, run_id)
            return run_id
        task = self._app.configure_task(
            job.task_name,
            queue=job.queue,
            priority=job.priority,
            lock=job.lock,
            queueing_lock=job.queueing_lock,
            task_kwargs=job.task_kwargs,
            allow_unknown=True,
        )
        with suppress(AlreadyEnqueued):  # By one that died half way.
            await task.defer_async()
        await manager.finish_job(job, Status.FAILED, delete_job=True)
        return run_id
