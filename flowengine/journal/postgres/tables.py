"""Reads and changes the tables in PostgreSQL: runs, events, owners, and what is kept beside.

It knows SQL and the codec. Events are written by `writer` alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

from flowengine.core import EMPTY, FileSource, binding_files
from flowengine.engine import Event, RunInfo, RunStarted
from flowengine.errors import JournalError, RunBusyError, StoreCorruptError
from flowengine.journal.blob_owners import named_blobs
from flowengine.journal.codec import decode, decode_value, encode, encode_value
from flowengine.journal.postgres.batch import WRITE, BatchEntry, Begin, Hold, columns_of, take_batch
from flowengine.journal.postgres.blobs import PostgresBlobs
from flowengine.journal.postgres.connection import Connection, Database
from flowengine.journal.postgres.digests import PostgresIndex
from flowengine.journal.run_lookup import no_such_run

_ADOPT: Final = b"""
WITH run AS (
    SELECT number, length FROM flowengine.run WHERE run_id = %s AND status <> 'succeeded'
), late AS (
    DELETE FROM flowengine.late USING run WHERE late.number = run.number RETURNING late.*
), put AS (
    INSERT INTO flowengine.event
    SELECT number, length - 1 + row_number() OVER (ORDER BY epoch, position), body FROM late JOIN run USING (number)
    RETURNING number
)
UPDATE flowengine.run AS held SET length = held.length + (SELECT count(*) FROM put)
FROM run WHERE held.number = run.number
"""
"""Moves late events into the run's events."""


_TAKE: Final = b"""
WITH taken AS (
    UPDATE flowengine.run SET owner = %s, owner_name = %s, epoch = epoch + 1
    WHERE run_id = ANY(%s) AND owner IS NULL
    AND NOT EXISTS (SELECT FROM flowengine.late WHERE late.number = run.number)
    RETURNING run_id, number, epoch, length
)
SELECT run_id, number, epoch, length, body FROM taken JOIN flowengine.event USING (number) WHERE position = 0
"""
"""Runs that are free, with nothing beside them that came late; all others are taken over one by one."""


class Beginnings(NamedTuple):
    """The result of starting several runs."""

    new: Sequence[str]
    """Ids of the runs that were not there."""
    earlier: Mapping[str, RunStarted]
    """The runs that were there already, as they began."""


class Taken(NamedTuple):
    """A run that has a new writer."""

    number: int
    epoch: int
    length: int
    first: str | None = None
    """The text of its first event, where it was read with it."""


