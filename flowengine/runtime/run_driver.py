"""Drives runs in this process: so many at once, the next ones in the order in which they came, and no more than that.

A run that waits for its turn is in the store already, so it is lost no more than one that goes on. At the end what is
on its way is let end for a while; what is left is put back, and called running for the next process to go on with.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from time import monotonic
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from flowengine.engine import JournalStore
from flowengine.errors import FlowEngineError, RunBusyError, RunError
from flowengine.runtime.driven_run import DrivenRun
from flowengine.runtime.run import Run
from flowengine.runtime.run_feed import RunFeed

_FIRST_GUESS: Final = 2.0
"""Seconds that a run takes, before any has ended."""
_LONGEST_WAIT: Final = 60
_LINGER: Final = 5.0
"""Seconds for which what was told of a run is kept that was begun for somebody to follow."""


class OverloadedError(FlowEngineError):
    """Too many runs wait for their turn already; `retry_after`: seconds until there may be room."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoppingError(FlowEngineError):
    """The server stops, and takes nothing more; what it has taken goes on at its next start."""

    retry_after: Final = 5


class Admission:
    """The maximum number of running and of waiting runs."""

    def __init__(self, at_once: float = 16, waiting: int = 1_000) -> None:
        self.at_once = at_once
        self.waiting = waiting


Work: TypeAlias = Callable[[DrivenRun], Awaitable[Run]]
"""Goes on with a run, in its store and with its journal, if it has one already; tells its feed what agents write."""


