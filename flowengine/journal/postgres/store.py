"""Stores runs in a PostgreSQL database: for many machines, each of which may go on with what another left.

    full     a commit is on the server's disk
    process  a commit is with the server: it survives the death of this process, and of the server's all but the
             latest ones
    memory   `commit` waits for nothing: events are written by `flush`, and at the end

A process has one connection to the server, shared by its event loops; commits are awaited in threads. A run
has one writer at a time: opening it raises its epoch, and nothing is written with an older one. A dead
writer has let go of its lock (see `connection`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from flowengine.core import ModelCall, ToolCall
from flowengine.engine import (
    Durability,
    Event,
    NodeFailed,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunInfo,
    RunResumed,
    RunStarted,
)
from flowengine.errors import JournalError, RunNotFoundError, StoreUnavailableError, SupersededError
from flowengine.journal.blob_owners import BlobNotes, forget_run
from flowengine.journal.codec import encode
from flowengine.journal.postgres.batch import BatchEntry, Begin, Hold
from flowengine.journal.postgres.connection import Connection, Database
from flowengine.journal.postgres.migrations import check_version, migrate
from flowengine.journal.postgres.tables import Beginnings, PostgresTables
from flowengine.journal.postgres.writer import Commits, PostgresWriter
from flowengine.journal.run_digest import DigestBuilder, RunDigest
from flowengine.journal.run_index import RunIndex
from flowengine.journal.run_lookup import no_such_run, resolve
from flowengine.journal.stores import OpenRuns

T = TypeVar("T")

_TOLD: Final[frozenset[type[Any]]] = frozenset({RunStarted, NodeRecorded, NodeFailed, RunFinished, RunResumed})
"""Events of which the digest of a run tells."""

_SHOWN_AFTER: Final = 1.0
"""Seconds after which it is shown that a node was begun, where nothing of the run was written since: calls of models
that take less cost no commit for that. Where somebody follows what they write, it is shown before (`LiveBoard`)."""
_WRITTEN_AFTER: Final = 0.1
"""Seconds after which events are written that no commit waits for."""


class PostgresJournal:
    """The record of one run; made by `PostgresStore.create` and `open`, for one event loop."""

    def __init__(
        self,
        hold: Hold,
        length: int,
        commits: Commits,
        tables: PostgresTables,
        waits: bool,
        notes: BlobNotes,
        release: Callable[[], None],
        first: str | None = None,
    ) -> None:
        """`first`: the text of the first event, where it is known already."""
        self._hold = hold
        hold.length = length
        self._length = length
        self._is_ours = length > 0
        """Whether the run's row names us as its writer."""
        self._commits = commits
        self._writer = commits.writer
        self._tables = tables
        self._waits = waits
        self.flush_interval: float | None = _SHOWN_AFTER if waits else _WRITTEN_AFTER
        self._notes = notes
        self._release: Callable[[], None] | None = release
        self._first = first
        self._digest = None if length else DigestBuilder()
        """Builds the digest that the run's end is listed with; None: not all of the run was seen here."""
        self.is_careful = False
        """Whether it is written which node is run before it is: for a run whose writers keep dying."""
        self.listener: Callable[[Event], None] | None = None
        """Hears what is appended."""

    @property
    def epoch(self) -> int:
        """The number of this writer among the run's writers."""
        return self._hold.epoch

    def append(self, event: Event, /) -> None:
        body = encode(event)
        is_paid = isinstance(event, NodeRecorded) and type(event.record) in (ModelCall, ToolCall)
        if not (is_paid and isinstance(self._hold.failure, SupersededError)):  # That is stored; `commit` tells.
            self._refuse()
        self._notes.note(body)
        begin, status, finished = None, None, None
        if self._length == 0:
            if not isinstance(event, RunStarted):
                raise JournalError(f"the first event of a run is a RunStarted, not a {type(event).__name__}")
            begin, self._is_ours = Begin.of(event), True
        elif isinstance(event, RunFinished):
            status, finished, self._is_ours = event.status, event.at, False
        elif isinstance(event, RunResumed):
            status, self._is_ours = "running", True
        self._length += 1
        digest = self._note_event(event) if type(event) in _TOLD else None
        self._writer.entries.append(
            BatchEntry(self._hold, self._length, body, status, finished, self._is_ours, begin, is_paid, digest)
        )
        if self.is_careful and type(event) is NodeStarted:
            self._writer.write()
        if self.listener is not None:
            self.listener(event)

    def _note_event(self, event: Event) -> RunDigest | None:
        """Note what lists tell of; their digest, where the run has stopped and all of it was seen here."""
        if self._digest is None:
            return None
        self._digest.apply(event)
        has_stopped = isinstance(event, RunFinished) and event.status != "running"
        return self._digest.digest(self._length) if has_stopped else None

    def commit(self, alone: bool = True, /) -> Awaitable[None] | None:
        return self._commits.share(self._hold) if self._waits else None

    async def fence(self) -> None:
        """Raise `SupersededError` where another process goes on with the run: asked before anything is begun."""
        await self._commits.check(self._hold)

    def flush(self) -> None:
        self._writer.refuse(self._hold)
        if self._writer.entries:
            self._writer.write_soon()

    def read(self, after: int = 0, /) -> Sequence[Event]:
        if after >= self._length:
            return []
        if self._length == 1 and self._first is not None:
            events = [self._tables.decode(self._first)]
        else:
            self._writer.write()
            self._writer.refuse(self._hold)
            events = self._tables.events(self._hold.run_id, self._hold.number, after)
        if self._digest is None and after == 0:
            self._digest = DigestBuilder.of(events)
        return events

    async def read_beside(self) -> Sequence[Event]:
        """Reads like `read`, beside the event loop where the server has to be asked."""
        return self.read() if self._length == 1 and self._first else await anyio.to_thread.run_sync(self.read)

    async def close(self) -> None:
        release, self._release = self._release, None
        if release is None:
            return
        try:
            if self._is_ours and self._hold.failure is None:
                self._writer.entries.append(BatchEntry(self._hold, self._length, None, owns=False))
            elif self._hold.length == self._length:
                self._writer.refuse(self._hold)
                return
            with anyio.CancelScope(shield=True):
                await self._commits.share(self._hold)
        finally:
            release()

    def _refuse(self) -> None:
        if self._release is None:
            raise StoreUnavailableError(f"the journal of run '{self._hold.run_id}' is closed")
        self._writer.refuse(self._hold)


