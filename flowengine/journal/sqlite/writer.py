"""Writes rows into the database: collected, then written in one transaction.

One writer serves all runs of one thread's event loop over one connection, so that whatever finishes at the
same time shares one commit. It is never entered by two threads at once. A writer whose commit failed never
writes again: its runs stop with the error, and can be resumed from what was committed, by any process.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import anyio
from anyio.lowlevel import checkpoint

from flowengine.core.storage import SQLITE_ERRORS
from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.journal.sqlite.database import SPAN, checksum_of_event, store_error
from flowengine.journal.sqlite.index_tables import session_change
from flowengine.journal.sqlite.tables import Change, Held, Row, SqliteTables

# --- Names and locks of writers

_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{12}")
"""A store may be damaged or hostile: what it calls a writer must not lead to any other file."""


class Ownership:
    """A writer's name, and the lock that is held until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.name = path.name
        self._path = path
        self._descriptor: int | None = descriptor
        self._process = os.getpid()

    def release(self) -> None:
        if self._descriptor is None:
            return
        if self._process == os.getpid():  # a forked child has the lock too, and must leave it to its parent
            _remove(self._path)
        os.close(self._descriptor)
        self._descriptor = None


def claim(folder: Path) -> Ownership:
    """A new name with its lock; the files of writers that died are removed."""
    try:
        for file in _list_writers(folder):
            is_alive(folder, file)
        while True:
            path = folder / f"{os.getpid()}-{os.urandom(6).hex()}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            if _try_lock(path, descriptor):
                return Ownership(path, descriptor)
            os.close(descriptor)
    except OSError as error:
        raise StoreUnavailableError(
            f"no run can be claimed for writing through {folder}: {error.strerror}; "
            f"the folder must be writable and support file locks"
        ) from error


def _list_writers(folder: Path) -> list[str]:
    """The names in the folder, which is made where it is missing."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        is_shared = folder.with_suffix("").stat().st_mode & 0o077  # Who may open the store takes its locks.
        folder.mkdir(mode=0o777 if is_shared else 0o700, parents=True, exist_ok=True)
        return []


def is_alive(folder: Path, name: str) -> bool:
    """Tells whether the writer of that name may still write. The file of one that is dead is removed."""
    if not _NAME.fullmatch(name):
        return False
    try:
        descriptor = os.open(folder / name, os.O_RDONLY)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that who asks is not taken for an owner
        _remove(folder / name)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def process_of(name: str) -> str:
    """
    >>> process_of("4711-a0b1c2d3e4f5")
    '4711'
    """
    return name.partition("-")[0]


def _try_lock(path: Path, descriptor: int) -> bool:
    """Tells whether the lock is ours now; False where another claim took the new file for that of a dead writer."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):  # the lock counts, not the file: one left behind does no harm
        os.unlink(path)


