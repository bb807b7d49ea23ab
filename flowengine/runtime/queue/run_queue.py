"""Queues runs for other processes on PostgreSQL, stops them there, and puts them back.

Which job is whose turn, who has it, whether its worker lives: all that is procrastinate's, whose tables are in
the schema `flowengine_queue` of the store's own database. A job says which run it is and nothing more. The run is
in the store, with its inputs, its flow's text and what that needs beside it, before the job is in the queue.

Needs the extra `queue`, and asyncio.
"""

from __future__ import annotations

import platform
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from time import time
from typing import Any, Final, Literal

import anyio
import anyio.to_thread

from flowengine.core import EMPTY, freeze
from flowengine.engine import Event, JournalStore, RunFinished, RunResumed
from flowengine.errors import DefinitionError, JournalError, StoreUnavailableError
from flowengine.journal import check_run_id, forget_beside, only_looking
from flowengine.nodes import CompiledFlow
from flowengine.runtime.local import beginning, inputs_with_files, new_run_id
from flowengine.runtime.queue.run_positions import (
    HELD,
    MOST_PRIORITY,
    TASK,
    check_queue_name,
    queue_and_priority,
    refuse_another,
)
from flowengine.runtime.run import RunOptions
from flowengine.version import install_hint

try:
    import procrastinate
    import psycopg
    from procrastinate import exceptions
    from procrastinate.jobs import Job

    from flowengine.journal.postgres import Beginnings, PostgresStore
    from flowengine.runtime.queue.tables import (
        address_of,
        before_new,
        expiry_lock,
        job_of,
        make_tables,
        put_jobs,
    )
except ImportError as error:
    raise StoreUnavailableError(f"a queue needs its library: {install_hint('queue')} ({error})") from error

PYTHON: Final = ".".join(platform.python_version_tuple()[:2])
"""Functions look different to each Python."""

Cancelled = Literal["before it began", "asked to stop", "nothing to stop"]


def queue_store(store: JournalStore) -> PostgresStore:
    """The store, which has to be one that other machines reach."""
    if not isinstance(store, PostgresStore):
        raise StoreUnavailableError("a queue needs a store on PostgreSQL: --store postgresql://user@host:5432/database")
    return store


@asynccontextmanager
async def open_queue(
    store: PostgresStore, connections: int = 2, kind: type[procrastinate.PsycopgConnector] | None = None
) -> AsyncGenerator[procrastinate.App]:
    """The queue beside a store, whose tables the first to come makes."""
    await anyio.to_thread.run_sync(make_tables, store)
    connector = (kind or procrastinate.PsycopgConnector)(
        conninfo=address_of(store), min_size=1, max_size=connections, configure=_set_autocommit
    )
    async with procrastinate.App(connector=connector).open_async() as app:
        yield app


def _reach(store: PostgresStore, app: procrastinate.App | None) -> AbstractAsyncContextManager[procrastinate.App]:
    """The queue as it is, or opened for as long as the block lasts."""
    return open_queue(store) if app is None else nullcontext(app)


async def _set_autocommit(connection: psycopg.AsyncConnection[Any]) -> None:
    """Each of the library's statements stands alone; a transaction round it takes three ways to the server."""
    await connection.set_autocommit(True)


async def submit(
    store: PostgresStore,
    plan: CompiledFlow,
    inputs: Mapping[str, Any],
    *,
    run_id: str | None = None,
    queue: str = "default",
    priority: int = 0,
    at: datetime | None = None,
    settings: Mapping[str, Any] = EMPTY,
    labels: Mapping[str, str] = EMPTY,
) -> str:
    """Write a new run down and put it into a queue; its id. It begins when a worker has a slot, not before `at`.

    The greater its priority, the sooner. With a `run_id` of one's own it may be repeated (see `submit_many`).
    """
    run_id = new_run_id() if run_id is None else run_id
    options = RunOptions(settings=settings, labels=labels)
    await submit_runs(store, plan, {run_id: inputs}, options, queue=queue, priority=priority, at=at)
    return run_id


async def submit_many(
    store: PostgresStore,
    plan: CompiledFlow,
    runs: Mapping[str, Mapping[str, Any]],
    *,
    queue: str = "default",
    priority: int = 0,
    at: datetime | None = None,
    session: str | None = None,
    reuse: str | None = None,
    settings: Mapping[str, Any] = EMPTY,
    labels: Mapping[str, str] = EMPTY,
) -> Collection[str]:
    """As `submit`, for many runs of a flow at once: id → inputs; the ids that are new. All are in the queue, or none.

    An id that is there with the same flow and inputs is the run that was submitted before, which goes on as it does;
    with others it is refused with a `JournalError`, and nothing is written.
    """
    options = RunOptions(session=session, reuse=reuse, settings=settings, labels=labels)
    return await submit_runs(store, plan, runs, options, queue=queue, priority=priority, at=at)


