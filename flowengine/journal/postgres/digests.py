"""Lists and searches the runs of the PostgreSQL store: their digests, and the words of their texts (a tsvector).

    digest   one row a run that has stopped: its sum as JSON, its texts, their words, and the runs that it comes from

A digest is written with the run's end, in the same statement. Where one is missing, as in a store of an earlier
version, readers make it from the events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from flowengine.engine import RunInfo
from flowengine.journal.codec import decode_value
from flowengine.journal.postgres.connection import Connection, Database
from flowengine.journal.run_digest import EMPTY_TEXTS, RunDigest, terms_of
from flowengine.journal.run_index import FoundRuns, RunsAsked, SqlWords, where_of

_LAST_POSITION: Final = 16_383  # Of a word in a tsvector.

PUT_DIGESTS: Final = """
    INSERT INTO flowengine.digest AS held (number, body, inputs, outputs, errors, words, origins)
    SELECT number, body, inputs, outputs, errors, words::tsvector, string_to_array(nullif(origins, ''), E'\\n')
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
        AS new (number, body, inputs, outputs, errors, words, origins)
    {only}
    ON CONFLICT (number) DO UPDATE SET body = excluded.body, inputs = excluded.inputs, outputs = excluded.outputs,
        errors = excluded.errors, words = excluded.words, origins = excluded.origins
"""
_ABOUT: Final = (
    "position(? IN lower(concat_ws(' ', run_id, flow, path, "
    "replace(replace(labels::text, '\": \"', '='), '\"', '')) COLLATE \"{collation}\")) > 0"
)
_COLLATIONS: Final = ["und-x-icu", "pg_c_utf8", "C.utf8", "default"]
"""Those that may know the upper and lower case of all letters, whatever the database's own; the best first."""


def digest_row(number: int, digest: RunDigest) -> tuple[Any, ...]:
    """The values of `PUT_DIGESTS` for a run."""
    return number, digest.encode(), *digest.texts, _vector_of(digest.texts), "\n".join(digest.origins)


def _vector_of(texts: Iterable[str]) -> str:
    """The words with their places, as PostgreSQL reads a tsvector: they have letters and digits only.

    >>> _vector_of(["Refund it", "now"])
    "'refund':1 'it':2 'now':4"
    """
    at, lexemes = 0, list[str]()
    for text in texts:
        for term in terms_of(text):
            at += 1
            lexemes.append(f"'{term}':{at}")
        at += 1  # No phrase goes over the end of a text.
        if at > _LAST_POSITION:
            break
    return " ".join(lexemes)


class PostgresIndex:
    """The index over one connection."""

    def __init__(self, database: Database, read: Callable[[str, Sequence[Any]], list[RunInfo]]) -> None:
        """`read`: the rows of runs, given what stands behind FROM."""
        self._database = database
        self._query = database.query
        self._read = read
        self._about: str | None = None

    def find(self, selection: RunsAsked, limit: int | None = None, skip: int = 0) -> FoundRuns:
        where, values = where_of(selection, _WORDS, self._find_about() if selection.search.phrases else "")
        where = where.replace("?", "%s")
        ((total,),) = self._query(f"SELECT count(*) FROM flowengine.run {where}", *values)
        if limit == 0:
            return FoundRuns([], total)
        tail = f"flowengine.run {where} ORDER BY started DESC, number DESC LIMIT %s OFFSET %s"
        return FoundRuns(
            self._read(tail, [*values, total if limit is None else min(limit, total), min(skip, total)]), total
        )

    def _find_about(self) -> str:
        """The condition for what a run is about, with a collation that this server has."""
        if self._about is None:
            query = (
                "SELECT collname FROM pg_collation WHERE collnamespace = 'pg_catalog'::regnamespace "
                "AND collencoding IN (-1, pg_char_to_encoding('UTF8')) AND collname = ANY(%s::name[]) "
                "ORDER BY array_position(%s::name[], collname) LIMIT 1"
            )
            ((collation,),) = self._query(query, _COLLATIONS, _COLLATIONS)
            self._about = _ABOUT.format(collation=collation)
        return self._about

    def flows(self) -> Sequence[str]:
        return sorted(flow for (flow,) in self._query("SELECT DISTINCT flow FROM flowengine.run"))

    def digests(self, run_ids: Collection[str], *, texts: bool = False) -> Mapping[str, RunDigest]:
        query = (
            f"SELECT run_id, body{', inputs, outputs, errors' if texts else ''} "
            "FROM flowengine.run JOIN flowengine.digest USING (number) WHERE run_id = ANY(%s)"
        )
        rows = self._query(query, list(run_ids))
        by_run = {run_id: RunDigest.decode(body, texts_of_run or EMPTY_TEXTS) for run_id, body, *texts_of_run in rows}
        return {run_id: digest for run_id, digest in by_run.items() if digest is not None}

    def keep(self, digests: Mapping[str, RunDigest]) -> None:
        self._database.transact(partial(_keep, digests))

    def missing(self, most: int) -> tuple[Sequence[str], int]:
        where = (
            "FROM flowengine.run WHERE status <> 'running' "
            "AND NOT EXISTS (SELECT FROM flowengine.digest WHERE digest.number = run.number)"
        )
        ((total,),) = self._query(f"SELECT count(*) {where}")
        rows = self._query(f"SELECT run_id {where} ORDER BY started DESC LIMIT %s", most) if total else ()
        return [run_id for (run_id,) in rows], total

    def runs_from(self, run_id: str) -> Sequence[str]:
        query = (
            "SELECT run_id FROM flowengine.run JOIN flowengine.digest USING (number) "
            "WHERE origins @> ARRAY[%s]::text[] ORDER BY number DESC"
        )
        return [each for (each,) in self._query(query, run_id)]

    def read_kept(self, kind: str) -> Mapping[str, Any]:
        rows = self._query("SELECT key, value FROM flowengine.beside WHERE kind = %s", kind)
        return {key: decode_value(value) for key, value in rows}


def _keep(digests: Mapping[str, RunDigest], connection: Connection) -> None:
    query = "SELECT run_id, number FROM flowengine.run WHERE run_id = ANY(%s) FOR SHARE"
    rows = connection.execute(query, (list(digests),)).fetchall()
    if rows:
        columns = list(zip(*(digest_row(number, digests[run_id]) for run_id, number in rows), strict=True))
        connection.execute(PUT_DIGESTS.format(only="").encode(), [list(column) for column in columns])


_WORDS: Final[SqlWords] = SqlWords(
    label="labels ->> ? = ?",
    session=(
        "number IN (SELECT number FROM flowengine.run WHERE session = ? UNION SELECT number FROM flowengine.digest "
        "WHERE body::json ->> 8 <> '' AND body::json ->> 8 = ?)"
    ),
    only="run_id = ANY(?)",
    without="run_id <> ALL(?)",
    has_words="number IN (SELECT number FROM flowengine.digest WHERE words @@ ?::tsquery)",
    label_name=str,
    ids=list,
    match=lambda phrase: " <-> ".join([*(f"'{term}'" for term in phrase.terms[:-1]), f"'{phrase.terms[-1]}':*"]),
)