_RUN: Final = (
    "INSERT INTO run (run_id, flow, status, started, path, owner, labels, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)
_EVENT: Final = "INSERT INTO event VALUES (?, ?, ?)"
_FULL: Final = 1000
"""Characters of a row to which nothing is added."""


class SqliteWriter:
    """`add` and `changes` are what the journals collect; `write` empties them."""

    def __init__(self, tables: SqliteTables) -> None:
        self.tables = tables
        self._execute = tables.cursor.execute
        self.rows: list[Row] = []
        """Events that are not written yet."""
        self.changes: list[Change] = []
        """Statements on the table of runs that go with them."""
        self.failure: JournalError | None = None
        """Why this writer writes no more."""
        self._owner: Ownership | None = None
        self._shared: anyio.Event | None = None

    @property
    def name(self) -> str | None:
        """The owner name of the runs that it writes."""
        return None if self._owner is None else self._owner.name

    def claim(self, locks: Path) -> str:
        """Its name; from now on a lock in that folder says that it lives."""
        if self._owner is None:
            self._owner = claim(locks)
        return self._owner.name

    def add(self, position: int, body: str) -> None:
        """An event. Small ones that follow each other share a row: two rows cost more than one (0.8 µs a node)."""
        rows = self.rows
        if rows:
            last, before = rows[-1]
            if last == position - 1 and len(before) < _FULL:
                rows[-1] = (position, f"{before}\n{body}")
                return
        rows.append((position, body))

    def begin(self, row: Sequence[Any], body: str, session: str) -> Held | None:
        """Commit a new run with its first event, alone: only then its number is known. None: the id is taken."""
        if self.failure is not None:
            raise self.refusal()
        execute = self._execute
        try:
            execute("BEGIN IMMEDIATE")
            cursor = execute(_RUN, row)
            number = cast("int", cursor.lastrowid) if cursor.rowcount else None
            if number is not None:
                execute(_EVENT, _add_checksum((number * SPAN, body)))
            if number is not None and session:
                execute(*session_change(number, session))
            execute("COMMIT")
        except BaseException as error:
            raise self._stop(error)  # noqa: B904 -- it has its cause
        return None if number is None else Held(number, 1)

    def write(self) -> None:
        """Commit all that was collected, at once."""
        if self.failure is not None:
            raise self.refusal()
        if not (self.rows or self.changes):
            return
        try:
            self._insert()
        except BaseException as error:
            raise self._stop(error)  # noqa: B904 -- it has its cause
        self.rows.clear()
        self.changes.clear()

    async def share(self) -> None:
        """Commit together with others that finish now.

        The first to come is the leader: it lets the others run once, then writes for all. Also when it is
        cancelled there, for the others wait; one of those that is cancelled loses nothing, its rows are in.
        """
        done = self._shared
        if done is not None:
            await done.wait()
            if self.failure is not None:
                raise self.refusal()
            return
        done = self._shared = anyio.Event()
        try:
            await checkpoint()
        finally:
            self._shared = None
            try:
                self.write()
            finally:
                done.set()

    def refusal(self) -> JournalError:
        """The failure once more, for one more caller."""
        failure = self.failure or StoreUnavailableError(f"{self.tables.path} is closed")
        again = type(failure)(str(failure))
        again.__cause__ = failure
        return again

    def make_ended(self, reason: str) -> SqliteWriter:
        """Returns the writer that a closed journal has instead of this one; it refuses everything."""
        writer = SqliteWriter(self.tables)
        writer.failure = StoreUnavailableError(reason)
        return writer

    def close(self) -> None:
        """Write what is left, close the connection and let go of the runs."""
        try:
            if self.failure is None:
                self.write()
                self.tables.index.sweep()
        finally:
            self._fail(self.failure or StoreUnavailableError(f"the store {self.tables.path} is closed"))
            self.tables.connection.close()

    def _stop(self, error: BaseException) -> BaseException:
        """Write no more because of an error; what to raise."""
        if isinstance(error, SQLITE_ERRORS):
            failure = store_error(self.tables.path, error)
            failure.__cause__ = error
            return self._fail(failure)
        if isinstance(error, JournalError):
            return self._fail(error)
        # Ctrl-C in the middle: what is on disk is known only by reading it again
        self._fail(StoreUnavailableError(f"writing to {self.tables.path} was interrupted ({type(error).__name__})"))
        return error

    def _fail(self, failure: JournalError) -> JournalError:
        self.failure = failure
        self.rows.clear()
        self.changes.clear()
        with suppress(*SQLITE_ERRORS):  # the first error counts
            self.tables.connection.rollback()
        if self._owner is not None:  # nothing is written after this: others may go on
            self._owner.release()
        return failure

    def _insert(self) -> None:
        rows, execute = self.rows, self._execute
        if len(rows) == 1 and not self.changes:
            execute(_EVENT, _add_checksum(rows[0]))
            return
        execute("BEGIN IMMEDIATE")
        self.tables.connection.executemany(_EVENT, map(_add_checksum, rows))
        for statement, values in self.changes:
            if execute(statement, values).rowcount != 1:
                raise StoreUnavailableError(f"a run in {self.tables.path} was taken over by another writer meanwhile")
        execute("COMMIT")


def _add_checksum(row: Row) -> tuple[int, str, int]:
    """The row with its checksum."""
    position, body = row
    return position, body, checksum_of_event(position, body.encode())
