"""Holds one run that this process drives: what its journal takes, and what of it is told to those who follow it.

What a run tells while it goes on is one list (`RunFeed`), that each follower reads at its own pace: a slow one has no
buffer of its own, costs nothing and delays no one. The list is bounded: a follower that is too slow for it reads what
it has missed in the store. Nothing is kept without a follower, unless somebody is about to.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

import anyio

from flowengine.core.context import NodeResult, RunStatus
from flowengine.core.values import copy_mutable
from flowengine.engine.events import Event, NodeFinished, RunFinished, RunStarted, TokenStreamed
from flowengine.engine.ports import Journal, JournalStore
from flowengine.journal.stores import Listener, TeeJournal, tell_events
from flowengine.runners.run import Run

__all__ = ["DrivenRun", "Followed", "RunFeed"]

Followed: TypeAlias = "tuple[int | None, Event | TokenStreamed]"
"""Position in the journal and event; what no journal has is without a position."""


_MOST: Final = 4_096
"""Events and pieces of text that are kept of a run for its followers."""


class RunFeed:
    """The events of one run from the journal's position `next` until `end`. One event loop uses it."""

    def __init__(self, position: int = 0) -> None:
        self.is_kept = False
        """Whether all is kept from the beginning on, for somebody who is about to follow."""
        self.next = position
        """The position behind the last event that was heard."""
        self.is_over = False
        self.followers = 0
        self._items: list[Followed] = []
        self._dropped = 0
        """How many items came before those that are kept."""
        self._first = position
        """The position of the first event that is kept, or will be."""
        self._bell: anyio.Event | None = None

    def hear(self, event: Event) -> None:
        """The journal has taken an event."""
        if self.followers or self.is_kept:
            if type(event) is NodeFinished:  # What a follower does to it reaches no later node.
                event = event._replace(result=NodeResult(*map(copy_mutable, event.result)))
            self._keep((self.next, event))
        self.next += 1

    def hear_token(self, token: TokenStreamed) -> None:
        """An agent has written a piece of text."""
        if token.text and (self.followers or self.is_kept):
            self._keep((None, token))

    def end(self) -> None:
        """No more will come from here; followers that wait are told."""
        self.is_over = True
        self._ring()

    @contextmanager
    def follow(self) -> Generator[int]:
        """From now on what comes is kept, for as long as somebody follows; the position it is kept from."""
        if not self.followers and not self.is_kept:
            self._drop(len(self._items))
        self.followers += 1
        try:
            yield self._first
        finally:
            self.followers -= 1
            if not self.followers and not self.is_kept:
                self._drop(len(self._items))

    async def read(self, after: int, *, has_missed: bool = False) -> AsyncGenerator[Followed]:
        """Yields the events from a position until the end, or until what comes next is kept no more, because the
        follower has fallen behind; only inside `follow`.

        `has_missed`: the follower fell behind before; texts that have begun since are told, and no ends of others.
        """
        if after < self._first:
            return
        index = max((at + 1 for at, (seq, _) in enumerate(self._items) if seq is not None and seq < after), default=0)
        index += self._dropped
        begun: set[str] = set()
        while True:
            while index < self._dropped + len(self._items):
                if index < self._dropped:
                    return
                position, event = self._items[index - self._dropped]
                index += 1
                if type(event) is TokenStreamed and has_missed:
                    if event.begins:
                        begun.add(event.node)
                    elif event.node not in begun:
                        continue
                if position is None or position >= after:
                    yield position, event
            if self.is_over:
                return
            if self._bell is None:
                self._bell = anyio.Event()
            await self._bell.wait()

    def _keep(self, item: Followed) -> None:
        if len(self._items) >= _MOST:
            self._drop(_MOST // 2)
        self._items.append(item)
        self._ring()

    def _drop(self, count: int) -> None:
        del self._items[:count]
        self._dropped += count
        self._first = next((position for position, _ in self._items if position is not None), self.next)

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.set()
            self._bell = None


class DrivenRun:
    """One run on its way."""

    def __init__(self, run_id: str, flow: str, store: JournalStore, is_alone: Callable[[], bool]) -> None:
        self.run_id = run_id
        self.is_alone = is_alone
        """Whether no other run goes on here now."""
        self.flow = flow
        self.feed = RunFeed()
        self.store = tell_events(store, self.hear, partial(_ToldJournal, self))
        """Its own view of the store: whatever writes the run through it is heard by the followers."""
        self.scope = anyio.CancelScope()
        self.begun = anyio.Event()
        """The store has what it began or went on with, or it is over."""
        self.is_recorded = False
        """Whether the store has it: only then can what was begun be found."""
        self.ended = anyio.Event()
        self.started: RunStarted | None = None
        """There where it began here."""
        self.finished: RunFinished | None = None
        self.run: Run | None = None
        self.failure: Exception | None = None
        self.is_put_back = False
        """Whether another process is to go on with it, where it is cancelled."""
        self.journal: Journal | None = None
        """There where the run was created before it is its turn."""

    def hear(self, event: Event) -> None:
        """Its journal has taken an event."""
        self.feed.hear(event)
        if type(event) is RunStarted:
            self.started = event
        elif type(event) is RunFinished:
            self.finished = event

    def record(self) -> None:
        """The store has it from here on."""
        self.is_recorded = True
        self.begun.set()

    @property
    def status(self) -> RunStatus | None:
        """The run's status when it stops here, `running` if it is put back; None if its record does not say."""
        if self.run is not None:
            return self.run.status
        return None if self.finished is None else self.finished.status


class _ToldJournal(TeeJournal):
    """A journal that tells the followers what it takes, and when the store has the first of it."""

    def __init__(self, driven: DrivenRun, journal: Journal, listener: Listener) -> None:
        super().__init__(journal, listener)
        self._driven = driven

    def commit(self, alone: bool = True, /) -> Awaitable[None] | None:
        """One commit is for all runs of this process that have something to write now."""
        waiting = self._journal.commit(alone and self._driven.is_alone())
        if self._driven.is_recorded:
            return waiting
        if waiting is not None:
            return self._record(waiting)
        self._driven.record()
        return None

    async def _record(self, waiting: Awaitable[None]) -> None:
        await waiting
        self._driven.record()

    def append(self, event: Event, /) -> None:
        if type(event) is RunFinished and event.status == "cancelled" and self._driven.is_put_back:
            event = event._replace(status="running")
        self._journal.append(event)
        self._listener(event)
