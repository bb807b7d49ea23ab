"""Opens SQLite files: for their owner alone, with a log written ahead, and known by the application that made them.

It knows no table. What an error means to a user is said by the module whose file it is.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from anyio import to_thread

T = TypeVar("T")

SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeError)
"""The errors that Python's sqlite3 raises; a message that quotes a damaged file may be no text."""


class Identity(NamedTuple):
    """A file's identity from its header, and the number of its tables."""

    application: int
    version: int
    tables: int


class SQLiteFile(ABC):
    """One file, opened (and made, with its folder) at its first use; `:memory:` keeps nothing.

    One connection, which one thread at a time uses: a worker thread, so that no event loop waits for a disk.
    """

    def __init__(self, path: str | os.PathLike[str], *, patience: float = 10.0) -> None:
        """`patience`: seconds that a use waits while another process writes."""
        self.path = os.fspath(path)
        self._patience = patience
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs reading work in one transaction."""
        return await to_thread.run_sync(self._run, work, "DEFERRED")

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs writing work in one transaction."""
        return await to_thread.run_sync(self._run, work, "IMMEDIATE")

    def close(self) -> None:
        """Let go of the file; a later use opens it again. What was in memory is gone."""
        with self._lock:
            if self._connection is not None:
                self._closing()
                self._connection = None

    @abstractmethod
    def prepare(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of something else, or one that is too new; make the tables of a new one."""

    @abstractmethod
    def explain(self, error: sqlite3.Error | UnicodeError | OSError) -> Exception:
        """Makes a store error with advice. `OSError`: the folder cannot be made."""

    def _run(self, work: Callable[[sqlite3.Connection], T], kind: str) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                with transaction(self._connection, kind):
                    return work(self._connection)
            except SQLITE_ERRORS as error:
                raise self.explain(error) from error

    def _open(self) -> sqlite3.Connection:
        try:
            connection = open_connection(self.path, self._patience)
        except OSError as error:
            raise self.explain(error) from error
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            self.prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._closing = weakref.finalize(self, connection.close)
        return connection


def open_connection(path: str | os.PathLike[str], patience: float) -> sqlite3.Connection:
    """A connection in which each statement stands alone; `OSError` where the folder of the file cannot be made.

    A new file, and the folder that it needs, are for the owner alone. `patience`: seconds that a statement waits while
    another process writes.
    """
    if "\0" in os.fspath(path):
        raise OSError(errno.EINVAL, "no file can have a NUL in its name", os.fspath(path))
    if os.fspath(path) != ":memory:":
        _make_private(Path(os.path.realpath(path)))  # A link may lead to a file that is not there yet.
    connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _make_private(path: Path) -> None:
    """Creates the file with private permissions; leaves an existing one as it is."""
    if os.path.exists(path):
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def read_identity(connection: sqlite3.Connection) -> Identity:
    """Reads a file's identity in one statement, so that it never sees another process's half-made file."""
    query = (
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version"
    )
    return Identity(*connection.execute(query).fetchone())


def use_log(connection: sqlite3.Connection, patience: float) -> None:
    """Write-ahead logging. The one statement for which SQLite does not wait while others make the same file."""
    end = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.002)


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Generator[None]:
    """All of the block, or nothing of it."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")  # One that fails may leave the transaction open, and others shut out.
    except BaseException:
        connection.rollback()
        raise


def primary_code(error: BaseException) -> int | None:
    """The kind of an error of SQLite's; None of any other."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def reason_of(code: int | None, path: str | os.PathLike[str]) -> str:
    """Explains an error for a file, with advice that names its folder."""
    return _REASONS.get(code, "cannot be used").replace("{folder}", os.path.dirname(os.path.abspath(path)))


_REASONS: Final[dict[int | None, str]] = {
    sqlite3.SQLITE_BUSY: "is locked by another process; wait until it ends, or give another path",
    sqlite3.SQLITE_LOCKED: "is locked by another process; wait until it ends, or give another path",
    sqlite3.SQLITE_READONLY: (
        "is read-only; make the file, those beside it (-wal, -shm) and their folder {folder} writable, "
        "or give another path"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened; it must be a file, and it and its folder {folder} must be readable and writable"
    ),
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check the disk",
}
