"""Tells where runs stand in their queues: read from the tables, without the queue's library.

Whether a run is for workers at all is told here too.
Nothing is changed here, and nothing is decided: a moment later it may all be otherwise.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from time import time
from typing import Any, Final, NamedTuple, Protocol

from flowengine.core import EMPTY, is_map, thaw
from flowengine.engine import JournalStore, RunStarted
from flowengine.errors import DefinitionError, JournalError
from flowengine.journal import decode, encode, labels_of, storable

# --- Runs that are for workers: submitted to a queue, and in a store that has one
#
# A run that was carried into another kind of store goes on like any other there.

_LONGEST_NAME: Final = 40
"""Bytes that PostgreSQL has room for in the name of the channel on which the library tells of jobs of a queue."""
MOST_PRIORITY: Final = 499_999
"""The highest priority of a run; the lowest is as far below zero."""
TASK: Final = "flowengine.run"
"""The name by which the queue's library knows a job that goes on with a run."""
SCHEMA: Final = "flowengine_queue"
"""The schema of its tables."""


def check_queue_name(name: str) -> str:
    """Give the name back as it is, or raise `DefinitionError` where no queue can have it.

    >>> check_queue_name("gpu")
    'gpu'
    >>> check_queue_name("q" * 200)
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: a queue is named by text of at most 40 bytes in UTF-8, not 'qqqqqqqqqqqqqqq...
    """
    if not _is_queue_name(name):
        raise DefinitionError(f"a queue is named by text of at most {_LONGEST_NAME} bytes in UTF-8, not {name!r:.80}")
    return name


def _is_queue_name(name: object) -> bool:
    return isinstance(name, str) and storable(name) == name and len(name.encode()) <= _LONGEST_NAME


def queue_and_priority(settings: Mapping[str, Any]) -> tuple[str | None, int]:
    """What a run's start says of its place; what can be neither counts as not said: runs are imported, too.

    >>> queue_and_priority({"queue": "gpu", "priority": 5}), queue_and_priority({"queue": 7, "priority": "high"})
    (('gpu', 5), (None, 0))
    """
    queue, priority = settings.get("queue"), settings.get("priority")
    rank = priority if type(priority) is int and abs(priority) <= MOST_PRIORITY else 0
    return queue if _is_queue_name(queue) else None, rank


def queue_of(store: JournalStore, started: RunStarted) -> str | None:
    """The queue that the run goes back into; None where its caller goes on with it in its own process."""
    queue = started.settings.get("queue")
    return queue if isinstance(queue, str) and has_queue(store) else None


def has_queue(store: JournalStore) -> bool:
    """Tells whether runs of the store can be submitted to a queue."""
    try:
        from flowengine.journal.postgres import PostgresStore  # Only who uses it needs a driver.
    except ImportError:
        return False
    return isinstance(store, PostgresStore)


def refuse_another(start: RunStarted, there: RunStarted | None) -> None:
    """Raise a `JournalError` where a run is to be submitted whose id is another run's already."""
    others = [] if there is None else list(_differences(_as_recorded(start), there))
    if others:
        raise JournalError(
            f"run '{start.run_id}' is there already, with {' and '.join(others)}: submit this one under another id"
        )


def _differences(start: RunStarted, there: RunStarted) -> Iterator[str]:
    """Lists the differences between two runs, apart from where and when they are executed."""
    if (start.flow, start.source, _files(start)) != (there.flow, there.source, _files(there)):
        yield "another flow"
    if start.settings.get("model") != there.settings.get("model"):
        yield "another model"
    if labels_of(start) != labels_of(there):
        yield "other labels"
    names = [name for name in {**start.inputs, **there.inputs} if start.inputs.get(name) != there.inputs.get(name)]
    if names:
        yield f"other inputs ({', '.join(names)})"


def _files(started: RunStarted) -> Mapping[str, Any]:
    """The flows inside the flow."""
    baggage = started.settings.get("baggage")
    return baggage.get("files", EMPTY) if is_map(baggage) else EMPTY


def _as_recorded(started: RunStarted) -> RunStarted:
    """Returns the start as a journal gives it back, with frozen values."""
    event = decode(encode(started))
    assert isinstance(event, RunStarted)
    return event


# --- Runs whose answer is stored and no more
#
# A run that waits and is answered goes on by itself, be it that the process that answered has died. These do not.

HELD: Final = "queue.held"


def hold(store: JournalStore, run_id: str) -> None:
    """The run stays where it is until somebody puts it back into its queue, although it is answered."""
    store.revise(HELD, run_id, lambda known: True)


# --- What workers lack for a run

_KIND: Final = "queue.lacks"
_MOST: Final = 20
"""Workers that are remembered for a run."""
_RECENT: Final = 300.0
"""Seconds after which a worker that has not said so again may be gone."""


def note(store: JournalStore, run_id: str, lack: str) -> None:
    """This process lacks something for the run."""
    name, now = f"{socket.gethostname()}:{os.getpid()}", time()

    def change(stored: Any) -> Any:
        lacks: dict[str, Any] = {} if stored is None else thaw(stored)
        lacks.pop(name, None)
        return dict([*lacks.items(), (name, [now, lack])][-_MOST:])

    store.revise(_KIND, run_id, change)


def forget(store: JournalStore, run_id: str) -> None:
    """A worker has taken the run, or no worker is to any more."""
    store.revise(_KIND, run_id, lambda known: None)


def lacks_of(store: JournalStore, run_id: str) -> Mapping[str, str]:
    """Worker (host and process) → what it said of late that it lacks."""
    lacks: Any = store.recall(_KIND, run_id) or {}
    since = time() - _RECENT
    return {worker: lack for worker, (at, lack) in lacks.items() if at > since}


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
        AND NOT EXISTS (SELECT FROM flowengine.run WHERE run_id = %s AND status = 'succeeded')
    ORDER BY job.lock = %s DESC, job.status = 'doing' DESC LIMIT 1
"""


def standing_of(store: JournalStore, run_id: str) -> Standing | None:
    """None: it is in no queue, or has succeeded elsewhere, so that a worker only drops its job."""
    locks = [run_id, f"{run_id} expires"]
    for is_taken, queue, at, is_later, is_question, ahead, worker in ask_queue(
        store, _ONE, run_id, run_id, TASK, locks, run_id, run_id
    ):
        lacks: Mapping[str, str] = EMPTY if is_taken else lacks_of(store, run_id)
        return Standing(queue, is_taken, ahead, at if is_later else None, is_question, worker, lacks)
    return None


def queued_runs(store: JournalStore) -> Mapping[str, bool]:
    """Runs in a queue, or in a worker's hands → whether it is the latter; none that has succeeded elsewhere."""
    query = f"""
        SELECT lock, bool_or(status = 'doing') FROM {_JOBS}
        WHERE task_name = %s AND status IN ('todo', 'doing') AND args ->> 'if_waiting' IS NULL
            AND NOT EXISTS (SELECT FROM flowengine.run WHERE run_id = lock AND status = 'succeeded')
        GROUP BY lock
    """
    return dict(ask_queue(store, query, TASK))


def ask_queue(store: JournalStore | Queryable, query: str, *values: Any) -> list[Any]:
    """The rows of a question to the queue's tables; none where there is no queue."""
    ask = getattr(store, "query", None)  # Only stores on a server have one, whose driver is not needed elsewhere.
    if ask is None or ask("SELECT to_regclass(%s)", _JOBS) == [(None,)]:
        return []
    return list(ask(query, *values))
