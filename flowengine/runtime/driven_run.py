"""Holds one run that this process drives: what its journal takes is told to those who follow it (`RunFeed`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from flowengine.core import ModelCall, RunStatus, Spending, usage_of
from flowengine.engine import Event, Journal, JournalStore, NodeRecorded, RunFinished, RunStarted, add_up_spending
from flowengine.journal import Listener, TeeJournal, tell_events
from flowengine.runtime.run import Run
from flowengine.runtime.run_feed import RunFeed


class DrivenRun:
    """One run on its way."""

    def __init__(
        self,
        run_id: str,
        flow: str,
        store: JournalStore,
        is_alone: Callable[[], bool],
        caller: str = "",
        *,
        retells: bool = False,
    ) -> None:
        """`retells`: as `RunFeed`'s."""
        self.run_id = run_id
        self.caller = caller
        """Who started it: callers take turns."""
        self.is_alone = is_alone
        """Whether no other run goes on here now."""
        self.flow = flow
        self.feed = RunFeed(retells=retells)
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
        self.spent = Spending()
        """By calls that were made here."""
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
        elif type(event) is NodeRecorded and type(event.record) is ModelCall:
            self.spent = add_up_spending([self.spent, usage_of(event.record)])

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
        self.read = self._read

    def _read(self, after: int = 0, /) -> Sequence[Event]:
        """The events; what is added from here on is counted from their end."""
        events = self._journal.read(after)
        self._driven.feed.begin_at(after + len(events))
        return events

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
