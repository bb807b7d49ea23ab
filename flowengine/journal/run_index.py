"""Finds runs a page at a time, by their rows, their words and what they come from: the part of a store for lists.

SQLite files and PostgreSQL answer from indices beside their journals. Every other store is read through
(`ScannedRuns`): the same answers, slower.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, cast

from flowengine.core import EMPTY
from flowengine.engine import Event, JournalStore, RunInfo
from flowengine.errors import JournalError
from flowengine.journal.run_digest import EMPTY_TEXTS, DigestBuilder, Phrase, RunDigest, RunNotes, RunTexts, Search
from flowengine.journal.run_lookup import RunQuery
from flowengine.journal.value_types import only_looking


class RunsAsked(NamedTuple):
    """What an index is asked: a `RunQuery` in which words are read, and marks, people and states that no record has are
    runs (see `RunLister`). Empty fields and None do not restrict it."""

    flow: str = ""
    status: str = ""
    """Of the record."""
    labels: Mapping[str, str] = EMPTY
    started_from: float | None = None
    started_before: float | None = None
    search: Search = Search()
    only: Collection[str] | None = None
    """None of the others."""
    without: Collection[str] = ()
    ended_from: float | None = None
    session: str = ""
    """As `run_digest.session_name` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlWords:
    """The conditions that each database says in its own words, and how it takes their values."""

    label: str
    session: str
    only: str
    without: str
    has_words: str
    label_name: Callable[[str], str]
    ids: Callable[[Collection[str]], Any]
    match: Callable[[Phrase], str]
    """A phrase, whose terms have letters and digits only, as the search for words takes it."""


def where_of(selection: RunsAsked, words: SqlWords, about: str) -> tuple[str, list[Any]]:
    """The condition in SQL, `?` for each value, and its values; `about`: that for a phrase in what a run is about."""
    plain = {
        "flow = ?": selection.flow or None,
        "status = ?": selection.status or None,
        "started >= ?": selection.started_from,
        "started < ?": selection.started_before,
        "finished >= ?": selection.ended_from,
    }
    tests: list[tuple[Any, ...]] = [(test, value) for test, value in plain.items() if value is not None]
    tests += [(words.label, words.label_name(name), value) for name, value in selection.labels.items()]
    if selection.session:
        tests.append((words.session, *[selection.session] * words.session.count("?")))
    if selection.only is not None:
        tests.append((words.only, words.ids(selection.only)))
    if selection.without:
        tests.append((words.without, words.ids(selection.without)))
    for phrase in selection.search.phrases:
        if phrase.terms:
            tests.append((f"({about} OR {words.has_words})", phrase.text, words.match(phrase)))
        else:
            tests.append((about, phrase.text))
    condition = " AND ".join(test for test, *_ in tests)
    return f"WHERE {condition}" if tests else "", [value for _, *values in tests for value in values]


class FoundRuns(NamedTuple):
    infos: Sequence[RunInfo]
    """Some of them, the newest first."""
    total: int


class RunLine(NamedTuple):
    """A run as lists show it."""

    info: RunInfo
    word: str
    """How it stands."""
    digest: RunDigest | None = None
    """None: it was not read, for others took all the time, or for it is damaged."""
    notes: RunNotes = RunNotes()
    excerpt: str = ""
    """The text around the first match of the search."""


class ListedRuns(NamedTuple):
    """A page of a list."""

    lines: Sequence[RunLine]
    total: int
    """Runs that are asked for, on all pages."""
    every: int
    """Runs of the store."""
    unread: int = 0
    """Older runs whose words are not known yet: a search does not find them."""


