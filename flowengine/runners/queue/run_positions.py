"""Tells where runs stand in their queues: read from the tables, without the queue's library.

Nothing is changed here, and nothing is decided: a moment later it may all be otherwise.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Final, NamedTuple, Protocol

from flowengine.core.context import EMPTY
from flowengine.core.values import thaw
from flowengine.engine.ports import JournalStore, RunInfo
from flowengine.runners.queue.submitted import SCHEMA, TASK

__all__ = ["ENDED", "Queryable", "Standing", "ask_queue", "forget", "lacks_of", "note", "standing_of", "words_of"]

# --- What workers lack for a run

_KIND: Final = "queue.lacks"
_MOST: Final = 20
"""Workers that are remembered for a run."""
_RECENT: Final = 300.0
"""Seconds after which a worker that has not said so again may be gone."""


def note(store: JournalStore, run_id: str, lack: str) -> None:
    """This process lacks something for the run."""
    name, now = f"{socket.gethostname()}:{os.getpid()}", time()

    def change(known: Any) -> Any:
        found: dict[str, Any] = {} if known is None else thaw(known)
        found.pop(name, None)
        return dict([*found.items(), (name, [now, lack])][-_MOST:])

    store.revise(_KIND, run_id, change)


def forget(store: JournalStore, run_id: str) -> None:
    """A worker has taken the run, or nobody is to any more."""
    store.revise(_KIND, run_id, lambda known: None)


def lacks_of(store: JournalStore, run_id: str) -> Mapping[str, str]:
    """Worker (host and process) → what it said of late that it lacks."""
    known: Any = store.recall(_KIND, run_id) or {}
    since = time() - _RECENT
    return {worker: lack for worker, (at, lack) in known.items() if at > since}


ENDED: Final = frozenset({"succeeded", "failed", "partial", "cancelled"})
"""Words of runs that nothing is to be done about. One that failed may be in a queue again, and is `queued` then."""


class Queryable(Protocol):
    """A connection to the database of a store, for those who have no store there."""

    def query(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]: ...


class Standing(NamedTuple):
    """A run's place."""

    queue: str
    is_taken: bool
    """A worker has it, or had it when it died."""
    ahead: int = 0
    """Runs that are taken before it."""
    at: float | None = None
    """It is not taken before that time (Unix seconds)."""
    is_question: bool = False
    """It is there only because its question expires then."""
    worker: str | None = None
    """Who writes it."""
    lacks: Mapping[str, str] = {}
    """Worker → what that lacks for it."""

    @property
    def text(self) -> str:
        """
        >>> Standing("default", False, 2).text, Standing("default", True, worker="worker 7 on db").text
        ("queued in 'default', 2 before it", 'taken by worker 7 on db')
        """
        if self.is_taken:
            return f"taken by {self.worker}" if self.worker else f"taken by a worker of '{self.queue}'"
        if self.lacks:
            return f"queued in '{self.queue}', but {len(self.lacks)} of its workers cannot run it"
        if self.at is not None:
            return f"queued in '{self.queue}' for later"
        return f"queued in '{self.queue}', {self.ahead or 'none'} before it"


_JOBS: Final = f"{SCHEMA}.procrastinate_jobs"
_ONE: Final = f"""
    SELECT job.status = 'doing', job.queue_name, extract(epoch FROM job.scheduled_at)::float8,
        job.scheduled_at > now(), job.lock <> %s,
        (SELECT count(*) FROM {_JOBS} AS other WHERE other.queue_name = job.queue_name AND other.status = 'todo'
            AND (other.scheduled_at IS NULL OR other.scheduled_at <= now())
            AND (other.priority > job.priority OR other.priority = job.priority AND other.id < job.id)),
        (SELECT owner_name FROM flowengine.run WHERE run_id = %s AND owner IS NOT NULL)
    FROM {_JOBS} AS job
    WHERE job.task_name = %s AND job.lock = ANY(%s) AND job.status IN ('todo', 'doing')
    ORDER BY job.lock = %s DESC, job.status = 'doing' DESC LIMIT 1
"""


def standing_of(store: JournalStore, run_id: str) -> Standing | None:
    """None: it is in no queue."""
    locks = [run_id, f"{run_id} expires"]
    for is_taken, queue, at, is_later, is_question, ahead, worker in ask_queue(
        store, _ONE, run_id, run_id, TASK, locks, run_id
    ):
        lacks: Mapping[str, str] = EMPTY if is_taken else lacks_of(store, run_id)
        return Standing(queue, is_taken, ahead, at if is_later else None, is_question, worker, lacks)
    return None


def queued_runs(store: JournalStore) -> Mapping[str, bool]:
    """Runs that are in a queue, or in a worker's hands → whether it is the latter."""
    query = f"""
        SELECT lock, bool_or(status = 'doing') FROM {_JOBS}
        WHERE task_name = %s AND status IN ('todo', 'doing') AND args ->> 'if_waiting' IS NULL GROUP BY lock
    """
    return dict(ask_queue(store, query, TASK))


def ask_queue(store: JournalStore | Queryable, query: str, *values: Any) -> list[Any]:
    """The rows of a question to the queue's tables; none where there is no queue."""
    ask = getattr(store, "query", None)  # Only stores on a server have one, whose driver is not needed elsewhere.
    if ask is None or ask("SELECT to_regclass(%s)", _JOBS) == [(None,)]:
        return []
    return list(ask(query, *values))


def words_of(store: JournalStore, runs: Sequence[RunInfo]) -> Mapping[str, str]:
    """Run → its status in a word; `queued` and `interrupted` are no statuses of a record."""
    queued, abandoned = queued_runs(store), set(store.abandoned())
    return {run.run_id: _word(run, queued.get(run.run_id), run.run_id in abandoned) for run in runs}


def _word(run: RunInfo, is_taken: bool | None, is_abandoned: bool) -> str:
    if is_taken is False:
        return "queued"
    return "interrupted" if is_abandoned and not is_taken else run.status