class RunDriver:
    """The runs that this process drives."""

    def __init__(
        self,
        store: JournalStore,
        admission: Admission,
        log: Callable[[str, Exception], object],
        *,
        retells: bool = False,
    ) -> None:
        """`log` hears what goes wrong with a run beyond what its record tells. `retells`: as `RunFeed`'s."""
        self._store = store
        self._admission = admission
        self._log = log
        self.retells = retells
        self._tasks: TaskGroup | None = None
        self._driven: dict[str, DrivenRun] = {}
        self._lingering: dict[str, RunFeed] = {}
        self._turn: deque[tuple[DrivenRun, Work]] = deque()
        self.running = 0
        self._seconds = _FIRST_GUESS
        """Moving average of a run's duration, for `retry_after`."""
        self._idle = anyio.Event()
        self._listeners: list[Callable[[DrivenRun], None]] = []

    def tell(self, listener: Callable[[DrivenRun], None]) -> None:
        """`listener` hears of each run that stops here, also of one that is cancelled or put back."""
        self._listeners.append(listener)

    def begin(self, tasks: TaskGroup) -> None:
        """Runs are tasks of this group from now on."""
        self._tasks = tasks

    @property
    def waiting(self) -> int:
        return len(self._turn)

    @property
    def has_free_slot(self) -> bool:
        return self.running < self._admission.at_once and not self._turn

    @property
    def is_stopping(self) -> bool:
        return self._tasks is None

    def find(self, run_id: str) -> DrivenRun | None:
        return self._driven.get(run_id)

    def drives(self, run_id: str) -> bool:
        return run_id in self._driven

    async def wait(self, run_id: str) -> None:
        """Until a run of this process has ended."""
        driven = self._driven.get(run_id)
        if driven is not None:
            await driven.ended.wait()

    def feed_of(self, run_id: str) -> RunFeed | None:
        """Returns the feed of a run that is or was just executed here for a follower."""
        driven = self._driven.get(run_id)
        return self._lingering.get(run_id) if driven is None else driven.feed

    def admit(self, caller: str = "") -> None:
        """Raise where no new run is taken: too many wait (`OverloadedError`), or the server stops."""
        if self._tasks is None:
            raise StoppingError("the server stops and takes nothing more: ask again in some seconds")
        own = sum(each.caller == caller for each, _ in self._turn) if caller else 0
        is_full = len(self._turn) >= self._admission.waiting or own >= max(1, self._admission.waiting // 2)
        if not self.has_free_slot and is_full:
            turns = (len(self._turn) + 1) / self._admission.at_once
            wait = min(_LONGEST_WAIT, max(1, ceil(turns * self._seconds)))
            raise OverloadedError(
                f"{self.running} runs go on and {len(self._turn)} wait for their turn: ask again in {wait} s", wait
            )

    def reserve(self, run_id: str, flow: str, caller: str = "") -> DrivenRun:
        """Takes a run, which has to be launched or released; `RunBusyError` where it is at work here already."""
        if run_id in self._driven:
            raise RunBusyError(f"run '{run_id}' is being written by this server", f"process {os.getpid()}")
        driven = self._driven[run_id] = DrivenRun(
            run_id, flow, self._store, lambda: self.running < 2, caller, retells=self.retells
        )
        return driven

    def release(self, driven: DrivenRun) -> None:
        """Let go of a run that was not launched."""
        del self._driven[driven.run_id]
        driven.feed.end()
        driven.begun.set()
        driven.ended.set()

    async def launch(self, driven: DrivenRun, work: Work) -> None:
        """Go on with the run as soon as it is its turn; at the next start where the server has stopped meanwhile."""
        if self._tasks is None:
            await self._put_aside(driven)
        elif self.has_free_slot:
            self._start(self._tasks, driven, work)
        else:
            self._turn.append((driven, work))

    async def cancel(self, run_id: str) -> bool:
        """Stop a run of this process and wait for its end; False: it is none, or it waits for its turn."""
        driven = self._driven.get(run_id)
        if driven is None or any(each is driven for each, _ in self._turn):
            return False
        driven.scope.cancel()
        await driven.ended.wait()
        return True

    def take_back(self, run_id: str) -> DrivenRun | None:
        """A run that waits for its turn, taken out of the row; the caller closes its journal and releases it."""
        for each in self._turn:
            if each[0].run_id == run_id:
                self._turn.remove(each)
                return each[0]
        return None

    async def end(self, grace: float = 0, *, puts_back: bool = True) -> Sequence[str]:
        """Take nothing more, and let end what is on its way; the runs that are put back after so many seconds, or are
        cancelled where none is put back."""
        self._tasks = None
        turns, self._turn = list(self._turn), deque()
        for driven, _ in turns:
            await self._put_aside(driven)
        if self.running and grace:
            with anyio.move_on_after(grace):
                await self._idle.wait()
        rest = list(self._driven.values())
        for driven in rest:
            driven.is_put_back = puts_back
            driven.scope.cancel()
        for driven in rest:
            await driven.ended.wait()
        return [driven.run_id for driven in (*(each for each, _ in turns), *rest)]

    async def _put_aside(self, driven: DrivenRun) -> None:
        """It has not begun: its journal is let go of as it is."""
        driven.failure = StoppingError(f"the server stops: run '{driven.run_id}' goes on at its next start")
        if driven.journal is not None:
            await driven.journal.close()
        self.release(driven)

    def _start(self, tasks: TaskGroup, driven: DrivenRun, work: Work) -> None:
        self.running += 1
        if self._idle.is_set():
            self._idle = anyio.Event()
        tasks.start_soon(self._drive, driven, work)

    async def _drive(self, driven: DrivenRun, work: Work) -> None:
        start = monotonic()
        try:
            with driven.scope:
                driven.run = await work(driven)
        except (Exception, SystemExit, BaseExceptionGroup) as error:  # A node may call sys.exit(): that ends no server.
            driven.failure = error if isinstance(error, Exception) else RunError(repr(error))
            if driven.begun.is_set():  # Else the caller that wanted to begin it is told.
                self._log(f"run {driven.run_id}", driven.failure)
        finally:
            self._seconds += 0.1 * (monotonic() - start - self._seconds)
            del self._driven[driven.run_id]
            if driven.scope.cancelled_caught and driven.is_put_back:
                driven.failure = StoppingError(f"the server stops: run '{driven.run_id}' goes on at its next start")
            elif driven.scope.cancelled_caught and not driven.is_recorded:
                driven.failure = RunError(f"run '{driven.run_id}' was cancelled before it began")
            driven.feed.end()
            driven.begun.set()
            driven.ended.set()
            if driven.feed.is_kept and self._tasks is not None:
                self._lingering[driven.run_id] = driven.feed  # From this moment on, not from the task's first.
                self._tasks.start_soon(self._linger, driven)
            if driven.status is not None:
                for listener in self._listeners:
                    listener(driven)
            self._next()

    async def _linger(self, driven: DrivenRun) -> None:
        """A run may have ended before its caller comes to follow it, and no journal has what its agents wrote."""
        await anyio.sleep(_LINGER)
        if self._lingering.get(driven.run_id) is driven.feed:
            del self._lingering[driven.run_id]

    def _next(self) -> None:
        self.running -= 1
        while self._tasks is not None and self._turn and self.running < self._admission.at_once:
            self._start(self._tasks, *self._take_turn())
        if not self.running:
            self._idle.set()

    def _take_turn(self) -> tuple[DrivenRun, Work]:
        """The longest waiting run of those callers that have the fewest at work, so that no caller keeps others out."""
        waiting = {id(each) for each, _ in self._turn}
        at_work = Counter(each.caller for each in self._driven.values() if id(each) not in waiting)
        turn = min(self._turn, key=lambda each: at_work[each[0].caller])
        self._turn.remove(turn)
        return turn
