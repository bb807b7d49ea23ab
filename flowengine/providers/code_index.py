"""An index of source code in memory: kept up with the files, and asked for the definitions nearest to a query.

It knows texts, rows and ranks. Which files there are is known in `code_files`, what they define in `outline`.

A query is compared with the words of each definition, with names and paths alone, and with whole files; the three
rankings are fused by reciprocal rank. Weights and damping were chosen by docstrings of one half of Python's standard
library, their texts taken out of the index, and measured on the other half (`tests/bench/retrieval.py`).
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, Final, NamedTuple

from flowengine.providers.code_files import CodeTree, Listing, Stamp
from flowengine.providers.code_text import is_written, lines_of
from flowengine.providers.outline import Definition, own_lines
from flowengine.providers.outlining import outline
from flowengine.retrieval.fusion import Ranking, fused
from flowengine.retrieval.matching import TOKENIZER, indexed, match_any
from flowengine.retrieval.terms import stem

__all__ = ["CodeIndex", "Found", "Searched"]

_SECONDS: Final = 10.0
"""That one search may spend on reading files; the next one goes on from there."""
_POOL: Final = 400
"""Definitions and files that a ranking goes down to."""
_DAMPING: Final = 20
_WORDS, _NAMES, _FILES = 1.0, 0.3, 1.0
"""Weights of the rankings: by all words of a definition, by names and paths, by whole files."""
_NOISE: Final = frozenset(
    map(
        stem,
        re.findall(
            r"\w+",
            "and as assert async await break class cls const continue def del do elif else except false finally fn for "
            "from func global if import in is lambda let new nil none nonlocal not null or pass raise return self this "
            "throw true try undefined var void while with yield",
        ),
    )
)
"""Words of which programs are full: they say nothing about one of them, and most of a search's time would go there."""
_BEST: Final = 100
"""Definitions that a search gives at most."""
_DEAD: Final = 2000
"""Definitions that may be gone while their terms stay, whatever is alive."""

_SCHEMA: Final = (
    "CREATE TABLE files (row INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT UNIQUE, modified INTEGER, size INTEGER)",
    "CREATE TABLE units (row INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER, definition TEXT)",
    "CREATE INDEX units_of_file ON units (file)",
    f"""CREATE VIRTUAL TABLE unit_terms USING fts5(name, scope, path, words, content='', tokenize="{TOKENIZER}")""",
    f"""CREATE VIRTUAL TABLE file_terms USING fts5(path, words, content='', tokenize="{TOKENIZER}")""",
)
"""Without the texts, which are in the files. Rows are never used twice: the terms of what is gone find nothing."""
_BY: Final = (
    "SELECT units.row, units.file FROM ("
    "SELECT rowid AS unit, bm25(unit_terms, {}) AS rank FROM unit_terms WHERE unit_terms MATCH ? ORDER BY rank LIMIT ?"
    ") JOIN units ON units.row = unit ORDER BY rank, unit"
)
_BY_WORDS: Final = _BY.format("12, 2, 2, 1")
_BY_NAMES: Final = _BY.format("3, 2, 2, 0")
_BY_FILES: Final = (
    "SELECT files.row FROM ("
    "SELECT rowid AS file, bm25(file_terms, 10, 1) AS rank FROM file_terms WHERE file_terms MATCH ? "
    "ORDER BY rank LIMIT ?"
    ") JOIN files ON files.row = file ORDER BY rank, file"
)


class Found(NamedTuple):
    """A definition that was found."""

    path: str
    """Of its file, below the top of the tree."""
    definition: Definition
    score: float


class Searched(NamedTuple):
    """What a search found, best first, and how much of the tree it has seen."""

    found: Sequence[Found]
    indexed: int
    """Files that are in the index."""
    files: int
    """Files that there are, as far as anybody looked."""
    is_whole: bool
    """Whether all of them were searched."""


