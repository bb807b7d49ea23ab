"""Runs for other processes: put into a queue on PostgreSQL, stopped there, and put back.

Which job is whose turn, who has it, whether its worker lives: all that is procrastinate's, whose tables are in
the schema `flowengine_queue` of the store's own database. A job says which run it is and nothing more. The run is
in the store, with its inputs and its flow's text, before the job is in the queue.

Needs the extra `queue`, and asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from time import time
from typing import Any, Final, Literal

from flowengine.context import EMPTY
from flowengine.engine.events import RunFinished
from flowengine.engine.ports import JournalStore
from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.journal.classes import only_looking
from flowengine.journal.parcel import store_run
from flowengine.journal.postgres import PostgresStore
from flowengine.nodes.plan import Plan
from flowengine.runners.local import beginning, new_run_id

try:
    import procrastinate
    import psycopg
    from procrastinate import exceptions
    from procrastinate.schema import SchemaManager
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:
    raise StoreUnavailableError(f"a queue needs its library: pip install 'flowengine[queue]' ({error})") from error

__all__ = [
    "TASK",
    "Cancelled",
    "cancel",
    "close_run",
    "make_tables",
    "opened",
    "queue_store",
    "requeue",
    "submit",
]

TASK: Final = "flowengine.run"
_SCHEMA: Final = "flowengine_queue"
_LOCK: Final = 0x464C4F58
"""One process at a time makes the tables."""

Cancelled = Literal["before it began", "asked to stop", "nothing to stop"]


def queue_store(store: JournalStore) -> PostgresStore:
    """The store, which has to be one that other machines reach."""
    if not isinstance(store, PostgresStore):
        raise StoreUnavailableError("a queue needs a store on PostgreSQL: --store postgresql://user@host:5432/database")
    return store


@asynccontextmanager
async def opened(store: PostgresStore) -> AsyncGenerator[procrastinate.App]:
    """The queue beside a store, whose tables are made by whoever comes first."""
    make_tables(store)
    connector = procrastinate.PsycopgConnector(conninfo=_address(store), min_size=1)
    async with procrastinate.App(connector=connector).open_async() as app:
        yield app


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
    first = beginning(plan, inputs, store, run_id=run_id, settings={**settings, "queue": queue})
    async with opened(store) as app:
        await store_run(store, [first])
        try:
            await _put(app, run_id, queue, priority, at)
        except BaseException:
            store.remove(run_id)
            raise
    return run_id


async def requeue(
    store: PostgresStore, run_id: str, *, queue: str | None = None, priority: int = 0, at: datetime | None = None
) -> None:
    """Let a worker go on with a run that has stopped or waited; `JournalError` where it is in a queue already."""
    with only_looking():
        first: Any = store.events(run_id)[0]
    async with opened(store) as app:
        try:
            await _put(app, run_id, queue or first.settings.get("queue", "default"), priority, at)
        except exceptions.AlreadyEnqueued:
            raise JournalError(f"run {run_id} is in a queue already") from None


async def cancel(store: PostgresStore, run_id: str) -> Cancelled:
    """Stop a run wherever it is: in a queue, in a worker's hands, or waiting for somebody."""
    found: Cancelled = "nothing to stop"
    async with opened(store) as app:
        for job in await app.job_manager.list_jobs_async(lock=run_id, task=TASK):
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


async def close_run(store: PostgresStore, run_id: str) -> None:
    """Write that a run was cancelled which nobody works on."""
    journal = store.open(run_id)
    try:
        journal.append(RunFinished(time(), "cancelled"))
    finally:
        await journal.close()


async def _put(app: procrastinate.App, run_id: str, queue: str, priority: int, at: datetime | None) -> None:
    """One job of a run waits at a time, and one is worked on at a time."""
    task = app.configure_task(
        TASK, queue=queue, priority=priority, schedule_at=at, lock=run_id, queueing_lock=run_id, allow_unknown=True
    )
    await task.defer_async(run_id=run_id)


def make_tables(store: PostgresStore) -> None:
    """Procrastinate's own tables, in one transaction."""
    try:
        with psycopg.connect(_address(store)) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            query = "SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'procrastinate_jobs'"
            if not connection.execute(query, (_SCHEMA,)).fetchall():
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}".encode())
                connection.execute(SchemaManager.get_schema())
    except psycopg.Error as error:
        store.list()  # Says it better, and without a password.
        raise StoreUnavailableError(f"the queue's tables cannot be made ({error})") from error


def _address(store: PostgresStore) -> str:
    """The store's, with the queue's schema as the one that is looked into."""
    given = str(conninfo_to_dict(store.url).get("options", ""))
    return make_conninfo(store.url, options=f"{given} -c search_path={_SCHEMA}".strip())
