"""Rows on their way into the database: collected, then written in one transaction.

One writer serves all runs of one thread's event loop over one connection, so that whatever finishes at the
same time shares one commit. It is never entered by two threads at once. A writer whose commit failed never
writes again: its runs stop with the error, and can be resumed from what was committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.journal.database import SQLITE_ERRORS, store_error
from flowengine.journal.tables import Tables

__all__ = ["Writer"]

_ONE: Final = "INSERT INTO event VALUES (?, ?)"
_TWO: Final = "INSERT INTO event VALUES (?, ?), (?, ?)"


class Writer:
    """`rows` and `changes` are filled by the journals; `write` empties them."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.rows: list[tuple[int, str]] = []
        """Position and body of events that are not written yet."""
        self.changes: list[tuple[str, Sequence[Any]]] = []
        """Statements on the table of runs that go with them."""
        self.failure: JournalError | None = None
        """Why this writer writes no more."""
        self._shared: anyio.Event | None = None

    def write(self) -> None:
        """Commit all that was collected, at once."""
        if self.failure is not None:
            raise self.refusal()
        if not self.rows:
            return
        try:
            self._insert()
        except SQLITE_ERRORS as error:
            failure = self.fail(store_error(self.tables.path, error))
            raise failure from error
        except BaseException as error:  # Ctrl-C in the middle: what is on disk is known only by reading it again
            self.fail(StoreUnavailableError(f"writing to {self.tables.path} was interrupted ({type(error).__name__})"))
            raise
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

    def ended(self, reason: str) -> Writer:
        """What a journal that is closed has instead of this one: it refuses everything."""
        writer = Writer(self.tables)
        writer.failure = StoreUnavailableError(reason)
        return writer

    def close(self) -> None:
        """Write what is left and close the connection."""
        try:
            if self.failure is None:
                self.write()
        finally:
            self.tables.connection.close()
            self.failure = self.failure or StoreUnavailableError(f"the store {self.tables.path} is closed")

    def fail(self, failure: JournalError) -> JournalError:
        """Write no more."""
        self.failure = failure
        self.rows.clear()
        self.changes.clear()
        with suppress(*SQLITE_ERRORS):  # the first error counts
            self.tables.connection.rollback()
        return failure

    def _insert(self) -> None:
        rows, execute = self.rows, self.tables.connection.execute
        if len(rows) > 2 or self.changes:
            execute("BEGIN IMMEDIATE")
            self.tables.connection.executemany(_ONE, rows)
            for statement, values in self.changes:
                execute(statement, values)
            execute("COMMIT")
        elif len(rows) == 2:
            execute(_TWO, rows[0] + rows[1])
        else:
            execute(_ONE, rows[0])
