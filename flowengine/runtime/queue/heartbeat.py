"""Publishes what a worker says of itself: lines for people, and a row beside its sign of life in the queue's tables.

The row is written once for each id that the library gives a worker, and means something only as long as the library
has that id: what a dead worker has left is deleted by the next one that begins.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Collection
from time import monotonic
from typing import TYPE_CHECKING, Final

from flowengine.runtime.queue.run_totals import RunTotals
from flowengine.version import __version__

if TYPE_CHECKING:
    from procrastinate import App

# --- Notices: lines for people, with what happened and to which run


class WorkerNotice(str):
    """A line; `event` is the word for what happened.

    >>> notice = WorkerNotice("run a1 begins: greet", "begins", "a1")
    >>> notice, notice.event, notice.run_id
    ('run a1 begins: greet', 'begins', 'a1')
    """

    event: str
    run_id: str | None
    """The run that it is of, None where it is of the worker."""

    def __new__(cls, text: str, event: str, run_id: str | None = None) -> WorkerNotice:
        notice = super().__new__(cls, text)
        notice.event, notice.run_id = event, run_id
        return notice


Tell = Callable[[WorkerNotice], None]


# --- What a worker knows of itself


class WorkerHeartbeat:
    """Kept up to date by the worker's parts.

    >>> vitals = WorkerHeartbeat("default", 4, fresh=5.0)
    >>> vitals.unreadiness
    'it has not begun'
    >>> vitals.signed = monotonic()
    >>> vitals.unreadiness is None
    True
    """

    def __init__(self, queue: str, concurrency: int, *, fresh: float) -> None:
        """`fresh`: seconds after which a sign of life to the store is too old."""
        self.queue, self.concurrency, self._fresh = queue, concurrency, fresh
        self.in_hand: Collection[int] = ()
        """Jobs that it works on."""
        self.signed: float | None = None
        """When it last gave a sign of life to the store, as `monotonic` counts."""
        self.orphans = 0
        """Runs of the store without a job, as it last saw."""
        self.is_stopping = False
        self.counts: Counter[str] = Counter()
        """The number of notices so far, by event."""
        self.totals = RunTotals()
        """Runs that stopped in it, and what they spent."""

    @property
    def unreadiness(self) -> str | None:
        """The reason why it takes no runs; None if it does."""
        if self.is_stopping:
            return "it was told to stop"
        if self.signed is None:
            return "it has not begun"
        silent = monotonic() - self.signed
        return f"it could give the store no sign for {silent:.0f} s" if silent > self._fresh else None

    def counting(self, tell: Tell) -> Tell:
        """Wraps `tell` so that notices are counted."""

        def count(notice: WorkerNotice) -> None:
            self.counts[notice.event] += 1
            tell(notice)

        return count


_ANNOUNCE: Final = """
    WITH gone AS (DELETE FROM flowengine_worker WHERE id NOT IN (SELECT id FROM procrastinate_workers))
    INSERT INTO flowengine_worker (id, host, process, version, queue, concurrency)
    VALUES (%(worker)s, %(host)s, %(process)s, %(version)s, %(queue)s, %(concurrency)s) ON CONFLICT (id) DO NOTHING
"""


class Presence:
    """`announce` writes down who a worker is."""

    def __init__(self, app: App, queue: str, concurrency: int) -> None:
        self._app, self._queue, self._concurrency = app, queue, concurrency
        self._announced: int | None = None

    async def announce(self, worker: int | None) -> None:
        """Write the row of a worker, unless that was done; None is a worker that has no id yet."""
        if worker is None or worker == self._announced:
            return
        await self._app.connector.execute_query_async(
            _ANNOUNCE,
            worker=worker,
            host=socket.gethostname(),
            process=os.getpid(),
            version=__version__,
            queue=self._queue,
            concurrency=self._concurrency,
        )
        self._announced = worker
