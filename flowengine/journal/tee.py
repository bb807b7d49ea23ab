"""A store whose new runs are also told, event by event, to one listener: how a live run is followed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from flowengine.context import NodeResult
from flowengine.engine.events import Event, NodeFinished
from flowengine.engine.ports import Journal, JournalStore, RunInfo
from flowengine.run_scope import Fence
from flowengine.values import copy_mutable

__all__ = ["TeeStore"]

Listener = Callable[[Event], None]
"""Called with each event once the journal has taken it; must not block and must not raise."""


class TeeStore:
    """Wraps a store; reading goes straight through."""

    def __init__(self, store: JournalStore, listener: Listener) -> None:
        self._store = store
        self._listener = listener

    def create(self, run_id: str, /) -> Journal:
        return _teed(self._store.create(run_id), self._listener)

    def open(self, run_id: str, /) -> Journal:
        return _teed(self._store.open(run_id), self._listener)

    def events(self, run_id: str, after: int = 0, /) -> Sequence[Event]:
        return self._store.events(run_id, after)

    def list(self) -> Sequence[RunInfo]:
        return self._store.list()

    def abandoned(self) -> Collection[str]:
        return self._store.abandoned()

    def remove(self, run_id: str, /) -> None:
        self._store.remove(run_id)

    def recall(self, kind: str, key: str, /) -> Any:
        return self._store.recall(kind, key)

    def revise(self, kind: str, key: str, change: Callable[[Any], Any], /) -> None:
        self._store.revise(kind, key, change)

    def find(self, reference: str, /) -> str:
        return self._store.find(reference)

    def close(self) -> None:
        self._store.close()


def _teed(journal: Journal, listener: Listener) -> Journal:
    teed = _TeeJournal(journal, listener)
    fence: Fence | None = getattr(journal, "fence", None)
    if fence is not None:
        teed.fence = fence
    return teed


class _TeeJournal:
    fence: Fence
    """There where the journal inside has one."""

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal = journal
        self._listener = listener

    @property
    def flush_interval(self) -> float | None:
        return self._journal.flush_interval

    def append(self, event: Event, /) -> None:
        self._journal.append(event)
        if type(event) is NodeFinished:  # What the listener does to a value reaches no later node.
            event = event._replace(result=NodeResult(*map(copy_mutable, event.result)))
        self._listener(event)

    def commit(self, alone: bool = True, /) -> Awaitable[None] | None:
        return self._journal.commit(alone)

    def flush(self) -> None:
        self._journal.flush()

    def read(self, after: int = 0, /) -> Sequence[Event]:
        return self._journal.read(after)

    async def close(self) -> None:
        await self._journal.close()
