"""Lists and searches the runs of the SQLite store: their digests, and the words of their texts (FTS5).

    digest       one row a run that has stopped: its sum as JSON, and the texts that are searched
    digest_text  the words of these texts, by the run's number
    origin       the runs that it comes from
    session      the session that it belongs to, from its first event on

A digest is written in the transaction of the run's end, which costs it about 10 µs. Its words go into their index when
somebody searches: many at once take 5 µs each, and 40 in a transaction of their own (measured). Where a digest is
missing, as in a store of an earlier version or after a crash, readers make it from the events.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

from flowengine.engine import RunInfo
from flowengine.journal.codec import decode_value
from flowengine.journal.run_digest import EMPTY_TEXTS, RunDigest, terms_of
from flowengine.journal.run_index import FoundRuns, RunsAsked, SqlWords, where_of
from flowengine.journal.sqlite.database import SqliteQueries, checksum_of_texts

_Statement: TypeAlias = tuple[str, Sequence[Any]]

_DIGEST: Final = "INSERT OR REPLACE INTO digest VALUES (?, ?, ?, ?, ?, 1, ?)"
_NEW: Final = "SELECT number, inputs, outputs, errors FROM digest WHERE is_new LIMIT ?"
_MAX_ROWS: Final = 1000
_QUICK: Final = 0.05
_SWEEP_PAUSE: Final = 20
"""The pause after a slow sweep, as a multiple of its duration."""
_TEXT: Final = "INSERT OR REPLACE INTO digest_text (rowid, inputs, outputs, errors) VALUES (?, ?, ?, ?)"
_SESSION: Final = "INSERT OR REPLACE INTO session VALUES (?, ?)"
_ORIGIN: Final = "INSERT OR REPLACE INTO origin VALUES (?, ?)"
_ABOUT: Final = (
    "instr(in_lower_case(run_id || ' ' || flow || ' ' || coalesce(path, '') || ' ' || "
    "replace(replace(coalesce(labels, ''), '\": \"', '='), '\"', '')), ?)"
)


def digest_changes(number: int, digest: RunDigest) -> Iterator[_Statement]:
    """Yields the statements that write a digest; each touches one row."""
    body = digest.encode()
    yield _DIGEST, (number, body, *digest.texts, checksum_of_texts(number, body, *digest.texts))
    for origin in digest.origins:
        yield _ORIGIN, (origin, number)
    if digest.session:
        yield session_change(number, digest.session)


def session_change(number: int, session: str) -> _Statement:
    """Returns the statement that writes a run's session."""
    return _SESSION, (number, session)


