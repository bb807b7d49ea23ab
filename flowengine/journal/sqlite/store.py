"""Stores runs in one SQLite file: as durably as asked, and readable by other processes meanwhile.

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
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

from flowengine.engine import Durability, Event, NodeFailed, NodeRecorded, RunFinished, RunInfo, RunResumed, RunStarted
from flowengine.errors import JournalError, RunBusyError, StoreUnavailableError
from flowengine.journal.blob_owners import BlobNotes, forget_run, missing_blob
from flowengine.journal.codec import encode
from flowengine.journal.run_digest import DigestBuilder, session_of
from flowengine.journal.run_index import RunIndex, ScannedRuns
from flowengine.journal.run_lookup import no_such_run, resolve
from flowengine.journal.sqlite.database import SPAN, connect, damage, grow_log
from flowengine.journal.sqlite.index_tables import digest_changes
from flowengine.journal.sqlite.tables import Held, SqliteTables, finishing, releasing, resuming, run_row
from flowengine.journal.sqlite.writer import SqliteWriter, is_alive, process_of
from flowengine.journal.stores import OpenRuns, busy_error

_SPECIAL: Final[frozenset[type[Any]]] = frozenset({RunFinished, RunResumed, NodeRecorded, NodeFailed})
"""Events that change the run's row, or of which its digest tells."""


class SQLiteJournal:
    """The record of one run; made by `SQLiteStore.create` and `open`, for one event loop.

    The first event of a new run is committed as it is appended: until then there is no row to belong to.
    """

    flush_interval: float | None = 0.05

    def __init__(
        self,
        run_id: str,
        hold: Held | None,
        length: int,
        writer: SqliteWriter,
        owner: str,
        waits: bool,
        notes: BlobNotes,
        release: Callable[[], None],
    ) -> None:
        self._run_id = run_id
        self._hold = hold
        self._is_ours = hold is not None
        """Whether the run's row names us as its writer."""
        self._next = length if hold is None else hold.number * SPAN + length
        self._digest = DigestBuilder() if hold is None else None
        """Builds the digest that the run's end is listed with; None: not all of the run was seen here."""
        self._writer = writer
        self._owner = owner
        self._waits = waits
        self._notes = notes
        self._release: Callable[[], None] | None = release

    def append(self, event: Event, /) -> None:
        body = encode(event)
        writer = self._writer
        if writer.failure is not None:
            raise writer.refusal()
        self._notes.note(body)
        if type(event) in _SPECIAL or self._hold is None:
            self._append_special(event, body)
            return
        writer.add(self._next, body)
        self._next += 1

    def _append_special(self, event: Event, body: str) -> None:
        """The first event, one that changes the run's row, or one that its digest tells of."""
        if self._hold is None:
            self._hold = self._begin_run(event, body)
            self._next = self._hold.number * SPAN
            self._is_ours = True
        else:
            self._writer.add(self._next, body)
            if isinstance(event, RunFinished):
                self._writer.changes.append(finishing(self._hold, event))
                self._is_ours = False
            elif isinstance(event, RunResumed):
                self._writer.changes.append(resuming(self._hold, self._owner))
                self._is_ours = True
        self._next += 1
        if self._digest is not None:
            self._digest.apply(event)
            if isinstance(event, RunFinished) and event.status != "running":
                number = self._hold.number
                self._writer.changes += digest_changes(number, self._digest.digest(self._next - number * SPAN))

    def _begin_run(self, event: Event, body: str) -> Held:
        if not isinstance(event, RunStarted):
            raise JournalError(f"the first event of a run is a RunStarted, not a {type(event).__name__}")
        hold = self._writer.begin(run_row(self._run_id, event, self._owner), body, session_of(event))
        if hold is None:  # since `create` looked
            raise _exists_error(self._run_id, self._writer.tables.path)
        return hold

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
        if self._hold is None or after >= self._next - self._hold.number * SPAN:
            return []
        events = self._writer.tables.events(self._run_id, self._hold.number, after)
        if self._digest is None and after == 0:
            self._digest = DigestBuilder.of(events)
        return events

    async def close(self) -> None:
        writer, self._writer = self._writer, self._writer.make_ended(f"the journal of run '{self._run_id}' is closed")
        release, self._release = self._release, None
        if release is not None:
            try:
                if self._hold is not None and self._is_ours:
                    writer.changes.append(releasing(self._hold))
                writer.write()
            finally:
                release()


