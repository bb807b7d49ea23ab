"""Runs for other processes: put into a queue on PostgreSQL, stopped there, and put back.

Which job is whose turn, who has it, whether its worker lives: all that is procrastinate's, whose tables are in
the schema `flowengine_queue` of the store's own database. A job says which run it is and nothing more. The run is
in the store, with its inputs, its flow's text and what that needs beside it, before the job is in the queue.

Needs the extra `queue`, and asyncio.
"""

from __future__ import annotations

import platform
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from time import time
from typing import Any, Final, Literal

import anyio
import anyio.to_thread

from flowengine.context import EMPTY
from flowengine.engine.events import RunFinished, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import DefinitionError, JournalError, StoreUnavailableError
from flowengine.journal.classes import only_looking
from flowengine.journal.parcel import store_run
from flowengine.journal.postgres import PostgresStore
from flowengine.nodes.plan import Plan
from flowengine.runners.local import beginning, new_run_id
from flowengine.runners.submitted import TASK

try:
    import procrastinate
    import psycopg
    from procrastinate import exceptions
    from procrastinate.jobs import Job

    from flowengine.runners.queue_tables import address_of, make_tables
except ImportError as error:
    raise StoreUnavailableError(f"a queue needs its library: pip install 'flowengine[queue]' ({error})") from error

__all__ = [
    "PYTHON",
    "TASK",
    "Cancelled",
    "cancel",
    "close_run",
    "expiry_lock",
    "opened",
    "queue_store",
    "requeue",
    "submit",
    "submit_many",
]

PYTHON: Final = ".".join(platform.python_version_tuple()[:2])
"""Functions look different to each Python."""

Cancelled = Literal["before it began", "asked to stop", "nothing to stop"]


def queue_store(store: JournalStore) -> PostgresStore:
    """The store, which has to be one that other machines reach."""
    if not isinstance(store, PostgresStore):
        raise StoreUnavailableError("a queue needs a store on PostgreSQL: --store postgresql://user@host:5432/database")
    return store


@asynccontextmanager
async def opened(
    store: PostgresStore, connections: int = 4, kind: type[procrastinate.PsycopgConnector] | None = None
) -> AsyncGenerator[procrastinate.App]:
    """The queue beside a store, whose tables are made by whoever comes first."""
    await anyio.to_thread.run_sync(make_tables, store)
    connector = (kind or procrastinate.PsycopgConnector)(
        conninfo=address_of(store), min_size=1, max_size=connections, configure=_statement_by_statement
    )
    async with procrastinate.App(connector=connector).open_async() as app:
        yield app


async def _statement_by_statement(connection: psycopg.AsyncConnection[Any]) -> None:
    """Each of the library's statements stands alone; a transaction round it takes three ways to the server."""
    await connection.set_autocommit(True)


async def submit(
    store: PostgresStore,
    plan: Plan,
    inputs: Mapping[str, Any],
    *,
    run_id: str | None = None,
    queue: str = "default",
    priority: int = 0,
    at: datetime | None = None,
    settings: Mapping[str, Any] = EMPTY,
) -> str:
    """Write a new run down and put it into a queue; its id. It begins when a worker has a slot, not before `at`.

    The greater its priority, the sooner.
    """
    run_id = run_id or new_run_id()
    await submit_many(store, plan, {run_id: inputs}, queue=queue, priority=priority, at=at, settings=settings)
    return run_id


async def submit_many(
    store: PostgresStore,
    plan: Plan,
    runs: Mapping[str, Mapping[str, Any]],
    *,
    queue: str = "default",
    priority: int = 0,
    at: datetime | None = None,
    settings: Mapping[str, Any] = EMPTY,
) -> None:
    """As `submit`, for many runs of a flow at once: id → inputs. All of them are in the queue, or none is."""
    if plan.source is None:
        raise DefinitionError(f"flow '{plan.name}' is made of Python objects, which no worker has: write it as a file")
    here = {"queue": queue, "priority": priority, "python": PYTHON, "baggage": plan.baggage}
    begun = [
        beginning(plan, inputs, store, run_id=run_id, settings={**settings, **here}) for run_id, inputs in runs.items()
    ]
    async with opened(store) as app:
        try:
            await _stored(store, begun)
            await _put(app, runs, queue, priority, at, after=1)
        except BaseException:
            for each in begun:
                with suppress(JournalError):  # It is not there yet; the first error counts.
                    store.remove(each.run_id)
            raise


