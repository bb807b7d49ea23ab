"""Reads the events of runs for those who follow them: from the process's own runs as they come, else from the store.

All who follow a run that another process drives share one look at the store. A follower takes what comes at its own
pace: what is kept for all of them is bounded (`RunFeed`), and who falls behind reads from the store again. So no
follower delays a run or another follower, and none costs memory of its own but for what it is sending.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from time import time
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from flowengine.engine import Event, JournalStore, RunFinished, TokenStreamed
from flowengine.errors import FlowEngineError, RunNotFoundError, StoreUnavailableError
from flowengine.journal import LiveFollower, only_looking
from flowengine.runtime import Followed, RunFeed
from flowengine.web.service.outcomes import ENDED, SETTLED, no_run_of_yours
from flowengine.web.service.token_order import merge_tokens

_FIRST_LOOK, _LAST_LOOK = 0.05, 0.5
"""Seconds between two looks at a run that another process drives; ever longer while nothing happens."""
_SETTLE_TIME: Final = 0.15
"""Seconds after which an event that an agent's text follows is in the store."""
_BATCH: Final = 500
"""Events of the store that a follower is given at once."""
_MAX_THREADS: Final = 4
"""Reading; each has a connection of its own to the store."""


class RunFollower:
    """Follows the runs of one store."""

    def __init__(
        self,
        store: JournalStore,
        feed_of: Callable[[str], RunFeed | None],
        drives: Callable[[str], bool],
        *,
        retells: bool = False,
    ) -> None:
        """`feed_of`: the feed of a run that this process drives, or did just now. `drives`: whether it drives a run.

        `retells`: followers who come late are told from its beginning what is being written, also by the agents of
        runs of other processes.
        """
        self._store = store
        self._feed_of = feed_of
        self._drives = drives
        self._retells = retells
        self.followers = 0
        self._threads = anyio.CapacityLimiter(_MAX_THREADS)
        self._watches: dict[str, RunFeed] = {}
        self._tasks: TaskGroup | None = None

    def begin(self, tasks: TaskGroup) -> None:
        """Looks at the store are tasks of this group from now on."""
        self._tasks = tasks

    def end(self) -> None:
        """Let go of all who follow."""
        self._tasks = None
        for run_id in list(self._watches):
            self.let_go(run_id)

    def let_go(self, run_id: str) -> None:
        """The run is driven here from now on: who followed it elsewhere follows it here."""
        watch = self._watches.pop(run_id, None)
        if watch is not None:
            watch.end()

    async def follow(self, run_id: str, after: int, *, stay: bool) -> AsyncGenerator[Sequence[Followed]]:
        """The run's events from a position on, until it has ended or waits; `stay`: also beyond what it waits for."""
        self.followers += 1
        try:
            async with aclosing(self._follow(run_id, after, stay)) as batches:
                async for each in batches:
                    yield each
        finally:
            self.followers -= 1

    async def _follow(self, run_id: str, after: int, stay: bool) -> AsyncGenerator[Sequence[Followed]]:
        has_missed = False
        while True:
            feed = self._feed_of(run_id)
            if feed is None or feed.next <= after:
                events = await self.events(run_id, max(0, after - 1))
                for each in _in_batches(events[min(after, 1) :], after):
                    yield each
                    after += len(each)
                last = events[-1] if events else None
                is_over = isinstance(last, RunFinished) and last.status in (ENDED if stay else SETTLED)
                if not self._drives(run_id) and (is_over or self._tasks is None):
                    return
                feed = self._feed_of(run_id)
            if feed is None or (feed.is_over and feed.next <= after):
                feed = self._watch(run_id, after)
            with feed.follow() as place:
                is_whole = False
                while after < place.position and not is_whole:
                    is_whole = feed.is_over
                    for each in _in_batches(await self.events(run_id, after, place.position), after):
                        yield each
                        after += len(each)
                    if after < place.position and not is_whole:  # What was told is in the store in a moment.
                        await anyio.sleep(_FIRST_LOOK)
                after = max(after, place.position)
                async with aclosing(feed.read(after, place, has_missed=has_missed)) as pieces:
                    async for each in pieces:
                        yield each
                        after = max([after, *(position + 1 for position, _ in each if position is not None)])
                has_missed = True  # If it has ended instead, texts of what follows begin anew.

    def _watch(self, run_id: str, after: int) -> RunFeed:
        """Returns a feed of the events of a run that another process or none executes, from a position on."""
        watch = self._watches.get(run_id)
        if watch is None:
            watch = self._watches[run_id] = RunFeed(after, retells=self._retells)
            if self._tasks is None:
                watch.end()
            else:
                self._tasks.start_soon(self._look, run_id, watch)
        return watch

    async def _look(self, run_id: str, watch: RunFeed) -> None:
        """Look at the run for as long as somebody follows it."""
        pause, other = _FIRST_LOOK, _OtherProcess(self._store, run_id)
        try:
            while not watch.is_over:
                events: Sequence[Event] = ()
                with suppress(StoreUnavailableError):  # Locked, or a disk that is full: it may go by.
                    if self._retells:
                        await anyio.to_thread.run_sync(other.look, limiter=self._threads)
                    events = await self.events(run_id, watch.next)
                pieces = other.merge(events, watch.next)
                for _, event in pieces:
                    if isinstance(event, TokenStreamed):
                        watch.hear_token(event)
                    else:
                        watch.hear(event)
                last = events[-1] if events else None
                if isinstance(last, RunFinished) and last.status != "running":
                    return
                pause = _FIRST_LOOK if pieces else min(pause * 1.5, _LAST_LOOK)
                await anyio.sleep(pause)
                if not watch.followers:
                    return
        except FlowEngineError:  # Removed or damaged meanwhile; the next request is told.
            return
        finally:
            if self._watches.get(run_id) is watch:
                del self._watches[run_id]
            watch.end()

    async def events(self, run_id: str, after: int = 0, until: int | None = None) -> Sequence[Event]:
        """Returns events of the store, to look at."""
        if not run_id.isprintable():  # A store may be unable to look for it: half a surrogate pair, a NUL.
            raise no_run_of_yours(run_id)

        def read() -> Sequence[Event]:
            try:
                with only_looking():
                    return self._store.events(run_id, after)
            except RunNotFoundError:  # The store's own words name runs that are others'.
                raise no_run_of_yours(run_id) from None

        events = await anyio.to_thread.run_sync(read, limiter=self._threads)
        return events if until is None else events[: until - after]

    async def is_known(self, run_id: str) -> bool:
        with suppress(RunNotFoundError):
            return bool(await self.events(run_id))
        return False


class _OtherProcess:
    """The tokens that agents write in a run of another process, as that process shows them."""

    def __init__(self, store: JournalStore, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._live = LiveFollower()
        self.tokens: list[TokenStreamed] = []

    def look(self) -> None:
        """Read what is new, on a thread."""
        self.tokens += self._live.look(self._store, self._run_id)

    def merge(self, events: Sequence[Event], first: int) -> Sequence[Followed]:
        """The events with what was written between them. Text that is so new that the event it follows may not be in
        the store yet is kept for the next time."""
        until = max([time() - _SETTLE_TIME, *(event.at for event in events)])
        ready = [token for token in self.tokens if token.at <= until]
        self.tokens = [token for token in self.tokens if token.at > until]
        return merge_tokens(events, first, ready)


def _in_batches(events: Sequence[Event], first: int) -> Iterator[Sequence[Followed]]:
    """Events with their positions, so many at once."""
    for begin in range(0, len(events), _BATCH):
        yield list(enumerate(events[begin : begin + _BATCH], first + begin))
