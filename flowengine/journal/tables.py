"""What is read from and written to the tables of the SQLite file: runs and events as rows.

It knows SQL, the codec and one open connection; what SQLite complains of leaves here as an error of ours.
Which rows to write, and when, is the writer's matter.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from flowengine.engine.events import Event, RunFinished, RunResumed, RunStarted
from flowengine.engine.ports import RunInfo
from flowengine.errors import JournalError, StoreCorruptError
from flowengine.journal.codec import decode
from flowengine.journal.database import SPAN, SQLITE_ERRORS, store_error

__all__ = ["RUN_EVENTS", "Tables", "change_of_run"]

RUN_EVENTS: Final[frozenset[type[Any]]] = frozenset({RunStarted, RunResumed, RunFinished})
"""Events that change the run's row."""


def change_of_run(number: int, event: Event) -> tuple[str, Sequence[Any]]:
    """The statement that one of `RUN_EVENTS` makes on the table of runs."""
    if isinstance(event, RunStarted):
        values = (_storable(event.flow), event.at, _storable(event.path), number)
        return "UPDATE run SET flow = ?, status = 'running', started = ?, path = ? WHERE number = ?", values
    if isinstance(event, RunFinished):
        return "UPDATE run SET status = ?, finished = ? WHERE number = ?", (event.status, event.at, number)
    return "UPDATE run SET status = 'running', finished = NULL WHERE number = ?", (number,)


def _storable(text: str | None) -> str | None:
    """File names may hold bytes that are no text; the event keeps them, the list of runs shows `?`."""
    return None if text is None else text.encode(errors="replace").decode()


class Tables:
    """The tables over one connection."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    def reserve(self, run_id: str) -> int:
        """The number of a row for that id, made where there is none."""
        self._query("INSERT OR IGNORE INTO run (run_id) VALUES (?)", run_id)
        return self._query("SELECT number FROM run WHERE run_id = ?", run_id)[0][0]

    def number(self, run_id: str) -> int | None:
        """The number of a run that has begun."""
        rows = self._query("SELECT number FROM run WHERE run_id = ? AND flow IS NOT NULL", run_id)
        return rows[0][0] if rows else None

    def count_writer(self, number: int) -> None:
        """One more writer of the run: its epoch outranks those before it."""
        self._query("UPDATE run SET epoch = epoch + 1 WHERE number = ?", number)

    def length(self, number: int) -> int:
        """How many events the run has."""
        first = number * SPAN
        query = "SELECT max(position) FROM event WHERE position >= ? AND position < ?"
        last: int | None = self._query(query, first, first + SPAN)[0][0]
        return 0 if last is None else last - first + 1

    def events(self, run_id: str, number: int, after: int) -> list[Event]:
        """The run's events from `after` on; a gap, or what is no event, is a `StoreCorruptError`."""
        first = number * SPAN
        query = "SELECT position, CAST(body AS BLOB) FROM event WHERE position >= ? AND position < ? ORDER BY position"
        rows = self._query(query, first + after, first + SPAN)
        if rows and rows[-1][0] != first + after + len(rows) - 1:
            raise StoreCorruptError(f"{self.path} is damaged: events of run '{run_id}' are missing")
        events: list[Event] = []
        for position, body in rows:
            try:
                events.append(decode(body))
            except JournalError as error:
                raise type(error)(f"{self.path}, run '{run_id}', event {position - first}: {error}") from error
        if after == 0 and not (events and isinstance(events[0], RunStarted)):
            raise StoreCorruptError(f"{self.path} is damaged: run '{run_id}' has no beginning")
        return events

    def runs(self) -> list[RunInfo]:
        """All runs that have begun, the newest first; no event is decoded."""
        rows = self._query(f"""
            SELECT run_id, flow, status, started, finished,
                (SELECT max(position) + 1 - number * {SPAN} FROM event
                 WHERE position >= number * {SPAN} AND position < (number + 1) * {SPAN}),
                path
            FROM run WHERE flow IS NOT NULL ORDER BY started DESC, number DESC
        """)
        return [RunInfo(*row) for row in rows]

    def run_ids(self) -> list[str]:
        """All runs that have begun, the newest first."""
        query = "SELECT run_id FROM run WHERE flow IS NOT NULL ORDER BY started DESC, number DESC"
        return [run_id for (run_id,) in self._query(query)]

    def _query(self, statement: str, *values: Any) -> list[Any]:
        try:
            return self.connection.execute(statement, values).fetchall()
        except SQLITE_ERRORS as error:
            raise store_error(self.path, error) from error
