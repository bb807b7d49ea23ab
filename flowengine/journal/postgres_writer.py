"""Entries on their way to PostgreSQL: collected by the event loops, written by threads beside them.

One writer serves all runs of a process over one connection. `Commits`, one for each event loop, lets whatever
finishes at the same time share a commit. The entries are a queue of which each writing takes what is there, in
order, so that no matter which thread writes, a run's events arrive as they were appended.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import RLock
from typing import Final

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint

from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.journal.postgres_batch import WRITE, Entry, Hold, columns_of
from flowengine.journal.postgres_connection import Connection, Database, Row

__all__ = ["Commits", "Writer"]

_FULL: Final = 8_000_000
"""Characters after which a statement takes no further entry."""


class Writer:
    """Journals add to `entries`; `write` empties them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.entries: deque[Entry] = deque()
        self.failure: JournalError | None = None
        """Why this writer writes no more."""
        self._lock = RLock()
        self._beside: ThreadPoolExecutor | None = None
        self._soon: Future[None] | None = None

    def refuse(self, hold: Hold) -> None:
        """Raise where the run, or anything, is written no more."""
        failure = hold.failure or self.failure
        if failure is not None:
            again = type(failure)(str(failure))
            again.__cause__ = failure
            raise again

    def write(self) -> None:
        """Commit all that was collected; it waits for the server. A run that was taken over has its `failure`."""
        with self._lock:
            while self.entries and self.failure is None:
                batch = self._taken()
                values, runs = columns_of(batch, self.database.key, self.database.owner)
                try:
                    written = {number for (number,) in self.database.run(partial(_written, values))}
                except BaseException as error:
                    self._stop(error)
                    raise
                for hold, begins in runs:
                    if hold.number not in written:
                        hold.failure = _not_ours(hold, begins, self.database.name)

    def write_soon(self) -> None:
        """`write` beside the caller, who waits for nothing."""
        if self._soon is not None and not self._soon.done():
            return
        if self._beside is None:
            self._beside = ThreadPoolExecutor(1, "flowengine-journal")
        self._soon = self._beside.submit(self._write_quietly)

    def settle(self) -> None:
        """Wait for what `write_soon` has begun."""
        if self._soon is not None:
            self._soon.result()

    def close(self) -> None:
        """Write what is left, and let go of the connection and of the runs."""
        if self._beside is not None:
            self._beside.shutdown()
        try:
            self.write()
        finally:
            self.failure = self.failure or StoreUnavailableError(f"the store {self.database.name} is closed")
            self.database.close()

    def _write_quietly(self) -> None:
        with suppress(JournalError):  # kept in `failure`, which the next append raises
            self.write()

    def _taken(self) -> list[Entry]:
        """The entries of one statement; those of runs that are lost already are dropped."""
        taken: list[Entry] = []
        size = 0
        while self.entries and size < _FULL:
            entry = self.entries.popleft()
            if entry.hold.failure is None:
                taken.append(entry)
                size += len(entry.body or "")
        return taken

    def _stop(self, error: BaseException) -> None:
        name = self.database.name
        interrupted = StoreUnavailableError(f"writing to {name} was interrupted ({type(error).__name__})")
        self.failure = error if isinstance(error, JournalError) else interrupted
        self.entries.clear()
        self.database.close()  # Nothing is written after this: others may go on.


def _written(values: list[object], connection: Connection) -> list[Row]:
    return connection.execute(WRITE, values).fetchall()


def _not_ours(hold: Hold, begins: bool, store: str) -> JournalError:
    if begins:
        return JournalError(f"run '{hold.run_id}' exists already in {store}; open it to continue it")
    return StoreUnavailableError(f"run '{hold.run_id}' in {store} was taken over by another writer meanwhile")


class Commits:
    """The commits of one event loop."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._gathering: anyio.Event | None = None
        self._writing: anyio.Event | None = None

    async def share(self, hold: Hold) -> None:
        """Commit together with others that finish now.

        The first to come is the leader: while an earlier commit is on its way, others join it; then it writes for
        all. Also when it is cancelled meanwhile, for the others wait.
        """
        done = self._gathering
        if done is not None:
            await done.wait()
        else:
            await self._lead()
        self.writer.refuse(hold)

    async def _lead(self) -> None:
        done = self._gathering = anyio.Event()
        with anyio.CancelScope(shield=True):
            try:
                await (checkpoint() if self._writing is None else self._writing.wait())
            finally:
                self._gathering, self._writing = None, done
            try:
                limiter = anyio.CapacityLimiter(1)  # a thread, also where nodes keep all others busy
                await anyio.to_thread.run_sync(self.writer.write, limiter=limiter)
            finally:
                self._writing = None if self._writing is done else self._writing
                done.set()
