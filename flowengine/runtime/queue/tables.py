"""Makes and upgrades the queue's tables, and puts jobs into them.

The tables are procrastinate's own, in the schema `flowengine_queue` of the store. The first process that comes makes
them, with the library's script; a newer library's migrations bring them up to date, in order, in one transaction. A
table of ours beside them says which was the last, and another who the workers are. While workers of the older library
are alive nothing is changed: a migration may take away what they use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, LiteralString, cast

import procrastinate
import psycopg
from procrastinate import SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from flowengine.errors import StoreUnavailableError, StoreVersionError
from flowengine.journal.postgres import PostgresStore
from flowengine.runtime.queue.run_positions import MOST_PRIORITY, SCHEMA, TASK

_LOCK: Final = 0x464C4F58
"""One process at a time makes the tables."""
_ALIVE: Final = 60
"""Seconds since the last heartbeat of a worker that may still work."""
_WORKERS: Final = """
    CREATE TABLE flowengine_worker (
        id BIGINT PRIMARY KEY, host TEXT NOT NULL, process BIGINT NOT NULL, version TEXT NOT NULL, queue TEXT NOT NULL,
        concurrency INTEGER NOT NULL, started TIMESTAMPTZ NOT NULL DEFAULT now()
    )
"""
"""Who the library's workers are, by its id; a table that a worker of an older FlowEngine does without."""

Connection = psycopg.Connection[tuple[Any, ...]]


def address_of(store: PostgresStore) -> str:
    """The store's, with the queue's schema as the one that is looked into."""
    options = str(conninfo_to_dict(store.url).get("options", ""))
    return make_conninfo(store.url, options=f"{options} -c search_path={SCHEMA}".strip())


def make_tables(store: PostgresStore) -> None:
    """Make the tables, or bring them to the installed library; nothing is done where they are.

    `StoreVersionError` where they are a newer library's, or may not be changed now.
    """
    try:
        with psycopg.connect(address_of(store)) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if not _has_table(connection, "procrastinate_jobs"):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
                connection.execute(SchemaManager.get_schema())
                _record_version(connection)
            else:
                _upgrade(connection)
            if not _has_table(connection, "flowengine_worker"):
                connection.execute(_WORKERS)
    except psycopg.Error as error:
        store.list()  # Says it better, and without a password.
        message = " ".join(str(error).split())
        raise StoreUnavailableError(f"the queue's tables cannot be made ({message})") from None


def _upgrade(connection: Connection) -> None:
    if not _has_table(connection, "flowengine_version"):
        _adopt_tables(connection)
    ((last, library),) = connection.execute("SELECT last, library FROM flowengine_version").fetchall()
    scripts = _migrations()
    newest = scripts[-1].name
    if last == newest:
        return
    installed = procrastinate.__version__
    if last > newest:
        raise StoreVersionError(
            f"the queue's tables were made by procrastinate {library}, and {installed} is installed here: "
            f"pip install --upgrade procrastinate"
        )
    alive = connection.execute(
        "SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat > now() - make_interval(secs => %s)", (_ALIVE,)
    ).fetchall()
    if alive != [(0,)]:
        raise StoreVersionError(
            f"the queue's tables are those of procrastinate {library}, {installed} is installed here, and "
            f"{alive[0][0]} worker(s) of the older one may still be at work: stop all workers first, or wait "
            f"{_ALIVE} s where they were killed"
        )
    for script in scripts:
        if script.name > last:
            connection.execute(_read_script(script))
    _record_version(connection)


def _adopt_tables(connection: Connection) -> None:
    """Tables without a version: they are those of the installed library where they have all its functions."""
    names = set(re.findall(r"CREATE FUNCTION (\w+)", SchemaManager.get_schema()))
    query = "SELECT proname FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace WHERE nspname = %s"
    lacking = names - {name for (name,) in connection.execute(query, (SCHEMA,)).fetchall()}
    if lacking:
        raise StoreVersionError(
            f"the queue's tables are those of another procrastinate than {procrastinate.__version__}, and do not say "
            f"of which: apply its migrations from {SchemaManager.get_migrations_path()} in the schema {SCHEMA}"
        )
    _record_version(connection)


def _record_version(connection: Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS flowengine_version (last TEXT NOT NULL, library TEXT NOT NULL)")
    connection.execute("DELETE FROM flowengine_version")
    values = (_migrations()[-1].name, procrastinate.__version__)
    connection.execute("INSERT INTO flowengine_version VALUES (%s, %s)", values)


def _has_table(connection: Connection, table: str) -> bool:
    query = "SELECT FROM pg_tables WHERE schemaname = %s AND tablename = %s"
    return bool(connection.execute(query, (SCHEMA, table)).fetchall())


def _migrations() -> list[Path]:
    """The library's, in their order."""
    return sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))


def _read_script(script: Path) -> LiteralString:
    return cast(
        "LiteralString", script.read_text("utf-8")
    )  # As the library's own schema: part of an installed package.


# --- Jobs, put there over the store's own connection, so that they ride in its transactions
#
# A job says which run it is and nothing more. One job of a run waits at a time, and one is worked on at a time.

_BEGUN: Final = 1_000_000

_MANAGER = JobManager(SyncPsycopgConnector())
"""It has no connection of its own."""


def job_of(run_id: str, queue: str, priority: int, at: datetime | None = None, **how: Any) -> Job:
    """The job that goes on with a run; `how` is what it says beside the run's id."""
    return Job(
        queue=queue,
        priority=priority,
        scheduled_at=at,
        lock=run_id,
        queueing_lock=run_id,
        task_name=TASK,
        task_kwargs={"run_id": run_id, **how},
    )


def put_jobs(connection: psycopg.Connection[Any], jobs: Sequence[Job]) -> None:
    """Put jobs into the queue as a part of the transaction that the connection is in."""
    if not jobs:
        return
    look_into_queue(connection)
    try:
        _MANAGER.batch_defer_jobs(list(jobs), connection)
    except ConnectorException as error:
        if isinstance(error.__cause__, psycopg.Error):
            raise error.__cause__ from error  # The store says it in its words, or tries again.
        raise


def look_into_queue(connection: psycopg.Connection[Any]) -> None:
    """Let the rest of the transaction find the queue's tables, as the library's own triggers have to."""
    connection.execute(f"SET LOCAL search_path = {SCHEMA}".encode())


def before_new(priority: int) -> int:
    """The rank of a job whose run has begun: before all that has not, and there by its priority.

    >>> before_new(-3), before_new(before_new(5))
    (999997, 1000005)
    """
    return priority + _BEGUN if is_new(priority) else priority


def is_new(priority: int) -> bool:
    """Tells whether a job of this rank is one whose run has not begun.

    >>> is_new(MOST_PRIORITY), is_new(before_new(-MOST_PRIORITY))
    (True, False)
    """
    return priority <= MOST_PRIORITY


def expiry_lock(run_id: str) -> str:
    """The lock of the job that looks at a run when its question has expired."""
    return f"{run_id} expires"