class RunIndex(Protocol):
    """The part of a store that lists ask."""

    def find(self, selection: RunsAsked, limit: int | None = None, skip: int = 0) -> FoundRuns:
        """The runs that are asked for, from the newest but `skip` on."""
        ...

    def flows(self) -> Sequence[str]:
        """The names of all flows that have runs, sorted."""
        ...

    def digests(self, run_ids: Collection[str], *, texts: bool = False) -> Mapping[str, RunDigest]:
        """The digests that are kept of these runs; `texts`: with what is searched."""
        ...

    def keep(self, digests: Mapping[str, RunDigest]) -> None:
        """Keep the digests of runs that are there, in place of older ones."""
        ...

    def missing(self, most: int) -> tuple[Sequence[str], int]:
        """Runs that have stopped and have no digest: the newest of them, at most so many, and their number."""
        ...

    def runs_from(self, run_id: str) -> Sequence[str]:
        """The runs that were forked from one, or take its results; the newest first."""
        ...

    def read_kept(self, kind: str) -> Mapping[str, Any]:
        """All that is kept beside the runs as one kind, by key."""
        ...


def run_index_of(store: JournalStore) -> RunIndex:
    """The store's own index, or one that reads all of it."""
    make_index: Any = getattr(store, "run_index", None)
    return cast("RunIndex", make_index()) if callable(make_index) else ScannedRuns(store)


def digest_of(events: Sequence[Event]) -> RunDigest:
    """The digest of a run, of which these are all events."""
    return DigestBuilder.of(events).digest(len(events))


_MAX_SCANNED: Final = 2_000
"""Digests that are made of a store without an index, for one search."""


class ScannedRuns:
    """The index of a store that has none: made from its list and its events, each time."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def find(self, selection: RunsAsked, limit: int | None = None, skip: int = 0) -> FoundRuns:
        query = RunQuery(
            selection.flow,
            selection.status,
            selection.labels,
            selection.started_from,
            selection.started_before,
            ended_from=selection.ended_from,
        )
        infos = [
            info
            for info in query.select(self._store.list())
            if (selection.only is None or info.run_id in selection.only) and info.run_id not in selection.without
        ]
        if selection.session:
            digests = self._make_digests([info.run_id for info in infos])
            infos = [
                info for info in infos if info.run_id in digests and digests[info.run_id].session == selection.session
            ]
        if selection.search.phrases:
            texts = {run_id: each.texts for run_id, each in self._make_digests([info.run_id for info in infos]).items()}
            infos = [
                info for info in infos if selection.search.has_in(_about(info), texts.get(info.run_id, RunTexts()))
            ]
        return FoundRuns(infos[skip:] if limit is None else infos[skip : skip + limit], len(infos))

    def flows(self) -> Sequence[str]:
        return sorted({info.flow for info in self._store.list()})

    def digests(self, run_ids: Collection[str], *, texts: bool = False) -> Mapping[str, RunDigest]:
        return {
            run_id: digest if texts else digest._replace(texts=EMPTY_TEXTS)
            for run_id, digest in self._make_digests(run_ids).items()
        }

    def keep(self, digests: Mapping[str, RunDigest]) -> None:
        """Nothing is kept: they are made anew."""

    def missing(self, most: int) -> tuple[Sequence[str], int]:
        return (), 0

    def runs_from(self, run_id: str) -> Sequence[str]:
        digests = self._make_digests([info.run_id for info in self._store.list()])
        return [each for each, digest in digests.items() if run_id in digest.origins]

    def read_kept(self, kind: str) -> Mapping[str, Any]:
        values = {info.run_id: self._store.recall(kind, info.run_id) for info in self._store.list()}
        return {key: value for key, value in values.items() if value is not None}

    def _make_digests(self, run_ids: Collection[str]) -> dict[str, RunDigest]:
        digests: dict[str, RunDigest] = {}
        with only_looking():
            for run_id in list(run_ids)[:_MAX_SCANNED]:
                try:
                    digests[run_id] = digest_of(self._store.events(run_id))
                except JournalError:  # A damaged run is told of on its own page.
                    continue
        return digests


def _about(info: RunInfo) -> str:
    labels = " ".join(f"{name}={value}" for name, value in info.labels.items())
    return f"{info.run_id} {info.flow} {info.path or ''} {labels}"
