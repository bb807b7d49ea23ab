"""Writes entries to PostgreSQL: collected by the event loops, written by threads beside them.

One writer serves all runs of a process over one connection. `Commits`, one for each event loop, lets whatever
finishes at the same time share a commit. The entries are a queue of which each writing takes what is there, in
order, so that no matter which thread writes, a run's events arrive as they were appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock
from time import monotonic
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint

from flowengine.errors import JournalError, StoreUnavailableError, SupersededError
from flowengine.journal.postgres.batch import (
    CHECK,
    LATE,
    WRITE,
    BatchEntry,
    Hold,
    columns_of,
    late_columns_of,
    take_batch,
)
from flowengine.journal.postgres.connection import Connection, Database, Row
from flowengine.journal.postgres.tables import PostgresTables, Taken

T = TypeVar("T")

_FRESH: Final = 0.05
"""Seconds; a question to a server that is busy takes as long."""
_MAY_RELY: Final = 2
"""How many may rely on one answer of the server."""


@dataclass(slots=True, eq=False)
class Taking:
    """Somebody's wish to be a run's writer."""

    run_id: str
    place: Taken | None = None
    failure: JournalError | None = None


class HandedBackError(SupersededError):
    """Nothing more begins in this process, though the run is still its own."""


class PostgresWriter:
    """Journals add to `entries`; `write` empties them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.entries: deque[BatchEntry] = deque()
        self.questions: deque[Hold] = deque()
        """Runs that `check` is to look after."""
        self.takings: deque[Taking] = deque()
        self.failure: JournalError | None = None
        """Why this writer writes no more."""
        self.is_leaving = False
        """Whether others are to go on with all runs."""
        self._lock = RLock()
        self._beside: ThreadPoolExecutor | None = None
        self._soon: Future[None] | None = None

    def refuse(self, hold: Hold) -> None:
        """Raise where the run, or anything, is written no more."""
        failure = hold.failure or self.failure
        if failure is not None:
            raise _repeat(failure)

    def write(self) -> None:
        """Commit all that was collected; it waits for the server. A run that was taken over has its `failure`."""
        with self._lock:
            while self.entries and self.failure is None:
                batch = take_batch(self.entries)
                try:
                    self._write(batch)
                except BaseException as error:
                    self._stop(error)
                    raise

    def check(self) -> None:
        """Find out which of the runs that were asked about are others' by now."""
        holds = _drain(self.questions)
        numbers, now = [hold.number for hold in holds], monotonic()
        epochs = dict(self.database.run(lambda connection: connection.execute(CHECK, (numbers,)).fetchall()))
        for hold in holds:
            if epochs.get(hold.number, hold.epoch) != hold.epoch:
                hold.failure = hold.failure or _superseded_error(hold, False, self.database.name)
            else:
                hold.confirm(now)

    def take(self) -> None:
        """Become the writer of the runs that were asked for."""
        requests = _drain(self.takings)
        tables = PostgresTables(self.database)
        try:
            places = tables.take([each.run_id for each in requests])
        except JournalError as error:
            for each in requests:
                each.failure = type(error)(str(error))
            return
        for each in requests:
            try:
                each.place = places.get(each.run_id) or tables.take_over(each.run_id)
            except JournalError as error:
                each.failure = error

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

    def _write(self, batch: list[BatchEntry]) -> None:
        """Writes a batch; stores paid answers that lost their run beside it."""
        mine = [entry for entry in batch if entry.hold.failure is None]
        values, runs = columns_of(mine, self.database.key, self.database.owner)
        now = monotonic()
        numbers = {number for (number,) in self.database.run(partial(_write_entries, values))} if mine else set[int]()
        for hold, begins in runs:
            if hold.number in numbers:
                hold.confirm(now)
            else:
                hold.failure = _superseded_error(hold, begins, self.database.name)
        for entry in mine:
            if entry.hold.failure is None:
                entry.hold.length = entry.length
        late = late_columns_of(entry for entry in batch if isinstance(entry.hold.failure, SupersededError))
        if late[0]:
            self.database.run(lambda connection: connection.execute(LATE, late))

    def _stop(self, error: BaseException) -> None:
        name = self.database.name
        interrupted = StoreUnavailableError(f"writing to {name} was interrupted ({type(error).__name__})")
        self.failure = error if isinstance(error, JournalError) else interrupted
        self.entries.clear()
        self.database.close()  # Nothing is written after this: others may go on.