class PostgresStore:
    """Many runs in the schema `flowengine` of a database; the first to come makes the tables.

    `patience`: seconds for which a server that went away is waited for before the runs stop. `role`: what kind of
    process this is, for those who find a run in its hands.
    """

    is_shared: Final = True
    """Other processes can read what is kept here."""

    def __init__(
        self, url: str, durability: Durability = "process", *, patience: float = 10.0, role: str = "process"
    ) -> None:
        self.url = url
        self.durability: Durability = durability
        self.role = role
        self._patience = patience
        self.is_leaving = False
        """Whether others are to go on with all runs."""
        self._lock = threading.Lock()
        self._parts: dict[int, tuple[PostgresWriter, PostgresTables]] = {}
        """By process: a forked child has no use for its parent's."""
        self._commits: dict[tuple[int, PostgresWriter], Commits] = {}
        """By thread."""
        self._open = OpenRuns()

    def create(self, run_id: str, /) -> PostgresJournal:
        with self._open.reserve(run_id) as release:
            writer, tables = self._current_connection()
            number = tables.free_number(run_id)
            if number is None:
                raise JournalError(
                    f"run '{run_id}' exists already in {writer.database.name}; resume it, or choose another id"
                )
            return self._journal(Hold(run_id, number, 1), 0, writer, tables, release)

    def begin(self, starts: Sequence[RunStarted], beside: Callable[[Connection, Beginnings], None]) -> None:
        """Write the runs that are not there yet, in one transaction with what `beside` does; where it raises, nothing
        is written. No process writes them then."""
        self._tables.begin(starts, beside)

    def open(self, run_id: str, /) -> PostgresJournal:
        with self._open.reserve(run_id) as release:
            writer, tables = self._current_connection()
            place = tables.take_over(run_id)
            if place is None:
                raise self._no_such_run(run_id)
            return self._journal(Hold(run_id, place.number, place.epoch), place.length, writer, tables, release)

    async def take(self, run_id: str) -> PostgresJournal:
        """Opens like `open`, beside the event loop, and in one statement with others who do so now."""
        with self._open.reserve(run_id) as release:
            writer, tables = self._current_connection()
            place = await self._commits_of(writer).take(run_id)
            if place is None:
                raise self._no_such_run(run_id)
            hold = Hold(run_id, place.number, place.epoch)
            return self._journal(hold, place.length, writer, tables, release, place.first)

    def events(self, run_id: str, after: int = 0, /) -> Sequence[Event]:
        writer, tables = self._current_connection()
        writer.settle()
        number = tables.number(run_id)
        if number is None:
            raise self._no_such_run(run_id)
        return tables.events(run_id, number, after)

    def list(self) -> Sequence[RunInfo]:
        writer, tables = self._current_connection()
        writer.settle()
        return tables.runs()

    def abandoned(self) -> Collection[str]:
        rows = self.query("""
            SELECT run_id FROM flowengine.run WHERE status = 'running' AND NOT EXISTS (
                SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND (classid::bigint << 32 | objid::bigint) = owner
            )
        """)
        return [run_id for (run_id,) in rows]

    def query(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """Runs a query, for modules with tables of their own in the database."""
        return self._current_connection()[0].database.query(statement, *values)

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` as one transaction, and repeats it after a lost connection."""
        return self._current_connection()[0].database.transact(work)

    def check_version(self) -> None:
        """Raise `StoreVersionError` where the store is a newer FlowEngine's, also since it was opened."""
        database = self._current_connection()[0].database
        database.run(lambda connection: check_version(connection, database.name))

    def status_of(self, run_id: str) -> str | None:
        """Returns a run's status in the list of runs, or None."""
        rows = self.query("SELECT status FROM flowengine.run WHERE run_id = %s", run_id)
        return rows[0][0] if rows else None

    def start_of(self, run_id: str) -> RunStarted:
        """The first event of a run."""
        start = self._tables.start_of(run_id)
        if start is None:
            raise self._no_such_run(run_id)
        return start

    def remove(self, run_id: str, /) -> None:
        with self._open.reserve(run_id) as release:
            if not self._tables.remove(run_id):
                raise self._no_such_run(run_id)
            forget_run(self, run_id)
            release()

    def wait_for(self, seconds: float) -> None:
        """From now on, a server that went away is waited for so long."""
        with self._lock:
            self._patience = seconds
            for writer, _ in self._parts.values():
                writer.database.patience = seconds

    def hand_back(self) -> None:
        """Let nothing more begin here, no node and no call; what is on its way ends, and is written."""
        with self._lock:
            self.is_leaving = True
            for writer, _ in self._parts.values():
                writer.is_leaving = True

    def find_writers(self, role: str, run_ids: Sequence[str]) -> Mapping[str, tuple[int, bool]]:
        """Of those of the runs that somebody in that role writes, the epoch, and whether his connection lives."""
        query = """
            SELECT run_id, epoch, NOT pg_try_advisory_xact_lock_shared(owner) FROM flowengine.run
            WHERE run_id = ANY(%s) AND owner IS NOT NULL AND starts_with(owner_name, %s)
        """
        rows = self.query(query, list(run_ids), f"{role} ")
        return {run_id: (epoch, is_alive) for run_id, epoch, is_alive in rows}

    def take_from(self, run_id: str, epoch: int) -> None:
        """Supersede the writer of that epoch, which is known to be dead or to hang."""
        query = "UPDATE flowengine.run SET owner = NULL, epoch = epoch + 1 WHERE run_id = %s AND epoch = %s RETURNING 1"
        self.query(query, run_id, epoch)

    def is_settled(self, seconds: float) -> bool:
        """Tells whether the server is up for so long."""
        return self.query("SELECT now() - pg_postmaster_start_time() >= make_interval(secs => %s)", seconds)[0][0]

    def now(self) -> float:
        """Unix seconds by the server's clock, the one that all machines share."""
        return self.query("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0]

    def recall(self, kind: str, key: str, /) -> Any:
        return self._tables.recall(kind, key)

    def revise(self, kind: str, key: str, change: Callable[[Any], Any], /) -> None:
        self._tables.revise(kind, key, change)

    def put_blob(self, owner: str, content: bytes, /) -> str:
        return self._tables.blobs.put(owner, content)

    def keep_blob(self, owner: str, blob: str, /) -> bool:
        return self._tables.blobs.keep(owner, blob)

    def read_blob(self, blob: str, /) -> bytes:
        is_closed = os.getpid() not in self._parts  # Files of a run are read after its store was closed, too.
        try:
            return self._tables.blobs.read(blob)
        finally:
            if is_closed:
                self.close()

    def blob_size(self, blob: str, /) -> int | None:
        return self._tables.blobs.size(blob)

    def forget_blobs(self, owner: str, /) -> None:
        self._tables.blobs.forget(owner)

    def run_index(self) -> RunIndex:
        """Returns the index that finds runs for lists."""
        writer, tables = self._current_connection()
        writer.settle()
        return tables.index

    def find(self, reference: str, /) -> str:
        writer, tables = self._current_connection()
        writer.settle()
        return resolve(reference, tables.run_ids(), writer.database.name)

    def close(self) -> None:
        """Write what the open journals still hold, and let go of the server and of the runs."""
        with self._lock:
            writer, _ = self._parts.pop(os.getpid(), (None, None))
            self._parts.clear()
            self._commits.clear()
        try:
            if writer is not None:
                writer.close()
        finally:
            self._open.clear()

    @property
    def _tables(self) -> PostgresTables:
        return self._current_connection()[1]

    def _current_connection(self) -> tuple[PostgresWriter, PostgresTables]:
        """This process's own; new ones where the last have failed."""
        process = os.getpid()
        with self._lock:
            parts = self._parts.get(process)
            if parts is None or parts[0].failure is not None:
                database = Database(self.url, self.durability, migrate, patience=self._patience, role=self.role)
                parts = self._parts[process] = PostgresWriter(database), PostgresTables(database, self.read_blob)
                parts[0].is_leaving = self.is_leaving
            return parts

    def _journal(
        self,
        hold: Hold,
        length: int,
        writer: PostgresWriter,
        tables: PostgresTables,
        release: Callable[[], None],
        first: str | None = None,
    ) -> PostgresJournal:
        waits = self.durability != "memory"
        notes = BlobNotes(self, hold.run_id)
        return PostgresJournal(hold, length, self._commits_of(writer), tables, waits, notes, release, first)

    def _commits_of(self, writer: PostgresWriter) -> Commits:
        """Those of this thread's event loop."""
        return self._commits.setdefault((threading.get_ident(), writer), Commits(writer))

    def _no_such_run(self, run_id: str) -> RunNotFoundError:
        writer, tables = self._current_connection()
        return no_such_run(run_id, tables.run_ids(), writer.database.name)