class SqliteIndex(SqliteQueries):
    """The index over one connection."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, read: Callable[[str, Sequence[Any]], list[RunInfo]]
    ) -> None:
        """`read`: the rows of runs, given what stands behind FROM."""
        super().__init__(path, connection)
        self._read = read
        self._has_removed_words = False
        self._next_sweep = 0.0

    def find(self, selection: RunsAsked, limit: int | None = None, skip: int = 0) -> FoundRuns:
        self.sweep(is_due=False)
        if selection.search.phrases:
            self.connection.create_function("in_lower_case", 1, _in_lower_case, deterministic=True)
        if any(phrase.terms for phrase in selection.search.phrases):
            self._take_words()
        where, values = where_of(selection, _WORDS, _ABOUT)
        ((total,),) = self._execute(f"SELECT count(*) FROM run {where}", *values)
        if limit == 0:
            return FoundRuns([], total)
        # In two steps: else the length of each run that is sorted would be read, and not only of those of the page.
        newest = "ORDER BY started DESC, number DESC"
        tail = f"run WHERE number IN (SELECT number FROM run {where} {newest} LIMIT ? OFFSET ?) {newest}"
        return FoundRuns(
            self._read(tail, [*values, total if limit is None else min(limit, total), min(skip, total)]), total
        )

    def flows(self) -> Sequence[str]:
        return sorted(str(flow) for (flow,) in self._execute("SELECT DISTINCT flow FROM run"))

    def digests(self, run_ids: Collection[str], *, texts: bool = False) -> Mapping[str, RunDigest]:
        query = (
            "SELECT run_id, digest.checksum, number, body, inputs, outputs, errors FROM run JOIN digest USING (number) "
            "WHERE run_id IN (SELECT value FROM json_each(?))"
        )
        digests: dict[str, RunDigest] = {}
        for run_id, checksum, *columns in self._execute(query, json.dumps(list(run_ids))):
            digest = RunDigest.decode(columns[1], columns[2:] if texts else EMPTY_TEXTS)
            if digest is not None and checksum == checksum_of_texts(*columns):  # What is damaged is made anew.
                digests[run_id] = digest
        return digests

    def keep(self, digests: Mapping[str, RunDigest]) -> None:
        query = "SELECT run_id, number FROM run WHERE run_id IN (SELECT value FROM json_each(?))"
        with self._transaction():
            for run_id, number in self._execute(query, json.dumps(list(digests))):
                for statement, values in digest_changes(number, digests[run_id]):
                    self._execute(statement, *values)

    def missing(self, most: int) -> tuple[Sequence[str], int]:
        where = "FROM run WHERE status <> 'running' AND NOT EXISTS (SELECT 1 FROM digest WHERE number = run.number)"
        ((total,),) = self._execute(f"SELECT count(*) {where}")
        rows = self._execute(f"SELECT run_id {where} ORDER BY started DESC LIMIT ?", most) if total else []
        return [run_id for (run_id,) in rows], total

    def runs_from(self, run_id: str) -> Sequence[str]:
        query = "SELECT run.run_id FROM origin JOIN run USING (number) WHERE origin.run_id = ? ORDER BY number DESC"
        return [each for (each,) in self._execute(query, run_id)]

    def read_kept(self, kind: str) -> Mapping[str, Any]:
        if not self._execute("SELECT 1 FROM sqlite_schema WHERE name = 'beside'"):
            return {}
        query = "SELECT CAST(key AS TEXT), CAST(value AS TEXT) FROM beside WHERE kind = ?"
        return {key: decode_value(value) for key, value in self._execute(query, kind)}

    def drop(self, number: int) -> None:
        """Forget what is kept of a run, inside the caller's transaction."""
        self._execute("DELETE FROM digest WHERE number = ?", number)
        self._execute("DELETE FROM digest_text WHERE rowid = ?", number)
        self._execute("DELETE FROM origin WHERE number = ?", number)
        self._execute("DELETE FROM session WHERE number = ?", number)
        self._has_removed_words = True

    def sweep(self, *, is_due: bool = True) -> None:
        """Write the index of words anew without those of removed runs, which FTS5 only marks as such, and take what was
        there out of the log. Unless it is due, a large index is not written for each of many removals.
        """
        start = monotonic()
        if not self._has_removed_words or not (is_due or start >= self._next_sweep):
            return
        with self._transaction():
            self._execute("INSERT INTO digest_text (digest_text) VALUES ('optimize')")
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._has_removed_words = False
        took = monotonic() - start
        self._next_sweep = 0.0 if took < _QUICK else start + _SWEEP_PAUSE * took

    def _take_words(self) -> None:
        """Bring the index of words up to date."""
        while self._execute(_NEW, 1):
            with self._transaction():
                rows = self._execute(_NEW, _MAX_ROWS)
                for number, *texts in rows:
                    self._execute(_TEXT, number, *(_words(text) for text in texts))
                numbers = json.dumps([number for number, *_ in rows])
                self._execute("UPDATE digest SET is_new = 0 WHERE number IN (SELECT value FROM json_each(?))", numbers)


def _in_lower_case(text: object) -> str:
    """Lowers letters as Python does; SQLite's own function knows ASCII alone."""
    return str(text).lower()


def _words(text: str) -> str:
    """The text so that FTS5 finds the same words in it as we do; in ASCII it does by itself."""
    return text if text.isascii() else " ".join(terms_of(text))


_WORDS: Final[SqlWords] = SqlWords(
    label="json_extract(labels, ?) = ?",
    session="number IN (SELECT number FROM session WHERE name = ?)",
    only="run_id IN (SELECT value FROM json_each(?))",
    without="run_id NOT IN (SELECT value FROM json_each(?))",
    has_words="number IN (SELECT rowid FROM digest_text WHERE digest_text MATCH ?)",
    label_name=lambda name: f'$."{name}"',
    ids=lambda run_ids: json.dumps(list(run_ids)),
    match=lambda phrase: f'"{" ".join(phrase.terms)}" *',
)
