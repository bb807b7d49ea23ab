"""Puts jobs into the queue's tables over the store's own connection, so that they ride in its transactions.

A job says which run it is and nothing more. One job of a run waits at a time, and one is worked on at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import psycopg
from procrastinate import SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

from flowengine.runners.queue.run_positions import SCHEMA, TASK

__all__ = ["MOST_PRIORITY", "before_new", "expiry_lock", "job_of", "look_into_queue", "put_jobs"]

MOST_PRIORITY: Final = 499_999
"""That a run may have; the least one is as far below zero."""
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
    return priority if priority > MOST_PRIORITY else priority + _BEGUN


def expiry_lock(run_id: str) -> str:
    """The lock of the job that looks at a run when its question has expired."""
    return f"{run_id} expires"
