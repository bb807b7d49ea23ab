"""Tells what all queues of a store hold and which workers take from them, for people and monitors.

Read from the tables, without the queue's library. Nothing is changed here; what of it is a problem is decided by
`problems_of`, which asks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from flowengine.engine import JournalStore
from flowengine.runtime.queue.run_positions import SCHEMA, TASK, Queryable, ask_queue

LIVE: Final = 30.0
"""Seconds since its last sign for which a worker counts as alive; one on a machine that is far too busy is late."""
_LACKING: Final = 300.0
"""Seconds for which it counts that a worker lacked something for a run."""


class WorkerStatus(NamedTuple):
    """A worker as the store knows it."""

    id: int
    host: str | None
    """None, as all that it says of itself: it is of a FlowEngine that did not say so yet."""
    process: int | None
    version: str | None
    queue: str | None
    concurrency: int | None
    started: float | None
    """Unix seconds."""
    silent: float
    """Seconds since its last sign."""
    runs: Sequence[str]
    """Ids of those that it holds."""

    @property
    def is_live(self) -> bool:
        return self.silent < LIVE


class QueueStatus(NamedTuple):
    """The number of runs in a queue, by state."""

    queue: str
    due: int = 0
    """A worker could begin them now."""
    oldest: float | None = None
    """Seconds for which the first of them has waited."""
    later: int = 0
    """They are not to begin before some time."""
    asking: int = 0
    """They wait for a person, and their question expires at some time."""
    lacking: int = 0
    """Workers that saw them lack something for them."""
    taken: int = 0
    """Workers have them."""
    lost: int = 0
    """The taken runs whose worker gives no sign."""
    workers: int = 0
    """The workers that are alive."""


class QueueProblem(NamedTuple):
    """Something that does not mend itself, or waits for too long."""

    kind: Literal["unserved", "lacking", "orphan", "late"]
    queue: str
    text: str


_JOBS: Final = f"{SCHEMA}.procrastinate_jobs"
_WORKERS: Final = f"{SCHEMA}.procrastinate_workers"
_TOLD: Final = f"{SCHEMA}.flowengine_worker"
_QUEUES: Final = f"""
    WITH job AS (
        SELECT job.*, status = 'doing' AS is_taken,
            status = 'todo' AND coalesce(scheduled_at > now(), false) AS is_later,
            args ->> 'if_waiting' IS NOT NULL AS is_question,
            status = 'doing' AND NOT EXISTS (
                SELECT FROM {_WORKERS} AS worker WHERE worker.id = job.worker_id
                AND last_heartbeat >= now() - make_interval(secs => %s)
            ) AS is_lost,
            status = 'todo' AND attempts > 0 AND EXISTS (
                SELECT FROM flowengine.beside WHERE kind = 'queue.lacks' AND key = job.lock
                AND at > now() - make_interval(secs => %s)
            ) AS is_lacking,
            greatest(scheduled_at, (
                SELECT min(at) FROM {SCHEMA}.procrastinate_events WHERE job_id = job.id AND type = 'deferred'
            )) AS since
        FROM {_JOBS} AS job WHERE task_name = %s AND status IN ('todo', 'doing')
            AND NOT EXISTS (
                SELECT FROM flowengine.run WHERE run_id = job.lock AND (
                    run.status = 'succeeded'
                    OR run.status IN ('failed', 'partial') AND length > (args ->> 'after')::int
                )
            )
    ), sorted AS (
        SELECT *, NOT (is_taken OR is_later OR is_lacking) AS is_due FROM job
    )
    SELECT queue_name, count(*) FILTER (WHERE is_due),
        extract(epoch FROM now() - min(since) FILTER (WHERE is_due))::float8,
        count(*) FILTER (WHERE is_later AND NOT is_question AND NOT is_lacking),
        count(*) FILTER (WHERE is_later AND is_question AND NOT is_lacking),
        count(*) FILTER (WHERE is_lacking), count(*) FILTER (WHERE is_taken), count(*) FILTER (WHERE is_lost)
    FROM sorted GROUP BY queue_name
"""
_EACH_WORKER: Final = f"""
    SELECT worker.id, %s, extract(epoch FROM now() - last_heartbeat)::float8,
        ARRAY(SELECT args ->> 'run_id' FROM {_JOBS} WHERE worker_id = worker.id AND status = 'doing' ORDER BY id)
    FROM {_WORKERS} AS worker %s ORDER BY worker.id
"""
_SAID: Final = "host, process, version, queue, concurrency, extract(epoch FROM started)::float8"
_UNSAID: Final = ", ".join(["NULL"] * 6)


def workers_of(store: JournalStore | Queryable) -> Sequence[WorkerStatus]:
    """The workers of all queues in the order of their beginnings, the silent ones too; none where there is no queue."""
    has_said = ask_queue(store, "SELECT to_regclass(%s) IS NOT NULL", _TOLD) == [(True,)]
    columns, join = (_SAID, f"LEFT JOIN {_TOLD} AS told USING (id)") if has_said else (_UNSAID, "")
    return [WorkerStatus(*row) for row in ask_queue(store, _EACH_WORKER % (columns, join))]


def queues_of(store: JournalStore | Queryable, workers: Iterable[WorkerStatus]) -> Sequence[QueueStatus]:
    """The queues that hold runs or have live workers, by name; `workers` are those of the store."""
    live = [worker.queue for worker in workers if worker.is_live and worker.queue is not None]
    statuses = {queue: QueueStatus(queue) for queue in live}
    statuses |= {row[0]: QueueStatus(*row) for row in ask_queue(store, _QUEUES, LIVE, _LACKING, TASK)}
    return [statuses[queue]._replace(workers=live.count(queue)) for queue in sorted(statuses)]


def problems_of(
    queues: Iterable[QueueStatus], orphans: Mapping[str, str], oldest: float | None = None
) -> Iterator[QueueProblem]:
    """Lists problems that need a person; `orphans`: run without a job → its queue, `oldest`: the maximum age in
    seconds.

    >>> [each.text for each in problems_of([QueueStatus("gpu", due=2, oldest=9.0)], {"a1": "gpu"}, 5.0)]
    ["no worker takes from queue 'gpu', which has 2 runs for one",
     "the first run of queue 'gpu' is due for longer than 5 s",
     "run a1 of queue 'gpu' has no job; a worker of the store puts it back within a minute"]
    """
    for each in queues:
        name, open_runs = f"queue '{each.queue}'", each.due + each.lacking + each.lost
        if open_runs and not each.workers:
            yield QueueProblem(
                "unserved", each.queue, f"no worker takes from {name}, which has {_format_count(open_runs)} for one"
            )
        elif each.lacking:
            count = _format_count(each.lacking)
            message = f"workers lack something for {count} of {name}; `flowengine runs show RUN` says what"
            yield QueueProblem("lacking", each.queue, message)
        if oldest is not None and each.oldest is not None and each.oldest > oldest:
            yield QueueProblem("late", each.queue, f"the first run of {name} is due for longer than {oldest:g} s")
    for run_id, queue in orphans.items():
        message = f"run {run_id} of queue '{queue}' has no job; a worker of the store puts it back within a minute"
        yield QueueProblem("orphan", queue, message)


def _format_count(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"
