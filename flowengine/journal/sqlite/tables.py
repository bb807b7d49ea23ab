"""Reads and writes the tables of the SQLite file: runs and events as rows.

A row of events is one event, or several that follow each other, one on a line; its position is that of the
last one. So a run's length is the position of its last row, and no reader needs to decode to count.

It knows SQL, the codec and one open connection; what SQLite complains of leaves here as an error of ours.
Which rows to write, and when, is the writer's matter.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from flowengine.core import FileSource, RunStatus, binding_files
from flowengine.core.storage import SQLITE_ERRORS
from flowengine.engine import Event, RunFinished, RunInfo, RunResumed, RunStarted
from flowengine.errors import JournalError, StoreCorruptError
from flowengine.journal.blob_owners import named_blobs
from flowengine.journal.codec import decode, decode_value, encode_value
from flowengine.journal.run_lookup import decode_labels, encode_labels, labels_of, no_such_run, storable
from flowengine.journal.sqlite.blob_tables import SqliteBlobs
from flowengine.journal.sqlite.database import (
    BESIDE,
    SPAN,
    SqliteQueries,
    checksum_of_event,
    checksum_of_texts,
    damage,
    store_error,
)
from flowengine.journal.sqlite.index_tables import SqliteIndex

Change: TypeAlias = tuple[str, Sequence[Any]]
"""A statement on a run's row. It finds none, and that is an error, where another writer has taken the run."""

_INFO: Final = (str, str, str, float)
"""Types of the first columns of a run's line."""

_STATUSES: Final[frozenset[str]] = frozenset(get_args(RunStatus))
_ENDED: Final = _STATUSES - {"running"}

_EVENTS: Final = """
    SELECT position, CAST(body AS BLOB), checksum, (SELECT status FROM run WHERE number = ?)
    FROM event WHERE position >= ? AND position < ? ORDER BY position
"""

Row: TypeAlias = tuple[int, str]
"""Position and body of a row of events."""


class Held(NamedTuple):
    """A run as its writer knows it."""

    number: int
    epoch: int
    """Grows with each writer."""


def run_row(run_id: str, event: RunStarted, owner: str) -> Sequence[Any]:
    labels, flow, path = encode_labels(labels_of(event)), storable(event.flow), storable(event.path)
    checksum = checksum_of_texts(run_id, flow, float(event.at), path, labels)
    return run_id, flow, "running", event.at, path, owner, labels, checksum


def finishing(hold: Held, event: RunFinished) -> Change:
    """The run's end, and that it has no writer any more; `running`: another process is to go on with it."""
    if event.status == "running":
        return "UPDATE run SET status = 'running', owner = NULL WHERE number = ? AND epoch = ?", hold
    statement = "UPDATE run SET status = ?, finished = ?, ended = ?, owner = NULL WHERE number = ? AND epoch = ?"
    return statement, (event.status, event.at, checksum_of_texts(event.status, float(event.at)), *hold)


def resuming(hold: Held, owner: str) -> Change:
    statement = (
        "UPDATE run SET status = 'running', finished = NULL, ended = NULL, owner = ? WHERE number = ? AND epoch = ?"
    )
    return statement, (owner, *hold)


def releasing(hold: Held) -> Change:
    return "UPDATE run SET owner = NULL WHERE number = ? AND epoch = ?", hold