class PostgresTables:
    """The tables over one connection."""

    def __init__(self, database: Database, source: FileSource | None = None) -> None:
        """`source`: where files that are read here have their content."""
        self._database = database
        self._query = database.query
        self.blobs = PostgresBlobs(database)
        self.index = PostgresIndex(database, self.runs)
        self._source = source

    def free_number(self, run_id: str) -> int | None:
        """The number of a new run; None where there is a run of that id."""
        statement = """
            SELECT CASE WHEN EXISTS (SELECT FROM flowengine.run WHERE run_id = %s) THEN NULL
            ELSE nextval('flowengine.run_number') END
        """
        return self._query(statement, run_id)[0][0]

    def number(self, run_id: str) -> int | None:
        for (number,) in self._query("SELECT number FROM flowengine.run WHERE run_id = %s", run_id):
            return number
        return None

    def begin(self, starts: Sequence[RunStarted], beside: Callable[[Connection, Beginnings], None]) -> None:
        """Write the runs that are not there yet, in one transaction with what `beside` does; where it raises, nothing
        is written. No process writes them then."""
        texts = [encode(each) for each in starts]
        self._database.transact(partial(self._begin, list(zip(starts, texts, strict=True)), beside))

    def start_of(self, run_id: str) -> RunStarted | None:
        """The first event of a run; None where there is no such run."""
        return self._database.run(partial(self._first_of, [run_id])).get(run_id)

    def take_over(self, run_id: str) -> Taken | None:
        """The run with us as its writer; None where there is none, an error where its writer lives."""
        return self._database.transact(partial(self._take_over, run_id))

    def take(self, run_ids: Sequence[str]) -> dict[str, Taken]:
        """Those of the runs that could be taken at once, in one statement, with us as their writer."""
        values = (self._database.key, self._database.owner, list(run_ids))
        rows = self._database.run(lambda connection: connection.execute(_TAKE, values).fetchall())
        return {run_id: Taken(*rest) for run_id, *rest in rows}

    def remove(self, run_id: str) -> bool:
        """Delete a run with its events; whether there was one. An error where its writer lives."""
        return self._database.transact(partial(self._remove, run_id))

    def events(self, run_id: str, number: int, after: int) -> list[Event]:
        """The run's events from `after` on; a gap, or what is no event, is a `StoreCorruptError`."""
        name = self._database.name
        query = "SELECT position, body FROM flowengine.event WHERE number = %s AND position >= %s ORDER BY position"
        events: list[Event] = []
        for position, body in self._query(query, number, after):
            if position != after + len(events):
                raise StoreCorruptError(f"{name} is damaged: events of run '{run_id}' are missing")
            try:
                events.append(self.decode(body))
            except JournalError as error:
                raise type(error)(f"{name}, run '{run_id}', event {position}: {error}") from error
        if after == 0 and not (events and isinstance(events[0], RunStarted)):
            if self.number(run_id) is None:  # Somebody has removed it meanwhile.
                raise no_such_run(run_id, self.run_ids(), name)
            raise StoreCorruptError(f"{name} is damaged: run '{run_id}' has no beginning")
        return events

    def runs(
        self, tail: str = "flowengine.run ORDER BY started DESC, number DESC", values: Sequence[Any] = ()
    ) -> list[RunInfo]:
        """All runs, the newest first, or those that `tail` says: what stands behind FROM. No event is read."""
        columns = "run_id, flow, status, started, finished, length, path, labels"
        rows = self._query(f"SELECT {columns} FROM {tail}", *values)
        return [RunInfo(*row[:7], labels=row[7] or EMPTY) for row in rows]

    def run_ids(self) -> Sequence[str]:
        """All runs, the newest first."""
        rows = self._query("SELECT run_id FROM flowengine.run ORDER BY started DESC, number DESC")
        return [run_id for (run_id,) in rows]

    def recall(self, kind: str, key: str) -> Any:
        """Returns the value stored under a key beside the runs, or None."""
        return self._decode_kept(self._text_beside(kind, key))

    def _text_beside(self, kind: str, key: str) -> str | None:
        rows = self._query("SELECT value FROM flowengine.beside WHERE kind = %s AND key = %s", kind, key)
        return rows[0][0] if rows else None

    def _decode_kept(self, text: str | None) -> Any:
        if text is None:
            return None
        with self._bind_files():
            return decode_value(text)

    def revise(self, kind: str, key: str, change: Callable[[Any], Any]) -> None:
        """One transaction: no other write comes between what is read and what is written."""
        self._database.transact(partial(self._revise, kind, key, change))

    def _revise(self, kind: str, key: str, change: Callable[[Any], Any], connection: Connection) -> None:
        execute = connection.execute
        execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"flowengine {kind} {key}",))
        before = self._text_beside(kind, key)
        value = change(self._decode_kept(before))
        text = "" if value is None else encode_value(value)
        if value is None:
            execute("DELETE FROM flowengine.beside WHERE kind = %s AND key = %s", (kind, key))
        else:
            execute(
                "INSERT INTO flowengine.beside (kind, key, value) VALUES (%s, %s, %s) "
                "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, at = now()",
                (kind, key, text),
            )
        files = named_blobs(text)
        if files or named_blobs(before or ""):
            self.blobs.own_beside(kind, key, files, connection)

    def _begin(
        self,
        starts: Sequence[tuple[RunStarted, str]],
        beside: Callable[[Connection, Beginnings], None],
        connection: Connection,
    ) -> None:
        connection.execute("SET LOCAL synchronous_commit = on")  # No other process has these runs.
        query = "SELECT nextval('flowengine.run_number') FROM generate_series(1, %s)"
        numbers = [number for (number,) in connection.execute(query, (len(starts),)).fetchall()]
        entries = [
            BatchEntry(Hold(start.run_id, number, 1), 1, text, owns=False, begin=Begin.of(start))
            for number, (start, text) in zip(numbers, starts, strict=True)
        ]
        new_numbers: set[int] = set()
        rest = deque(entries)
        while rest:
            values, _ = columns_of(take_batch(rest), self._database.key, self._database.owner)
            new_numbers.update(number for (number,) in connection.execute(WRITE, values).fetchall())
        new = [entry.hold.run_id for entry in entries if entry.hold.number in new_numbers]
        others = [entry.hold.run_id for entry in entries if entry.hold.number not in new_numbers]
        beside(connection, Beginnings(new, self._first_of(others, connection)))

    def _first_of(self, run_ids: Sequence[str], connection: Connection) -> dict[str, RunStarted]:
        """The first events of runs that are there."""
        if not run_ids:
            return {}
        query = (
            "SELECT run_id, body FROM flowengine.run JOIN flowengine.event USING (number) "
            "WHERE run_id = ANY(%s) AND position = 0"
        )
        events = {run_id: self.decode(body) for run_id, body in connection.execute(query, (run_ids,)).fetchall()}
        return {run_id: event for run_id, event in events.items() if isinstance(event, RunStarted)}

    def _take_over(self, run_id: str, connection: Connection) -> Taken | None:
        if not self._is_free(run_id, connection):
            return None
        connection.execute(_ADOPT, (run_id,))
        rows = connection.execute(
            "UPDATE flowengine.run SET owner = %s, owner_name = %s, epoch = epoch + 1 WHERE run_id = %s "
            "RETURNING number, epoch, length",
            (self._database.key, self._database.owner, run_id),
        ).fetchall()
        return Taken(*rows[0])

    def _remove(self, run_id: str, connection: Connection) -> bool:
        if not self._is_free(run_id, connection):
            return False
        connection.execute(
            "WITH gone AS (DELETE FROM flowengine.run WHERE run_id = %s RETURNING number), "
            "late AS (DELETE FROM flowengine.late USING gone WHERE late.number = gone.number), "
            "digest AS (DELETE FROM flowengine.digest USING gone WHERE digest.number = gone.number) "
            "DELETE FROM flowengine.event USING gone WHERE event.number = gone.number",
            (run_id,),
        )
        self.blobs.drop(run_id, connection)
        return True

    def decode(self, text: str) -> Event:
        """An event whose files are bound to the store."""
        with self._bind_files():
            return decode(text)

    def _bind_files(self) -> AbstractContextManager[None]:
        return nullcontext() if self._source is None else binding_files(self._source)

    def _is_free(self, run_id: str, connection: Connection) -> bool:
        """Tells whether there is the run, whose row is locked then; an error where its writer lives.

        The lock is tried as a shared one, so that who asks is not taken for an owner by another who does.
        """
        query = "SELECT owner, owner_name FROM flowengine.run WHERE run_id = %s FOR UPDATE"
        for owner, name in connection.execute(query, (run_id,)).fetchall():
            if owner is None or owner == self._database.key:
                return True
            rows = connection.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", (owner,)).fetchall()
            if rows != [(True,)]:
                raise RunBusyError(
                    f"run '{run_id}' is being written by {name}; wait until it ends, or stop that process", name
                )
            return True
        return False