class CodeIndex:
    """Of one tree. It may be asked from several threads; they take turns."""

    def __init__(self, tree: CodeTree, seconds: float = _SECONDS) -> None:
        self._tree = tree
        self._seconds = seconds
        self._lock = Lock()
        self._connection = _made()
        self._dead = 0
        """Definitions whose terms are still in the index though they are gone."""

    def search(self, query: str) -> Searched:
        """The definitions nearest to a query, once the index has caught up with the files."""
        with self._lock:
            listing = self._tree.listing()
            held = self._catch_up(listing)
            is_whole = listing.is_whole and held == len(listing.files)
            return Searched(self._ranked(query), held, len(listing.files), is_whole)

    # --- keeping up

    def _catch_up(self, listing: Listing) -> int:
        """Take in what is new or changed and let go of what is gone, for so long; how many files are held."""
        rows: list[tuple[str, int, int]] = self._all("SELECT path, modified, size FROM files")
        known = {path: Stamp(modified, size) for path, modified, size in rows}
        self._connection.execute("BEGIN")
        for path, stamp in known.items():
            if listing.files.get(path) != stamp:
                self._forget(path)
        until = time.monotonic() + self._seconds
        for path, stamp in listing.files.items():
            if time.monotonic() > until:
                break
            if known.get(path) != stamp:
                self._take_in(path, stamp)
        self._connection.execute("COMMIT")
        if self._dead > _DEAD + self._count("units"):
            self._connection, self._dead = _made(), 0
            return self._catch_up(listing)
        return self._count("files")

    def _forget(self, path: str) -> None:
        ((file,),) = self._all("SELECT row FROM files WHERE path = ?", path)
        self._dead += self._connection.execute("DELETE FROM units WHERE file = ?", (file,)).rowcount
        self._connection.execute("DELETE FROM files WHERE row = ?", (file,))

    def _take_in(self, path: str, stamp: Stamp) -> None:
        """A file that cannot be read, or is no code, is held without definitions, so that it is left alone."""
        file = self._insert("files (path, modified, size)", path, *stamp)
        lines = lines_of(self._tree.top / path)
        if lines is None or not is_written(lines):
            return
        place = indexed(str(PurePosixPath(path).with_suffix("")))
        whole: list[str] = []
        for each in outline(path, lines):
            text = "\n".join(line for _, line in own_lines(each, lines))
            if not text.strip():
                continue
            words = _subject(text)
            scope, _, name = each.name.rpartition(".")
            unit = self._insert("units (file, definition)", file, json.dumps(each))
            self._insert(
                "unit_terms (rowid, name, scope, path, words)", unit, indexed(name), indexed(scope), place, words
            )
            whole.append(words)
        self._insert("file_terms (rowid, path, words)", file, place, " ".join(whole))

    # --- asking

    def _ranked(self, query: str) -> list[Found]:
        match = match_any(query)
        if not match:
            return []
        words = self._all(_BY_WORDS, match, _POOL)
        names = self._all(_BY_NAMES, match_any(query, ("name", "scope", "path")), _POOL // 2)
        files = fused([Ranking([file for (file,) in self._all(_BY_FILES, match, _POOL)])], _DAMPING)
        units = fused([Ranking(words, _WORDS), Ranking(names, _NAMES)], _DAMPING)
        total = _WORDS + _NAMES + _FILES
        scores = {
            unit: (score * (_WORDS + _NAMES) + files.get(file, 0.0) * _FILES) / total
            for (unit, file), score in units.items()
        }
        best = sorted(scores.items(), key=lambda pair: -pair[1])[:_BEST]
        return [self._found(unit, score) for unit, score in best]

    def _found(self, unit: int, score: float) -> Found:
        details = "SELECT path, definition FROM units JOIN files ON files.row = units.file WHERE units.row = ?"
        ((path, definition),) = self._all(details, unit)
        name, start, end, holes = json.loads(definition)
        return Found(path, Definition(name, start, end, tuple((first, last) for first, last in holes)), score)

    # --- rows

    def _all(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _count(self, table: str) -> int:
        return self._all(f"SELECT count(*) FROM {table}")[0][0]

    def _insert(self, into: str, *values: object) -> int | None:
        marks = ", ".join("?" * len(values))
        return self._connection.execute(f"INSERT INTO {into} VALUES ({marks})", values).lastrowid


def _subject(text: str) -> str:
    return " ".join(term for term in indexed(text).split() if term not in _NOISE)


def _made() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for statement in _SCHEMA:
        connection.execute(statement)
    return connection