async def submit_runs(
    store: PostgresStore,
    plan: CompiledFlow,
    runs: Mapping[str, Mapping[str, Any]],
    options: RunOptions,
    *,
    queue: str = "default",
    priority: int = 0,
    at: datetime | None = None,
) -> Collection[str]:
    """`submit_many`, whose options are those of each run."""
    store = queue_store(store)
    if plan.source is None:
        raise DefinitionError(f"flow '{plan.name}' is made of Python objects, which no worker has: write it as a file")
    here = {
        "queue": check_queue_name(queue),
        "priority": _check_priority(priority),
        "python": PYTHON,
        "baggage": plan.baggage,
    }
    inputs_of_runs = {
        run_id: await inputs_with_files(plan, runs[run_id], store, check_run_id(run_id)) for run_id in runs
    }
    options = replace(options, settings={**options.settings, **here})
    starts = [
        beginning(plan, inputs_of_runs[run_id], store, run_id, options, begins_later=True) for run_id in sorted(runs)
    ]  # In order, so that no two wait for each other.
    new: Collection[str] = ()

    def put(connection: psycopg.Connection[Any], beginnings: Beginnings) -> None:
        nonlocal new
        for start in starts:
            refuse_another(start, beginnings.earlier.get(start.run_id))
        new = frozenset(beginnings.new)
        put_jobs(connection, [job_of(run_id, queue, priority, at, after=1) for run_id in runs if run_id in new])

    await anyio.to_thread.run_sync(make_tables, store)
    with only_looking():
        await anyio.to_thread.run_sync(store.begin, starts, put)
    return new


async def requeue(
    store: PostgresStore,
    run_id: str,
    *,
    queue: str | None = None,
    priority: int | None = None,
    at: datetime | None = None,
    allow_changed: bool = False,
    settings: Mapping[str, Any] = EMPTY,
    app: procrastinate.App | None = None,
) -> None:
    """Let a worker go on with a run that has stopped or waited; `JournalError` where it is in a queue already.

    A run that has begun goes before those that have not.

    Its queue and its priority are those of its start, unless given anew. `allow_changed`: also a worker whose
    functions are not those that the run was submitted with, be the run in a queue already or not. `settings`: what is
    chosen anew for the run (limits, by the names that a flow file gives them); it is written into its journal. `app`:
    the queue, where it is open.
    """
    with only_looking():
        events: Any = store.events(run_id)
    if events[0].source is None:
        raise DefinitionError(f"run {run_id} is of a flow made of Python objects, which no worker has")
    place, rank = queue_and_priority(events[0].settings)
    place, rank = check_queue_name(queue or place or "default"), rank if priority is None else _check_priority(priority)
    rank = rank if len(events) == 1 else before_new(rank)
    how = {"allow_changed": True} if allow_changed else {}
    async with _reach(store, app) as app:
        jobs = await _jobs_of(app, run_id)
        if settings and any(job.lock == run_id and job.status in ("todo", "doing") for job in jobs):
            raise JournalError(f"run {run_id} is in a queue already")
        for job in jobs:
            if job.status == "todo" and (allow_changed or job.lock != run_id):  # What it asked is answered.
                await app.job_manager.cancel_job_by_id_async(job.id or 0, delete_job=True)
        after = len(events) + (await _choose(store, run_id, settings) if settings else 0)
        try:
            await app.job_manager.batch_defer_jobs_async([job_of(run_id, place, rank, at, after=after, **how)])
        except exceptions.AlreadyEnqueued:
            raise JournalError(f"run {run_id} is in a queue already") from None
    await anyio.to_thread.run_sync(forget_beside, store, HELD, run_id)


async def _choose(store: PostgresStore, run_id: str, settings: Mapping[str, Any]) -> int:
    """Write what is chosen anew for a run that no process works on; how many events that took."""
    events = RunResumed(time(), settings=freeze(dict(settings))), RunFinished(time(), "running")
    await append_events(store, run_id, *events)
    return len(events)


async def cancel(store: PostgresStore, run_id: str, app: procrastinate.App | None = None) -> Cancelled:
    """Stop a run wherever it is: in a queue, in a worker's hands, or waiting for somebody (`app` as for `requeue`)."""
    async with _reach(store, app) as app:
        outcome: Cancelled = "nothing to stop"
        manager = app.job_manager
        for job in await _jobs_of(app, run_id):
            if job.id is None or job.status not in ("todo", "doing"):
                continue
            # A job that waits is deleted; one that a worker has is left to it, which stops the run first.
            if await manager.cancel_job_by_id_async(job.id, abort=True, delete_job=True) and outcome != "asked to stop":
                outcome = "asked to stop" if job.status == "doing" else "before it began"
        if outcome == "asked to stop":
            return outcome
        if outcome == "nothing to stop":
            with only_looking():
                last = store.events(run_id)[-1]
            if not isinstance(last, RunFinished) or last.status != "waiting":
                return outcome
        await close_run(store, run_id)
        return "before it began"


async def close_run(store: PostgresStore, run_id: str, status: Literal["cancelled", "running"] = "cancelled") -> None:
    """Write that a run which no process works on was cancelled; `running`: that another process is to go on with it."""
    await append_events(store, run_id, RunFinished(time(), status))


async def append_events(store: PostgresStore, run_id: str, *events: Event) -> None:
    """Write events of a run that no process works on; `RunBusyError` where one does."""
    journal = await store.take(run_id)
    try:
        for event in events:
            journal.append(event)
    finally:
        await journal.close()


def _check_priority(priority: int) -> int:
    if abs(priority) > MOST_PRIORITY:
        raise DefinitionError(f"the priority {priority} is not between {-MOST_PRIORITY} and {MOST_PRIORITY}")
    return priority


async def _jobs_of(app: procrastinate.App, run_id: str) -> list[Job]:
    manager = app.job_manager
    groups = [await manager.list_jobs_async(lock=lock, task=TASK) for lock in (run_id, expiry_lock(run_id))]
    return [job for jobs in groups for job in jobs]
