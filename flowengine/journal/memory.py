"""Keeps runs in this process, and loses them with it: what a flow runs on when no store is named.

Events are kept as the objects they are, so any value passes, also one that other stores refuse. It knows no codec and
no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from threading import RLock
from typing import Any, NoReturn, Protocol

from flowengine.core import RunStatus, find_files, hash_of
from flowengine.engine import Event, RunFinished, RunInfo, RunResumed, RunStarted
from flowengine.errors import JournalError, RunBusyError, StoreCorruptError, StoreUnavailableError
from flowengine.journal.blob_owners import beside_owner, check_blob, forget_run, missing_blob
from flowengine.journal.run_lookup import labels_of, no_such_run, resolve, storable

__all__ = ["MemoryJournal", "MemoryStore", "open_memory"]


class Append(Protocol):
    def __call__(self, event: Event, /) -> None: ...


class MemoryJournal:
    """The events of one run in a list.

    >>> from flowengine.engine.events import NodeStarted
    >>> journal = MemoryJournal()
    >>> journal.append(NodeStarted("draft", 1.5))
    >>> journal.read()
    [NodeStarted(node='draft', at=1.5)]
    """

    __slots__ = ("_events", "_released", "append")

    flush_interval: float | None = None
    append: Append
    """The list's own: it is called twice for each node."""

    def __init__(self, events: list[Event] | None = None, released: Callable[[], None] | None = None) -> None:
        self._events: list[Event] = [] if events is None else events
        self._released = released
        self.append = self._events.append

    def commit(self, alone: bool = True, /) -> None:
        """Nothing to wait for."""

    def flush(self) -> None:
        """Nothing is held back."""

    def read(self, after: int = 0, /) -> Sequence[Event]:
        return self._events[after:]

    async def close(self) -> None:
        self.append = _refuse_event
        released, self._released = self._released, None
        if released is not None:
            released()


class MemoryStore:
    """Many journals in memory.

    It keeps objects as they are, so a node may return what no file holds (a connection, an object of any class): to
    try each value would cost more than the rest of a short node. Tests of flows that will run on another store run on
    a SQLite file.
    """

    def __init__(self) -> None:
        self._runs: dict[str, list[Event]] = {}
        self._writers: set[str] = set()
        self._beside: dict[tuple[str, str], Any] = {}
        """The values stored beside the runs."""
        self._revising = RLock()
        self._blobs: dict[str, bytes] = {}
        self._owners: dict[str, set[str]] = {}
        """Owner → the files that it was given."""

    def create(self, run_id: str, /) -> MemoryJournal:
        if self._runs.get(run_id):
            raise JournalError(f"run '{run_id}' exists already in memory; resume it, or choose another id")
        return self._journal(run_id, self._runs.setdefault(run_id, []))

    def open(self, run_id: str, /) -> MemoryJournal:
        return self._journal(run_id, self._events_of(run_id))

    def events(self, run_id: str, after: int = 0, /) -> Sequence[Event]:
        return self._events_of(run_id)[after:]

    def list(self) -> Sequence[RunInfo]:
        runs = [_summarize(events) for events in reversed(self._runs.values()) if events]
        return sorted(runs, key=lambda run: run.started, reverse=True)

    def abandoned(self) -> Collection[str]:
        return [run.run_id for run in self.list() if run.status == "running" and run.run_id not in self._writers]

    def remove(self, run_id: str, /) -> None:
        self._events_of(run_id)
        if run_id in self._writers:
            raise RunBusyError(f"run '{run_id}' is being written by this process", f"process {os.getpid()}")
        del self._runs[run_id]
        forget_run(self, run_id)
        self.forget_blobs(run_id)

    def recall(self, kind: str, key: str, /) -> Any:
        return self._beside.get((kind, key))

    def revise(self, kind: str, key: str, change: Callable[[Any], Any], /) -> None:
        with self._revising:
            value = change(self.recall(kind, key))
            if value is None:
                self._beside.pop((kind, key), None)
            else:
                self._beside[kind, key] = value
            if self._blobs:
                self._owners[beside_owner(kind, key)] = {file.blob for file in find_files(value)}
                self._drop_unowned()

    def put_blob(self, owner: str, content: bytes, /) -> str:
        blob = check_blob(content)
        self._blobs[blob] = content
        self._owners.setdefault(owner, set()).add(blob)
        return blob

    def keep_blob(self, owner: str, blob: str, /) -> bool:
        if blob not in self._blobs:
            return False
        self._owners.setdefault(owner, set()).add(blob)
        return True

    def read_blob(self, blob: str, /) -> bytes:
        content = self._blobs.get(blob)
        if content is None:
            raise missing_blob("memory", blob)
        if hash_of(content) != blob:
            raise StoreCorruptError(f"memory is damaged: the content of file {blob[:12]}… is not what was written")
        return content

    def blob_size(self, blob: str, /) -> int | None:
        content = self._blobs.get(blob)
        return None if content is None else len(content)

    def forget_blobs(self, owner: str, /) -> None:
        self._owners.pop(owner, None)
        self._drop_unowned()

    def find(self, reference: str, /) -> str:
        return resolve(reference, self._list_ids(), "memory")

    def close(self) -> None:
        self._writers.clear()

    def _drop_unowned(self) -> None:
        if self._blobs:
            needed = {blob for owned in self._owners.values() for blob in owned}
            needed |= {file.blob for events in self._runs.values() for file in find_files(events)}
            for blob in set(self._blobs) - needed:
                del self._blobs[blob]

    def _journal(self, run_id: str, events: list[Event]) -> MemoryJournal:
        if run_id in self._writers:
            raise RunBusyError(f"run '{run_id}' is being written by this process", f"process {os.getpid()}")
        self._writers.add(run_id)
        return MemoryJournal(events, lambda: self._writers.discard(run_id))

    def _events_of(self, run_id: str) -> list[Event]:
        if not self._runs.get(run_id):
            raise no_such_run(run_id, self._list_ids(), "memory")
        return self._runs[run_id]

    def _list_ids(self) -> Sequence[str]:
        return [run.run_id for run in self.list()]


def _refuse_event(event: Event) -> NoReturn:
    raise StoreUnavailableError("the journal is closed")


def _summarize(events: Sequence[Event]) -> RunInfo:
    """The line of `runs list`; the last event that speaks of the whole run has the say."""
    first = events[0]
    if not isinstance(first, RunStarted):
        raise JournalError(f"the first event of a run is a RunStarted, not a {type(first).__name__}")
    status: RunStatus = "running"
    finished: float | None = None
    for event in reversed(events):
        if isinstance(event, RunFinished):
            status, finished = event.status, event.at
        if isinstance(event, (RunFinished, RunResumed)):
            break
    flow, path = storable(first.flow) or "", storable(first.path)
    return RunInfo(first.run_id, flow, status, first.at, finished, len(events), path, labels_of(first))


def open_memory(url: str, durability: object = None) -> MemoryStore:
    """The store of `memory:`."""
    if url.partition(":")[2] not in ("", "//"):
        raise StoreUnavailableError(f"'{url}' names a place in memory, and there is only one: use memory:")
    return MemoryStore()
