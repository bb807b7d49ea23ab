"""Lists runs a page at a time, with all that a list shows of them: for commands, pages, the API and Python alike.

Digests that are missing, or older than their runs, are made from the events, up to a bound a page; those of runs that
have stopped are kept then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Final

from flowengine.core import EMPTY
from flowengine.engine import JournalStore, RunInfo
from flowengine.errors import JournalError, RunNotFoundError, StoreCorruptError, StoreVersionError
from flowengine.journal import (
    DigestBuilder,
    ListedRuns,
    RunDigest,
    RunIndex,
    RunLine,
    RunNotes,
    RunQuery,
    RunsAsked,
    Search,
    all_notes,
    may_answer,
    only_looking,
    parse_search,
    run_index_of,
    session_name,
    storable,
)
from flowengine.runtime.queue import queued_runs

_MOST_EVENTS: Final = 20_000
"""Events that are read for the digests of one page."""
_MAX_INDEXED: Final = 100
_MOST_WAITING: Final = 1_000
"""Runs of a status that are looked at for who is asked."""
_GROWING: Final = 200
"""Runs on their way whose digests are remembered."""


class RunLister:
    """Lists the runs of one store. It remembers how far it has read those that still go on."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._growing: dict[str, tuple[int, DigestBuilder]] = {}

    def page(self, query: RunQuery, limit: int | None = None, skip: int = 0, *, patience: float = 1.0) -> ListedRuns:
        """The runs that are asked for, the newest first but for `skip`.

        `patience`: seconds for which a search reads runs whose words, or sessions, are not known yet.
        """
        index, search = run_index_of(self._store), parse_search(query.text)
        unread = self._read_missing(index, patience) if search.phrases or query.session else 0
        words = _Words(self._store)
        notes = all_notes(self._store)
        selection = self._ask(index, query, search, words, notes)
        runs = index.find(selection, limit, skip)
        digests = self._digests(index, runs.infos, texts=bool(search.phrases))
        lines = [
            RunLine(
                info,
                words.of(info),
                digest := digests.get(info.run_id),
                notes.get(info.run_id, RunNotes()),
                search.excerpt(digest.texts) if digest is not None else "",
            )
            for info in runs.infos
        ]
        every = runs.total if selection == RunsAsked() else index.find(RunsAsked(), 0).total
        return ListedRuns(lines, runs.total, every, unread)

    def list_named(self, run_ids: Sequence[str]) -> Sequence[RunLine]:
        """These runs, in this order, without their digests."""
        words = _Words(self._store)
        infos = {info.run_id: info for info in run_index_of(self._store).find(RunsAsked(only=run_ids)).infos}
        return [RunLine(infos[each], words.of(infos[each])) for each in run_ids if each in infos]

    def count(self, *queries: RunQuery) -> Sequence[int]:
        """For each query, how many runs are asked for."""
        index, words = run_index_of(self._store), _Words(self._store)
        notes = all_notes(self._store) if any(query.mark for query in queries) else EMPTY
        return [
            index.find(self._ask(index, query, parse_search(query.text), words, notes), 0).total for query in queries
        ]

    def flows(self) -> Sequence[str]:
        """The names of the flows that have runs."""
        return run_index_of(self._store).flows()

    def come_from(self, run_id: str) -> Sequence[str]:
        """The runs that were forked from one or take its results, the newest first."""
        return run_index_of(self._store).runs_from(run_id)

    def _ask(
        self, index: RunIndex, query: RunQuery, search: Search, words: _Words, notes: Mapping[str, RunNotes]
    ) -> RunsAsked:
        status, only, without = words.ask(query.status)
        selection = RunsAsked(
            storable(query.flow) or "",
            status,
            query.labels,
            query.started_from,
            query.started_before,
            search,
            only,
            without,
            query.ended_from,
            session_name(query.session),
        )
        if query.mark:
            marked = {
                each
                for each, notes_of_run in notes.items()
                if any(mark.name == query.mark.lower() for mark in notes_of_run.marks)
            }
            selection = selection._replace(only=marked if selection.only is None else marked & set(selection.only))
        if query.answerer is not None:
            mine = self._waiting_for(index, query.answerer, selection)
            selection = selection._replace(only=mine if selection.only is None else mine & set(selection.only))
        return selection

    def _waiting_for(self, index: RunIndex, who: str, selection: RunsAsked) -> set[str]:
        """Of runs that wait, and of those that ask while other nodes go on; what cannot be read counts as waiting."""
        run_ids: set[str] = set()
        for status in ("waiting", "running"):
            if selection.status not in ("", status):
                continue
            infos = index.find(selection._replace(status=status, search=Search()), _MOST_WAITING).infos
            digests = self._digests(index, infos)
            for info in infos:
                digest = digests.get(info.run_id)
                if status == "waiting" if digest is None else any(may_answer(who, each) for each in digest.asks):
                    run_ids.add(info.run_id)
        return run_ids

    def _digests(self, index: RunIndex, infos: Sequence[RunInfo], *, texts: bool = False) -> Mapping[str, RunDigest]:
        digests = dict(index.digests([info.run_id for info in infos], texts=texts))
        new_digests: dict[str, RunDigest] = {}
        budget = _MOST_EVENTS
        for info in infos:
            current = digests.get(info.run_id)
            if current is not None and current.events == info.events:
                continue
            done, builder = self._growing.get(info.run_id, (0, None))
            if builder is not None and builder.started_at != info.started:  # It was removed, and this is a new one.
                done, builder = 0, None
            unread = info.events - done
            if budget < min(unread, _MOST_EVENTS):  # The first of them is read, however long it is.
                break
            digest = self._read(info.run_id, builder, done)
            if digest is None:  # It is read again each time, so it keeps no other from being read.
                continue
            budget -= unread
            digests[info.run_id] = digest
            if info.status != "running":
                new_digests[info.run_id] = digest
        self._keep(index, new_digests)
        return digests

    def _read(self, run_id: str, builder: DigestBuilder | None, done: int) -> RunDigest | None:
        """The digest of a run as it is now, from what was read of it before; None of one that cannot be read."""
        builder = builder or DigestBuilder()
        try:
            with only_looking():
                events = self._store.events(run_id, done)
        except (RunNotFoundError, StoreCorruptError, StoreVersionError):  # It is told of on the run's own page.
            return None
        for event in events:
            builder.apply(event)
        self._growing.pop(run_id, None)
        self._growing[run_id] = (done + len(events), builder)
        for old in list(islice(self._growing, max(0, len(self._growing) - _GROWING))):
            self._growing.pop(old, None)
        return builder.digest(done + len(events))

    def _read_missing(self, index: RunIndex, patience: float) -> int:
        """Read runs that have no digest, the newest first, for a while; how many are left."""
        end = monotonic() + patience
        while True:
            missing, total = index.missing(_MAX_INDEXED)
            if not missing:
                return total
            digests: dict[str, RunDigest] = {}
            for run_id in missing:
                digest = self._read(run_id, None, 0)
                if digest is not None:
                    digests[run_id] = digest
                if monotonic() > end:
                    break
            if not (digests and self._keep(index, digests)) or monotonic() > end:
                return total - len(digests)

    def _keep(self, index: RunIndex, digests: Mapping[str, RunDigest]) -> bool:
        """Tells whether they could be kept: who may only read a store makes them anew each time."""
        try:
            if digests:
                index.keep(digests)
        except JournalError:
            return False
        return True


class _Words:
    """The states of a store's runs that their records do not show."""

    def __init__(self, store: JournalStore) -> None:
        queued = queued_runs(store)
        self._queued = {run_id for run_id, is_taken in queued.items() if not is_taken}
        self._interrupted = {run_id for run_id in store.abandoned() if run_id not in queued}

    def of(self, info: RunInfo) -> str:
        if info.run_id in self._queued:
            return "queued"
        return "interrupted" if info.run_id in self._interrupted else info.status

    def ask(self, word: str) -> tuple[str, set[str] | None, set[str]]:
        """The status of the record, the runs that alone are meant, and those that are not."""
        if word == "queued":
            return "", self._queued, set()
        if word == "interrupted":
            return "", self._interrupted, set()
        return word, None, self._queued | self._interrupted if word else set()