class SQLiteStore:
    """Many runs in one file, which is made, with its folder, when the first run is created.

    `patience` is how many seconds a commit, and the event loop with it, waits while another process writes.
    """

    is_shared: Final = True
    """Other processes can read what is kept here."""

    def __init__(
        self, path: str | os.PathLike[str], durability: Durability = "process", *, patience: float = 10.0
    ) -> None:
        self.path = Path(path)
        if not self.path.name:
            raise StoreUnavailableError(f"a store is a file, found the folder '{path}'")
        self.durability: Durability = durability
        self._patience = patience
        try:
            self._locks = Path(f"{os.path.realpath(path)}.locks")  # the same one by every way to the file
        except ValueError as error:  # A NUL in the name, or what no encoding has.
            raise StoreUnavailableError(f"a store is a file, and none can be named {str(path)!r}: {error}") from error
        self._writers: dict[tuple[int, int], SqliteWriter] = {}
        """By process and thread."""
        self._open = OpenRuns()

    def create(self, run_id: str, /) -> SQLiteJournal:
        with self._open.reserve(run_id) as release:
            writer = self._writer()
            owner = writer.claim(self._locks)
            writer_row = writer.tables.find_writer(run_id)
            if writer_row is not None:
                self._refuse_if_written(run_id, writer_row[1])
                raise _exists_error(run_id, self.path)
            return self._journal(run_id, None, 0, writer, owner, release)

    def open(self, run_id: str, /) -> SQLiteJournal:
        writer_row = self._find_known(run_id)
        with self._open.reserve(run_id) as release:
            writer = self._writer()
            owner = writer.claim(self._locks)
            self._refuse_if_written(run_id, writer_row[1])
            hold = writer.tables.take_over(*writer_row, owner)
            if hold is None:
                raise RunBusyError(f"run '{run_id}' is being written by another process, which has just begun")
            return self._journal(run_id, hold, writer.tables.length(hold.number), writer, owner, release)

    def events(self, run_id: str, after: int = 0, /) -> Sequence[Event]:
        hold, _ = self._find_known(run_id)
        return self._writer().tables.events(run_id, hold.number, after)

    def list(self) -> Sequence[RunInfo]:
        return self._writer().tables.runs() if self._is_there() else ()

    def abandoned(self) -> Collection[str]:
        if not self._is_there():
            return ()
        owners = self._writer().tables.owners()
        ours = self._names()
        living = {each for each in set(owners.values()) if each and (each in ours or is_alive(self._locks, each))}
        return [run_id for run_id, owner in owners.items() if owner not in living]

    def remove(self, run_id: str, /) -> None:
        hold, before = self._find_known(run_id)
        with self._open.reserve(run_id) as release:
            writer = self._writer()
            owner = writer.claim(self._locks)
            self._refuse_if_written(run_id, before)
            if not writer.tables.remove(run_id, hold, before, owner):
                raise RunBusyError(f"run '{run_id}' is being written by another process, which has just begun")
            forget_run(self, run_id)
            writer.tables.index.sweep(is_due=False)  # From here on nothing of it can be read in the file.
            release()

    def recall(self, kind: str, key: str, /) -> Any:
        return self._writer().tables.recall(kind, key) if self._is_there() else None

    def revise(self, kind: str, key: str, change: Callable[[Any], Any], /) -> None:
        self._writer().tables.revise(kind, key, change)

    def put_blob(self, owner: str, content: bytes, /) -> str:
        return self._writer().tables.blobs.put(owner, content)

    def keep_blob(self, owner: str, blob: str, /) -> bool:
        return self._is_there() and self._writer().tables.blobs.keep(owner, blob)

    def read_blob(self, blob: str, /) -> bytes:
        if not self._is_there():
            raise missing_blob(str(self.path), blob)
        is_closed = not self._writers  # Files of a run are read after its store was closed, too.
        try:
            return self._writer().tables.blobs.read(blob)
        finally:
            if is_closed:  # What other threads have opened meanwhile is theirs.
                self._writers.pop(_own_key()).close()

    def blob_size(self, blob: str, /) -> int | None:
        return self._writer().tables.blobs.size(blob) if self._is_there() else None

    def forget_blobs(self, owner: str, /) -> None:
        if self._is_there():
            self._writer().tables.blobs.forget(owner)

    def run_index(self) -> RunIndex:
        """Returns the index that finds runs for lists."""
        return self._writer().tables.index if self._is_there() else ScannedRuns(self)

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
            self._open.clear()

    def _writer(self) -> SqliteWriter:
        """This thread's own; a new one where the last has failed."""
        key = _own_key()
        writer = self._writers.get(key)
        if writer is not None and writer.failure is not None:
            writer.close()
            writer = None
        if writer is None:
            connection = connect(self.path, self.durability, self._patience)
            writer = self._writers[key] = SqliteWriter(SqliteTables(self.path, connection, self.read_blob))
        return writer

    def _is_there(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:
            raise StoreUnavailableError(
                f"{self.path} cannot be reached: {error.strerror}; check its folders"
            ) from error

    def _journal(
        self, run_id: str, hold: Held | None, length: int, writer: SqliteWriter, owner: str, release: Callable[[], None]
    ) -> SQLiteJournal:
        if self.durability == "full":
            grow_log(self.path, writer.tables.connection)
        return SQLiteJournal(
            run_id, hold, length, writer, owner, self.durability != "memory", BlobNotes(self, run_id), release
        )

    def _run_ids(self) -> Sequence[str]:
        return self._writer().tables.run_ids() if self._is_there() else ()

    def _find_known(self, run_id: str) -> tuple[Held, str | None]:
        writer_row = self._writer().tables.find_writer(run_id) if self._is_there() else None
        if writer_row is None:
            if run_id in (known_ids := self._run_ids()):
                raise damage(self.path, f"is damaged, run '{run_id}' is in its list and not in its index")
            raise no_such_run(run_id, known_ids, str(self.path))
        return writer_row

    def _refuse_if_written(self, run_id: str, owner: str | None) -> None:
        """By another process or store; what our own writers write, `OpenRuns` knows better."""
        if owner is not None and owner not in self._names() and is_alive(self._locks, owner):
            raise busy_error(run_id, process_of(owner))

    def _names(self) -> Sequence[str | None]:
        """Of the writers of this process; a forked child has those of its parent too."""
        return [writer.name for (process, _), writer in tuple(self._writers.items()) if process == os.getpid()]


def _own_key() -> tuple[int, int]:
    """This process and thread, by which it has a writer."""
    return os.getpid(), threading.get_ident()


def _exists_error(run_id: str, path: Path) -> JournalError:
    return JournalError(f"run '{run_id}' exists already in {path}; resume it, or choose another id")


def open_sqlite(url: str, durability: Durability = "process") -> SQLiteStore:
    """The store of `sqlite:///…`, or of a path alone."""
    scheme, _, rest = url.partition(":")
    path = rest.removeprefix("///") if scheme.lower() == "sqlite" else url
    if path in ("", ":memory:", rest):
        raise StoreUnavailableError(
            f"'{url}' names no file: use sqlite:///relative.db, sqlite:////absolute.db, or memory:"
        )
    try:
        place = Path(path).expanduser()
    except RuntimeError as error:
        raise StoreUnavailableError(f"'{path}' begins with a home folder, and there is none of that name") from error
    return SQLiteStore(place, durability)
