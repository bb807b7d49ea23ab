"""Stores vectors in SQLite and finds the nearest of them, without an extension and without numpy.

A vector belongs to a text and a model, not to a document: a text that moved, or that stands in several places, has
been paid for. It is kept for as long as a document has the text.

Few vectors are compared one by one. Of many, those are compared whose signs agree with the query's the most: an
exclusive-or of two integers tells, at a thousandth of the price. It knows rows and numbers; which model made the
vectors is not known here.
"""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from hashlib import sha256
from heapq import nlargest, nsmallest
from operator import itemgetter, mul
from typing import Final

SCHEMA: Final = """
CREATE TABLE vectors (
    hash BLOB NOT NULL,
    model TEXT NOT NULL,
    signs BLOB NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (hash, model)
) WITHOUT ROWID
"""

_MAX_EXACT: Final = 500
"""Vectors up to which all are compared, and candidates that are taken of more by their signs."""


def digest(text: str) -> bytes:
    """Returns the hash of a text."""
    return sha256(text.encode()).digest()[:16]


def missing(connection: sqlite3.Connection, model: str, most: int) -> list[tuple[bytes, str]]:
    """(digest, text) of texts that have no vector of a model yet."""
    return connection.execute(
        "SELECT hash, text FROM documents WHERE hash NOT IN (SELECT hash FROM vectors WHERE model = ?) "
        "GROUP BY hash ORDER BY min(row) LIMIT ?",
        (model, most),
    ).fetchall()


def store(connection: sqlite3.Connection, model: str, hash: bytes, vector: Sequence[float]) -> None:
    """Keep the vector of a text, unless no document has it any more. One without a direction finds nothing."""
    unit = _normalize(vector) or array("f")
    connection.execute(
        "INSERT OR REPLACE INTO vectors SELECT hash, ?, ?, ? FROM documents WHERE hash = ? LIMIT 1",
        (model, _pack_signs(unit), unit.tobytes(), hash),
    )


def forget(connection: sqlite3.Connection, hashes: Iterable[bytes]) -> None:
    """Drop the vectors of those texts that no document has any more."""
    unused = "DELETE FROM vectors WHERE hash = ? AND NOT EXISTS (SELECT 1 FROM documents WHERE hash = ?)"
    connection.executemany(unused, [(each, each) for each in hashes])


def nearest(
    connection: sqlite3.Connection,
    model: str,
    vector: Sequence[float],
    limit: int,
    condition: str,
    values: Sequence[object],
) -> list[int]:
    """Rows of the documents nearest to a vector by cosine, nearest first, of those that satisfy a condition."""
    unit = _normalize(vector)
    if unit is None:
        return []
    signs, size = _pack_signs(unit), 4 * len(unit)
    query_bits = int.from_bytes(signs, "little")
    of_model = f"vectors JOIN documents USING (hash) WHERE model = ? AND length(vector) = {size} AND {condition}"
    rows = connection.execute(f"SELECT row, signs FROM {of_model} ORDER BY row", (model, *values)).fetchall()
    if len(rows) > _MAX_EXACT:
        differing = ((int.from_bytes(each, "little") ^ query_bits).bit_count() for _, each in rows)
        rows = [row for _, row in nsmallest(_MAX_EXACT, zip(differing, rows, strict=True), key=itemgetter(0))]
    closeness = [(_cosine_of(unit, _read_vector(connection, model, row)), row) for row, _ in rows]
    return [row for _, row in nlargest(limit, closeness, key=itemgetter(0))]


def _read_vector(connection: sqlite3.Connection, model: str, row: int) -> array[float]:
    query = "SELECT vector FROM documents JOIN vectors USING (hash) WHERE row = ? AND model = ?"
    (blob,) = connection.execute(query, (row, model)).fetchone()
    return array("f", blob)


def _normalize(vector: Sequence[float]) -> array[float] | None:
    """The vector of length 1 in its direction; None where it has none."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    return array("f", [each / length for each in vector]) if math.isfinite(length) and length > 0 else None


def _pack_signs(unit: Sequence[float]) -> bytes:
    bits = sum(1 << place for place, each in enumerate(unit) if each > 0)
    return bits.to_bytes(-(-len(unit) // 8), "little")


def _cosine_of(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(mul, one, other))
