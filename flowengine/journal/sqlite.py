"""Runs in one SQLite file: kept as durably as asked, and readable by other processes meanwhile.

    full     an event is on the disk before `commit` is done: it survives a power cut
    process  an event is in the file before `commit` is done: it survives the death of the process (a crash,
             kill -9); a power cut may cost the latest events, never the ones before them
    memory   `commit` waits for nothing: events are written every 50 ms by `flush`, and at the end; what came
             after the last writing is lost with the process

Each thread has a connection of its own, made when it is first needed; the runs of its event loop share it,
and their commits. A commit is written by the loop's own thread: handing it to another costs ten times as much.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from flowengine.engine.events import Event
from flowengine.engine.ports import RunInfo
from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.journal.codec import encode
from flowengine.journal.database import SPAN, Durability, connect, grow_log
from flowengine.journal.ownership import Ownership, claim
from flowengine.journal.reference import no_such_run, resolve
from flowengine.journal.tables import RUN_EVENTS, Tables, change_of_run
from flowengine.journal.writer import Writer

__all__ = ["Durability", "SQLiteJournal", "SQLiteStore"]


class SQLiteJournal:
    """The record of one run; made by `SQLiteStore.create` and `open`, for one event loop."""

    flush_interval: float | None = 0.05

    def __init__(
        self, run_id: str, number: int, length: int, writer: Writer, waits: bool, release: Callable[[], None]
    ) -> None:
        self._run_id = run_id
        self._number = number
        self._next = number * SPAN + length
        self._writer = writer
        self._waits = waits
        self._release = release

    def append(self, event: Event, /) -> None:
        body = encode(event)
        writer = self._writer
        if writer.failure is not None:
            raise writer.refusal()
        writer.rows.append((self._next, body))
        self._next += 1
        if type(event) in RUN_EVENTS:
            writer.changes.append(change_of_run(self._number, event))

    def commit(self, alone: bool = True, /) -> Awaitable[None] | None:
        if not self._waits:
            return None
        if alone:
            self._writer.write()
            return None
        return self._writer.share()

    def flush(self) -> None:
        self._writer.write()

    def read(self, after: int = 0, /) -> Sequence[Event]:
        self._writer.write()
        if after >= self._next - self._number * SPAN:
            return []
        return self._writer.tables.events(self._run_id, self._number, after)

    async def close(self) -> None:
        writer, self._writer = self._writer, self._writer.ended(f"the journal of run '{self._run_id}' is closed")
        release, self._release = self._release, _nothing
        if release is not _nothing:
            try:
                writer.write()
            finally:
                release()


def _nothing() -> None:
    """What is left to release of a closed journal."""


class SQLiteStore:
    """Many runs in one file, which is made, with its folder, when the first run is created.

    `patience` is how many seconds a commit, and the event loop with it, waits while another process writes.
    """

    def __init__(
        self, path: str | os.PathLike[str], durability: Durability = "process", *, patience: float = 10.0
    ) -> None:
        self.path = Path(path)
        if not self.path.name:
            raise StoreUnavailableError(f"a store is a file, found the folder '{path}'")
        self.durability: Durability = durability
        self._patience = patience
        self._locks = self.path.with_name(f"{self.path.name}.locks")
        self._writers: dict[tuple[int, int], Writer] = {}
        self._owned: dict[str, Ownership] = {}

    def create(self, run_id: str, /) -> SQLiteJournal:
        writer = self._writer()
        number = writer.tables.reserve(run_id)
        self._claim(run_id, number)
        try:
            if writer.tables.number(run_id) is not None:
                raise JournalError(f"run '{run_id}' exists already in {self.path}; open it to continue it")
            return self._journal(run_id, number, 0, writer)
        except BaseException:
            self._release(run_id)
            raise

    def open(self, run_id: str, /) -> SQLiteJournal:
        number = self._number(run_id)
        self._claim(run_id, number)
        try:
            writer = self._writer()
            writer.tables.count_writer(number)
            return self._journal(run_id, number, writer.tables.length(number), writer)
        except BaseException:
            self._release(run_id)
            raise

    def events(self, run_id: str, after: int = 0, /) -> Sequence[Event]:
        number = self._number(run_id)
        return self._writer().tables.events(run_id, number, after)

    def list(self) -> Sequence[RunInfo]:
        return self._writer().tables.runs() if self.path.exists() else ()

    def find(self, reference: str, /) -> str:
        return resolve(reference, self._run_ids(), str(self.path))

    def close(self) -> None:
        """Write what the open journals still hold, and let go of the file and of the runs."""
        writers, self._writers = self._writers, {}
        try:
            for (process, _), writer in writers.items():
                if process == os.getpid():  # a connection must not be used, nor closed, by a forked child
                    writer.close()
        finally:
            for run_id in tuple(self._owned):
                self._release(run_id)

    def _writer(self) -> Writer:
        """This thread's own; a new one where the last has failed."""
        key = (os.getpid(), threading.get_ident())
        writer = self._writers.get(key)
        if writer is not None and writer.failure is not None:
            writer.tables.connection.close()
            writer = None
        if writer is None:
            connection = connect(self.path, self.durability, self._patience)
            writer = self._writers[key] = Writer(Tables(self.path, connection))
        return writer

    def _journal(self, run_id: str, number: int, length: int, writer: Writer) -> SQLiteJournal:
        if self.durability == "full":
            grow_log(self.path, writer.tables.connection)
        waits = self.durability != "memory"
        return SQLiteJournal(run_id, number, length, writer, waits, partial(self._release, run_id))

    def _run_ids(self) -> Sequence[str]:
        return self._writer().tables.run_ids() if self.path.exists() else ()

    def _number(self, run_id: str) -> int:
        number = self._writer().tables.number(run_id) if self.path.exists() else None
        if number is None:
            raise no_such_run(run_id, self._run_ids(), str(self.path))
        return number

    def _claim(self, run_id: str, number: int) -> None:
        self._owned[run_id] = claim(self._locks / str(number), run_id)

    def _release(self, run_id: str) -> None:
        ownership = self._owned.pop(run_id, None)
        if ownership is not None:
            ownership.release()
