"""Puts the runs of a project's schedules into the queue, from a worker."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from flowengine.core import RunScope, Schedule
from flowengine.errors import JournalError
from flowengine.flowfile.compile import load_plan
from flowengine.journal.postgres import PostgresStore
from flowengine.runtime.queue import Tell, WorkerNotice, cancel, submit
from flowengine.runtime.schedules.schedule_ticker import LABEL, ScheduleTicker


class WorkerSchedules(NamedTuple):
    """The schedules whose runs a worker submits."""

    schedules: Sequence[Schedule]
    root: Path
    """The project's folder, below which their flows are."""


class QueueHost:
    """Begins runs by submitting them; a tick that another worker has submitted is there already."""

    def __init__(self, store: PostgresStore, root: Path, environ: Mapping[str, str]) -> None:
        self._store, self._root, self._environ = store, root, environ

    async def begin(self, schedule: Schedule, run_id: str, /) -> None:
        if await self._status_of(run_id) is not None:
            return
        load = partial(load_plan, self._root / schedule.flow, environ=self._environ)
        plan = await anyio.to_thread.run_sync(load)
        settings, labels = {"folder": str(self._root)}, {LABEL: schedule.name}
        try:
            await submit(
                self._store,
                plan,
                schedule.inputs,
                run_id=run_id,
                queue=schedule.queue,
                settings=settings,
                labels=labels,
            )
        except JournalError:  # Another worker's project may have other inputs for it; the first one counts.
            if await self._status_of(run_id) is None:
                raise

    async def cancel(self, run_id: str, /) -> None:
        await cancel(self._store, run_id)

    async def goes_on(self, run_id: str, /) -> bool:
        return await self._status_of(run_id) in ("queued", "running", "waiting")

    async def _status_of(self, run_id: str) -> str | None:
        return await anyio.to_thread.run_sync(self._store.status_of, run_id)


@asynccontextmanager
async def serving_schedules(
    store: PostgresStore, scheduled: WorkerSchedules, environ: Mapping[str, str], tell: Tell
) -> AsyncGenerator[None]:
    """Submit what is due for as long as the block lasts; what it raises comes out as it is."""
    host = QueueHost(store, scheduled.root, environ)
    ticker = ScheduleTicker(
        store, scheduled.schedules, host, lambda text, run_id: tell(WorkerNotice(text, "schedule", run_id or None))
    )
    async with RunScope() as scope:
        scope.start_soon(ticker.run)
        yield
