"""Indexes source code in memory: follows the files, and finds the definitions nearest to a query.

It knows texts, rows and ranks. Which files there are is known in `source_files`, what they define in `outlines`.

A query is compared with the words of each definition and its path, and with names letter by letter; these two rankings
are fused by reciprocal rank. What counts beside them is how near the whole file is, and how much of a name the query
says. Weights and damping were chosen by docstrings of one half of Python's standard library, their texts taken out of
the index, and measured on the other half (`tests/bench/retrieval.py`).
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, Final, NamedTuple

from flowengine.agents.context.source_code.mentions import (
    coverage,
    imported_files,
    letters,
    match_letters,
    named_files,
)
from flowengine.agents.context.source_code.outlines import Definition, outline, own_lines
from flowengine.agents.context.source_code.source_files import CodeTree, FileListing, FileStamp, is_written, lines_of
from flowengine.agents.retrieval import TOKENIZER, Ranking, fuse_rankings, match_any, stem, to_index_text

_MAX_SECONDS: Final = 10.0
"""Seconds that one search may spend on reading files; the next one goes on from there."""
_POOL_SIZE: Final = 400
"""Definitions and files that a ranking goes down to."""
_DAMPING: Final = 10
_BY_WORDS, _BY_LETTERS, _BY_FILE, _BY_COVERAGE = 2.0, 0.6, 2.0, 0.8
"""Weights of the two rankings of definitions, of their files, and of what a query says of their names."""
_STOP_TERMS: Final = frozenset(
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
_FURTHER_WEIGHT: Final = 0.2
"""The weight of the next three definitions of a file beside its best one, when files are put in order."""
_BEST: Final = (20, 40)
"""Files that a search gives at most, and definitions of each."""
_DEAD: Final = 2000
"""Definitions that may be gone while their terms stay, whatever is alive."""

_SCHEMA: Final = (
    "CREATE TABLE files (row INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT UNIQUE, modified INTEGER, size INTEGER)",
    "CREATE TABLE units (row INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER, name TEXT, definition TEXT)",
    "CREATE INDEX units_of_file ON units (file)",
    f"""CREATE VIRTUAL TABLE unit_terms USING fts5(name, scope, path, words, content='', tokenize="{TOKENIZER}")""",
    "CREATE VIRTUAL TABLE unit_letters USING fts5(name, scope, content='')",
    f"""CREATE VIRTUAL TABLE file_terms USING fts5(path, words, content='', tokenize="{TOKENIZER}")""",
)
"""Without the texts, which are in the files. Rows are never used twice: the terms of what is gone find nothing."""
_RANKED: Final = (
    "SELECT units.row FROM ("
    "SELECT rowid AS unit, bm25({0}, {1}) AS rank FROM {0} WHERE {0} MATCH ? ORDER BY rank LIMIT ?"
    ") JOIN units ON units.row = unit ORDER BY rank, unit"
)
_WORDS: Final = _RANKED.format("unit_terms", "12, 2, 2, 1")
_LETTERS: Final = _RANKED.format("unit_letters", "1, 0.5")
_FILES: Final = (
    "SELECT files.row, -rank FROM ("
    "SELECT rowid AS file, bm25(file_terms, 10, 1) AS rank FROM file_terms WHERE file_terms MATCH ? "
    "ORDER BY rank LIMIT ?"
    ") JOIN files ON files.row = file"
)
_OF_UNITS: Final = "SELECT row, file, name FROM units WHERE row IN (SELECT value FROM json_each(?))"


class FoundDefinition(NamedTuple):
    """A definition that was found."""

    path: str
    """The path of its file, below the top of the tree."""
    definition: Definition
    score: float


class Searched(NamedTuple):
    """The result of a search, and how much of the tree was searched."""

    definitions: Sequence[FoundDefinition]
    """The definitions of the best file first, and of each file the best first."""
    indexed: int
    """Files that are in the index."""
    files: int
    """Files that there are, as far as anybody looked."""
    is_whole: bool
    """Whether all of them were searched."""


class CodeIndex:
    """The index of one tree. It may be asked from several threads; they take turns."""

    def __init__(self, tree: CodeTree, seconds: float = _MAX_SECONDS) -> None:
        self._tree = tree
        self._seconds = seconds
        self._lock = Lock()
        self._connection = self._open_index()
        self._dead = 0
        """Definitions whose terms are still in the index though they are gone."""

    def search(self, query: str) -> Searched:
        """The definitions nearest to a query, once the index has caught up with the files."""
        with self._lock:
            listing = self._tree.listing()
            file_count = self._catch_up(listing)
            is_whole = listing.is_whole and file_count == len(listing.files)
            return Searched(self._named_first(query, self._rank_units(query)), file_count, len(listing.files), is_whole)

    # --- keeping up

    def _catch_up(self, listing: FileListing) -> int:
        """Take in what is new or changed and let go of what is gone, for so long; how many files are held."""
        rows: list[tuple[str, int, int]] = self._all("SELECT path, modified, size FROM files")
        stamps = {path: FileStamp(modified, size) for path, modified, size in rows}
        with self._connection:  # All of it, or nothing.
            self._connection.execute("BEGIN")
            for path, stamp in stamps.items():
                if listing.files.get(path) != stamp:
                    self._forget(path)
            until = time.monotonic() + self._seconds
            for path, stamp in listing.files.items():
                if time.monotonic() > until:
                    break
                if stamps.get(path) != stamp:
                    self._take_in(path, stamp)
        if self._dead > _DEAD + self._count("units"):
            self._connection.close()
            self._connection, self._dead = self._open_index(), 0
            return self._catch_up(listing)
        return self._count("files")

    def _forget(self, path: str) -> None:
        ((file,),) = self._all("SELECT row FROM files WHERE path = ?", path)
        self._dead += self._connection.execute("DELETE FROM units WHERE file = ?", (file,)).rowcount
        self._connection.execute("DELETE FROM files WHERE row = ?", (file,))

    def _take_in(self, path: str, stamp: FileStamp) -> None:
        """A file that cannot be read, or is no code, is held without definitions, so that it is left alone."""
        file = self._insert("files (path, modified, size)", path, *stamp)
        lines = lines_of(self._tree.top / path)
        if lines is None or not is_written(lines):
            return
        place = to_index_text(str(PurePosixPath(path).with_suffix("")))
        whole: list[str] = []
        for each in outline(path, lines):
            text = "\n".join(line for _, line in own_lines(each, lines))
            if not text.strip():
                continue
            words = _subject_of(text)
            scope, _, name = each.name.rpartition(".")
            unit = self._insert("units (file, name, definition)", file, name, json.dumps(each))
            self._insert(
                "unit_terms (rowid, name, scope, path, words)",
                unit,
                to_index_text(name),
                to_index_text(scope),
                place,
                words,
            )
            self._insert("unit_letters (rowid, name, scope)", unit, letters(name), letters(scope))
            whole.append(words)
        self._insert("file_terms (rowid, path, words)", file, place, " ".join(whole))

    # --- asking

    def _rank_units(self, query: str) -> list[FoundDefinition]:
        most, of_each = _BEST
        files = _group_by_file(self._scores(query))[:most]
        return [self._make_hit(unit, score) for units in files for unit, score in units[:of_each]]

    def _named_first(self, query: str, ranked: list[FoundDefinition]) -> list[FoundDefinition]:
        """The files that the query names by path, then what they import, then all others as they are ranked."""
        files = dict.fromkeys(path for (path,) in self._all("SELECT path FROM files ORDER BY row"))
        mentions = named_files(query, files)
        if not mentions:
            return ranked
        of_file: dict[str, list[FoundDefinition]] = {}
        for each in ranked:
            of_file.setdefault(each.path, []).append(each)
        imported = dict.fromkeys(each for path in mentions for each in self._imports(path, files))
        near = sorted(imported, key=lambda path: list(of_file).index(path) if path in of_file else len(of_file))
        order = dict.fromkeys([*mentions, *near, *of_file])
        return [each for path in order for each in of_file.get(path) or self._definitions(path)]

    def _imports(self, path: str, files: Collection[str]) -> list[str]:
        lines = lines_of(self._tree.top / path)
        return [] if lines is None else imported_files(path, "\n".join(lines), files)

    def _definitions(self, path: str) -> list[FoundDefinition]:
        """Returns the first definitions of a file that no word of the query led to, in order."""
        units = self._all(
            "SELECT row FROM units WHERE file = (SELECT row FROM files WHERE path = ?) ORDER BY row", path
        )
        return [self._make_hit(unit, 0.0) for (unit,) in units[: _BEST[1]]]

    def _scores(self, query: str) -> dict[tuple[int, int], float]:
        """(unit, file) → score."""
        match = match_any(query)
        if not match:
            return {}
        words = self._all(_WORDS, match, _POOL_SIZE)
        spelled = self._all(_LETTERS, match_letters(query), _POOL_SIZE // 2)
        units = fuse_rankings(
            [Ranking([unit for (unit,) in words], _BY_WORDS), Ranking([unit for (unit,) in spelled], _BY_LETTERS)],
            _DAMPING,
        )
        files: dict[int, float] = dict(self._all(_FILES, match, _POOL_SIZE))
        best = max(files.values(), default=0.0) or 1.0
        covered = coverage(query)
        return {
            (unit, file): (
                units[unit] * (_BY_WORDS + _BY_LETTERS)
                + files.get(file, 0.0) / best * _BY_FILE
                + covered(name) * _BY_COVERAGE
            )
            / (_BY_WORDS + _BY_LETTERS + _BY_FILE + _BY_COVERAGE)
            for unit, file, name in self._all(_OF_UNITS, json.dumps(list(units)))
        }

    def _make_hit(self, unit: int, score: float) -> FoundDefinition:
        details = "SELECT path, definition FROM units JOIN files ON files.row = units.file WHERE units.row = ?"
        ((path, definition),) = self._all(details, unit)
        name, start, end, holes = json.loads(definition)
        return FoundDefinition(path, Definition(name, start, end, tuple((first, last) for first, last in holes)), score)

    # --- rows

    def _open_index(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in _SCHEMA:
            connection.execute(statement)
        weakref.finalize(self, connection.close)
        return connection

    def _all(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _count(self, table: str) -> int:
        return self._all(f"SELECT count(*) FROM {table}")[0][0]

    def _insert(self, into: str, *values: object) -> int | None:
        marks = ", ".join("?" * len(values))
        return self._connection.execute(f"INSERT INTO {into} VALUES ({marks})", values).lastrowid


def _group_by_file(scores: Mapping[tuple[int, int], float]) -> list[list[tuple[int, float]]]:
    """(unit, score) of each file, the best first; the files by their best units."""
    units_by_file: dict[int, list[tuple[int, float]]] = {}
    for (unit, file), score in sorted(scores.items(), key=lambda pair: -pair[1]):
        units_by_file.setdefault(file, []).append((unit, score))

    def standing(units: list[tuple[int, float]]) -> float:
        return units[0][1] + _FURTHER_WEIGHT * sum(score for _, score in units[1:4])

    return sorted(units_by_file.values(), key=standing, reverse=True)


def _subject_of(text: str) -> str:
    return " ".join(term for term in to_index_text(text).split() if term not in _STOP_TERMS)