class SqliteTables(SqliteQueries):
    """The tables over one connection."""

    def __init__(self, path: Path, connection: sqlite3.Connection, source: FileSource | None = None) -> None:
        """`source`: where files that are read here have their content."""
        super().__init__(path, connection)
        self.cursor = connection.cursor()
        """One for all commits: making one costs a twentieth of a commit."""
        self.blobs = SqliteBlobs(path, connection)
        self.index = SqliteIndex(path, connection, self.runs)
        self._source = source

    def find_writer(self, run_id: str) -> tuple[Held, str | None] | None:
        """The run, and the name of the writer that it has or had; None where there is no such run."""
        query = "SELECT number, CAST(epoch AS INTEGER), CAST(owner AS TEXT) FROM run WHERE run_id = ?"
        for number, epoch, owner in self._execute(query, run_id):
            if type(number) is not int or type(epoch) is not int:
                raise damage(self.path, f"is damaged, run '{run_id}' has no number")
            return Held(number, epoch), owner
        return None

    def owners(self) -> dict[str, str | None]:
        """Runs that are running → the names of the writers that they have or had."""
        query = "SELECT CAST(run_id AS TEXT), CAST(owner AS TEXT) FROM run WHERE status = 'running'"
        return dict(self._execute(query))

    def take_over(self, hold: Held, before: str | None, owner: str) -> Held | None:
        """The run with a new writer; None where another was faster."""
        statement = "UPDATE run SET owner = ?, epoch = epoch + 1 WHERE number = ? AND epoch = ? AND owner IS ?"
        try:
            row_count = self.connection.execute(statement, (owner, *hold, before)).rowcount
        except SQLITE_ERRORS as error:
            raise store_error(self.path, error) from error
        return Held(hold.number, hold.epoch + 1) if row_count else None

    def length(self, number: int) -> int:
        """Returns the number of events of a run."""
        first = number * SPAN
        query = "SELECT max(position) FROM event WHERE position >= ? AND position < ?"
        last: int | None = self._execute(query, first, first + SPAN)[0][0]
        return 0 if last is None else last - first + 1

    def events(self, run_id: str, number: int, after: int) -> list[Event]:
        """The run's events from `after` on; a gap, or what is not as it was written, is a `StoreCorruptError`."""
        first = number * SPAN
        events: list[Event] = []
        rows = self._execute(_EVENTS, number, first + after, first + SPAN)
        for position, body, checksum, _ in rows:
            if body is None:
                raise damage(self.path, f"is damaged, an event of run '{run_id}' is empty")
            lines = body.split(b"\n")
            begin, expected = position - first - len(lines) + 1, after + len(events)
            if checksum is not None and checksum != checksum_of_event(position, body):
                where = _format_span(max(begin, expected), position - first)
                raise damage(self.path, f"is damaged, run '{run_id}', {where}: what is read is not what was written")
            if begin > expected or (events and begin < expected):
                raise damage(self.path, f"is damaged, events of run '{run_id}' are missing, from event {expected} on")
            with self._bind_files():
                for index, line in enumerate(lines[expected - begin :], expected):
                    events.append(self._decode(run_id, index, line))
        if after == 0 and not (events and isinstance(events[0], RunStarted)):
            if not rows and self.find_writer(run_id) is None:  # Somebody has removed it meanwhile.
                raise no_such_run(run_id, self.run_ids(), str(self.path))
            raise damage(self.path, f"is damaged, run '{run_id}' has no beginning")
        if after == 0 and rows[0][3] in _ENDED and end_of(events) is None:
            problem = f"is damaged, the end of run '{run_id}' is missing, from event {len(events)} on"
            raise damage(self.path, problem)
        return events

    def runs(self, tail: str = "run ORDER BY started DESC, number DESC", values: Sequence[Any] = ()) -> list[RunInfo]:
        """All runs, the newest first, or those that `tail` says: what stands behind FROM. No event is decoded."""
        query = f"""
            SELECT CAST(run_id AS TEXT), CAST(flow AS TEXT), CAST(status AS TEXT), started, finished,
                coalesce((SELECT max(position) + 1 - number * {SPAN} FROM event
                 WHERE position >= number * {SPAN} AND position < (number + 1) * {SPAN}), 0),
                CAST(path AS TEXT), CAST(labels AS TEXT), checksum, ended
            FROM {tail}
        """
        rows = self._execute(query, *values)
        for row in rows:
            self._check_info(row)
        try:
            return [RunInfo(*row[:7], labels=decode_labels(row[7])) for row in rows]
        except ValueError as error:
            raise damage(self.path, f"is damaged, the labels of a run cannot be read ({error})") from error

    def _check_info(self, row: Sequence[Any]) -> None:
        run_id, flow, status, started, finished, _, path, labels, checksum, ended = row
        is_shaped = all(type(each) is kind for each, kind in zip(row, _INFO, strict=False)) and status in _STATUSES
        is_right = checksum in (None, checksum_of_texts(run_id, flow, started, path, labels))
        has_end = ended in (None, checksum_of_texts(status, finished)) and (finished is None) == (status == "running")
        if not (is_shaped and is_right and has_end):
            raise damage(self.path, f"is damaged, its list of runs holds {tuple(row[:5])!r:.200}")

    def run_ids(self) -> list[str]:
        """All runs, the newest first."""
        query = "SELECT CAST(run_id AS TEXT) FROM run WHERE run_id NOTNULL ORDER BY started DESC, number DESC"
        return [run_id for (run_id,) in self._execute(query)]

    def kept_beside(self) -> list[tuple[str, str]]:
        """Kinds and keys of all that is kept beside the runs."""
        if not self._execute("SELECT 1 FROM sqlite_schema WHERE name = 'beside'"):
            return []
        return self._execute("SELECT CAST(kind AS TEXT), CAST(key AS TEXT) FROM beside")

    def check(self) -> str:
        """Runs SQLite's check of the whole file: `ok`, or the first damage."""
        return self._execute("PRAGMA integrity_check(1)")[0][0]

    def recall(self, kind: str, key: str) -> Any:
        """Returns the value stored under a key beside the runs, or None."""
        if not self._execute("SELECT 1 FROM sqlite_schema WHERE name = 'beside'"):
            return None
        return self._decode_kept(self._text_beside(kind, key))

    def _text_beside(self, kind: str, key: str) -> str | None:
        query = "SELECT CAST(value AS TEXT), checksum FROM beside WHERE kind = ? AND key = ?"
        for value, checksum in self._execute(query, kind, key):
            if checksum is not None and checksum != checksum_of_texts(kind, key, value):
                raise damage(self.path, f"is damaged, what it keeps as {kind} '{key}' is not what was written")
            return value
        return None

    def _decode_kept(self, text: str | None) -> Any:
        if text is None:
            return None
        with self._bind_files():
            return decode_value(text)

    def revise(self, kind: str, key: str, change: Callable[[Any], Any]) -> None:
        """Change what stands under a key beside the runs, in one transaction; None removes it."""
        with self._transaction():
            self._execute(BESIDE)
            before = self._text_beside(kind, key)
            value = change(self._decode_kept(before))
            text = "" if value is None else encode_value(value)
            if value is None:
                self._execute("DELETE FROM beside WHERE kind = ? AND key = ?", kind, key)
            else:
                statement = "REPLACE INTO beside (kind, key, at, value, checksum) VALUES (?, ?, ?, ?, ?)"
                self._execute(statement, kind, key, time(), text, checksum_of_texts(kind, key, text))
            files = named_blobs(text)
            if files or named_blobs(before or ""):
                self.blobs.own_beside(kind, key, files)

    def remove(self, run_id: str, hold: Held, before: str | None, owner: str) -> bool:
        """Delete a run with its events and files, unless another writer was faster; what stood there is overwritten."""
        self._execute("PRAGMA secure_delete = ON")
        with self._transaction():
            new_hold = self.take_over(hold, before, owner)
            if new_hold is not None:
                first = hold.number * SPAN
                self._execute("DELETE FROM event WHERE position >= ? AND position < ?", first, first + SPAN)
                self._execute("DELETE FROM run WHERE number = ?", hold.number)
                self.index.drop(hold.number)
                self.blobs.drop(run_id)
        return new_hold is not None

    def _bind_files(self) -> AbstractContextManager[None]:
        return nullcontext() if self._source is None else binding_files(self._source)

    def _decode(self, run_id: str, index: int, line: bytes) -> Event:
        try:
            return decode(line)
        except StoreCorruptError as error:
            raise damage(self.path, f"is damaged, run '{run_id}', event {index}: {error}") from error
        except JournalError as error:
            raise type(error)(f"{self.path}, run '{run_id}', event {index}: {error}") from error


def _format_span(begin: int, end: int) -> str:
    return f"event {end}" if begin >= end else f"events {begin} to {end}"


def end_of(events: Sequence[Event]) -> RunFinished | None:
    """The end of the run, None where it goes on; answers to its questions may follow the end."""
    last = next((event for event in reversed(events) if isinstance(event, RunFinished | RunResumed)), None)
    return last if isinstance(last, RunFinished) else None