def _repeat(failure: JournalError) -> JournalError:
    """The failure once more, for one more caller."""
    again = type(failure)(str(failure))
    again.__cause__ = failure
    return again


def _drain(queue: deque[T]) -> list[T]:
    """Empties a queue and returns what was in it; others may add to it meanwhile."""
    entries: list[T] = []
    with suppress(IndexError):
        while True:
            entries.append(queue.popleft())
    return entries


def _write_entries(values: list[object], connection: Connection) -> list[Row]:
    return connection.execute(WRITE, values).fetchall()


def _superseded_error(hold: Hold, begins: bool, store: str) -> JournalError:
    if begins:
        return JournalError(f"run '{hold.run_id}' exists already in {store}; resume it, or choose another id")
    return SupersededError(f"run '{hold.run_id}' in {store} was taken over by another writer meanwhile")


class Commits:
    """Collects what the runs of one event loop write, for a common commit."""

    def __init__(self, writer: PostgresWriter) -> None:
        self.writer = writer
        self._writing = _Together(writer.write)
        self._checking = _Together(writer.check)
        self._taking = _Together(writer.take)

    async def share(self, hold: Hold) -> None:
        """Commit together with others that finish now."""
        await self._writing()
        self.writer.refuse(hold)

    async def check(self, hold: Hold) -> None:
        """Raise where the run is another's by now, or is to be, or nothing can be written of it.

        A commit has asked that too: what it was told a moment ago is relied upon twice, by a node that begins and by
        the call that it begins with. So is what was found out here.
        """
        self.writer.refuse(hold)
        if self.writer.is_leaving:
            raise HandedBackError(f"run '{hold.run_id}' is handed back: another process is to go on with it")
        if monotonic() - hold.confirmed >= _FRESH or hold.relied >= _MAY_RELY:
            self.writer.questions.append(hold)
            await self._checking()
            self.writer.refuse(hold)
        hold.relied += 1

    async def take(self, run_id: str) -> Taken | None:
        """Become the writer of a run, together with others; as the tables' `take_over`."""
        taking = Taking(run_id)
        self.writer.takings.append(taking)
        await self._taking()
        if taking.failure is not None:
            raise taking.failure
        return taking.place


class _Together:
    """Work of a thread that many wait for at once: each call is followed by a whole execution of it.

    The first to come is the leader: while an earlier execution is on its way, others join it; then it works for
    all. Also when it is cancelled meanwhile, for the others wait. What fails has failed for all of them.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._gathering: _Execution | None = None
        self._working: _Execution | None = None

    async def __call__(self) -> None:
        joined = self._gathering
        if joined is not None:
            await joined.ended.wait()
            if joined.failure is not None:
                raise _repeat(joined.failure)
            return
        mine = self._gathering = _Execution()
        try:
            with anyio.CancelScope(shield=True):
                await (checkpoint() if self._working is None else self._working.ended.wait())
                self._gathering, self._working = None, mine
                limiter = anyio.CapacityLimiter(1)  # a thread, also where nodes keep all others busy
                await anyio.to_thread.run_sync(self._work, limiter=limiter)
        except BaseException as error:  # Also a cancellation by the event loop itself, which no shield holds up.
            name = type(error).__name__
            mine.failure = error if isinstance(error, JournalError) else StoreUnavailableError(f"stopped by {name}")
            raise
        finally:
            self._gathering = None if self._gathering is mine else self._gathering
            self._working = None if self._working is mine else self._working
            mine.ended.set()


class _Execution:
    """One time that the work is done."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.failure: JournalError | None = None