async def requeue(
    store: PostgresStore,
    run_id: str,
    *,
    queue: str | None = None,
    priority: int | None = None,
    at: datetime | None = None,
    allow_changed: bool = False,
) -> None:
    """Let a worker go on with a run that has stopped or waited; `JournalError` where it is in a queue already.

    Its queue and its priority are those of its start, unless given anew. `allow_changed`: also a worker whose
    functions are not those that the run was submitted with, be the run in a queue already or not.
    """
    with only_looking():
        events: Any = store.events(run_id)
    if events[0].source is None:
        raise DefinitionError(f"run {run_id} is of a flow made of Python objects, which no worker has")
    settings: Mapping[str, Any] = events[0].settings
    place = queue or settings.get("queue", "default")
    rank = settings.get("priority", 0) if priority is None else priority
    how = {"allow_changed": True} if allow_changed else {}
    async with opened(store) as app:
        for job in await _jobs_of(app, run_id):
            if job.status == "todo" and (allow_changed or job.lock != run_id):  # What it asked is answered.
                await app.job_manager.cancel_job_by_id_async(job.id or 0, delete_job=True)
        try:
            await _put(app, [run_id], place, rank, at, after=len(events), **how)
        except exceptions.AlreadyEnqueued:
            raise JournalError(f"run {run_id} is in a queue already") from None


async def cancel(store: PostgresStore, run_id: str) -> Cancelled:
    """Stop a run wherever it is: in a queue, in a worker's hands, or waiting for somebody."""
    found: Cancelled = "nothing to stop"
    async with opened(store) as app:
        for job in await _jobs_of(app, run_id):
            if job.id is None or job.status not in ("todo", "doing"):
                continue
            if await app.job_manager.cancel_job_by_id_async(job.id, abort=True) and found != "asked to stop":
                found = "asked to stop" if job.status == "doing" else "before it began"
    if found == "asked to stop":
        return found
    if found == "nothing to stop":
        with only_looking():
            last = store.events(run_id)[-1]
        if not isinstance(last, RunFinished) or last.status != "waiting":
            return found
    await close_run(store, run_id)
    return "before it began"


def expiry_lock(run_id: str) -> str:
    """The lock of the job that looks at a run when its question has expired."""
    return f"{run_id} expires"


async def close_run(store: PostgresStore, run_id: str) -> None:
    """Write that a run was cancelled which nobody works on."""
    journal = store.open(run_id)
    try:
        journal.append(RunFinished(time(), "cancelled"))
    finally:
        await journal.close()


async def _jobs_of(app: procrastinate.App, run_id: str) -> list[Job]:
    manager = app.job_manager
    found = [await manager.list_jobs_async(lock=lock, task=TASK) for lock in (run_id, expiry_lock(run_id))]
    return [job for jobs in found for job in jobs]


async def _stored(store: PostgresStore, begun: Iterable[RunStarted]) -> None:
    """Written down, together; what goes wrong comes out alone."""
    try:
        async with anyio.create_task_group() as tasks:
            for each in begun:
                tasks.start_soon(store_run, store, [each])
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _put(
    app: procrastinate.App, run_ids: Iterable[str], queue: str, priority: int, at: datetime | None, **how: Any
) -> None:
    """One job of a run waits at a time, and one is worked on at a time."""
    jobs = [
        Job(
            queue=queue,
            priority=priority,
            scheduled_at=at,
            lock=run_id,
            queueing_lock=run_id,
            task_name=TASK,
            task_kwargs={"run_id": run_id, **how},
        )
        for run_id in run_ids
    ]
    await app.job_manager.batch_defer_jobs_async(jobs)
