"""Begins, resumes and forks runs in this process.

It also goes on with runs that a server of the store has left, and with those whose question expires.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from time import time
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from flowengine.core import EMPTY
from flowengine.core.masking import Masker
from flowengine.engine import Event, JournalStore, NodeFinished, RunFinished, RunResumed, RunStarted
from flowengine.errors import (
    FlowEngineError,
    JournalError,
    RunBusyError,
    RunNotFoundError,
    StoreUnavailableError,
)
from flowengine.flow import Flow
from flowengine.journal import labels_of, only_looking
from flowengine.runs import RunRecord
from flowengine.runtime import (
    DEFAULTS,
    DrivenRun,
    Live,
    Run,
    RunDriver,
    RunOptions,
    StoppingError,
    Work,
    next_try,
    settings_of,
    unheard,
)
from flowengine.runtime.local import local
from flowengine.runtime.queue import queue_of
from flowengine.web.service.outcomes import CALLER, RunOutcome, start_of
from flowengine.web.service.run_follower import RunFollower

_LOG: Final = logging.getLogger("flowengine.serving")
_RESCUE_PAUSE: Final = 30.0
"""Seconds between two looks for runs whose process has died."""
_MOST_RESUMPTIONS: Final = 5
"""In a row, of a run during which its processes die, before it is left to a person."""


class RunStart(NamedTuple):
    """A run that is to begin."""

    run_id: str
    flow: Flow
    inputs: Mapping[str, Any]
    options: RunOptions


class FlowSource(ABC):
    """Knows the flows that a server has, and which runs of its store are its own."""

    @abstractmethod
    async def find_flow(self, started: RunStarted, model: str | None = None) -> Flow | None:
        """The flow that a run goes on with; None where it is not here."""

    def has_flow(self, name: str) -> bool:
        """Tells whether a run of a flow of this name may be its own; asked before the run is read."""
        return True

    @abstractmethod
    def owns(self, started: RunStarted) -> bool:
        """Tells whether a server of this kind began the run, so that one goes on with it by itself."""


class LocalRuns:
    """The runs of one process."""

    def __init__(self, store: JournalStore, source: FlowSource, driver: RunDriver, follower: RunFollower) -> None:
        self._store = store
        self._source = source
        self._driver = driver
        self._follower = follower
        self._tasks: TaskGroup | None = None
        self._wakes: dict[str, float] = {}
        """Run → when it goes on, because what it asks expires or is to be told again."""

    def begin_waking(self, tasks: TaskGroup, *, rescues: bool) -> None:
        """From now on go on with what expires; `rescues`: also with what a server that died has left."""
        self._tasks = tasks
        tasks.start_soon(self._wake_runs, rescues)

    async def begin(self, start: RunStart, tokens: bool) -> None:
        """Begin a run; `JournalError` where its id is there already."""
        caller = str((start.options.labels or EMPTY).get(CALLER, ""))
        driven = self._driver.reserve(start.run_id, start.flow.name, caller)
        driven.feed.is_kept = tokens
        try:
            driven.journal = driven.store.create(start.run_id)
            try:
                self._driver.admit(caller)
                if not self._driver.has_free_slot:
                    await self._write_start(start, driven)
            except BaseException:
                await driven.journal.close()
                raise
        except BaseException:
            self._driver.release(driven)
            raise
        if driven.started is not None:
            await self._driver.launch(driven, partial(self._drive, start.flow, DEFAULTS, tokens=tokens))
            return
        await self._launch(driven, partial(self._drive_new, start, tokens))

    async def perform(self, run_id: str, flow: str, work: Work) -> None:
        """Begin work on a run that no process writes; raises what it raises before anything of it is in the store."""
        if self._driver.is_stopping:
            self._driver.admit()
        await self._launch(self._driver.reserve(run_id, flow), work)

    async def fork(self, flow: Flow, run_id: str, node: str, options: RunOptions, **how: Any) -> None:
        """Begin a run that shares the past of another (`runtime.local.fork`)."""
        assert options.run_id is not None

        async def work(driven: DrivenRun) -> Run:
            live_options = replace(options, live=self.listener(driven))
            run = await local.fork(flow.plan, run_id, driven.store, node, options=live_options, **how)
            self._wake_later(run)
            return run

        await self.perform(options.run_id, flow.name, work)

    async def _launch(self, driven: DrivenRun, work: Work) -> None:
        """Returns once the store has what the run begins or goes on with, or it waits for its turn."""
        goes_on_now = self._driver.has_free_slot
        await self._driver.launch(driven, work)
        if goes_on_now:
            await driven.begun.wait()
        else:
            driven.begun.set()
        if driven.failure is not None and not driven.is_recorded:
            raise driven.failure

    def listener(self, driven: DrivenRun, *, tokens: bool = False) -> Live:
        """Returns the listener for what agents of a run write. `tokens`: somebody follows the run from its start."""
        return driven.feed.hear_token if tokens or self._driver.retells else unheard

    async def _write_start(self, start: RunStart, driven: DrivenRun) -> None:
        """Keep a run that waits for its turn."""
        plan, journal = start.flow.plan, driven.journal
        assert journal is not None
        inputs = await local.inputs_with_files(plan, start.inputs, self._store, start.run_id)
        begin = partial(local.beginning, plan, inputs, self._store, start.run_id, start.options, begins_later=True)
        journal.append(await anyio.to_thread.run_sync(begin))  # Beside the event loop: inputs may be megabytes.
        waiting = journal.commit(True)
        if waiting is not None:
            await waiting

    async def _drive_new(self, start: RunStart, tokens: bool, driven: DrivenRun) -> Run:
        """Begin a run and go on with it."""
        try:
            options = replace(start.options, journal=driven.journal, live=self.listener(driven, tokens=tokens))
            run = await local.start(start.flow.plan, start.inputs, driven.store, options)
        except BaseException:
            if driven.started is None and driven.journal is not None:
                await driven.journal.close()
            raise
        self._wake_later(run)
        return run

    async def _drive(self, flow: Flow, options: RunOptions, driven: DrivenRun, *, tokens: bool = False) -> Run:
        """Go on with a run that is in the store."""
        options = replace(options, journal=driven.journal, live=self.listener(driven, tokens=tokens))
        run = await local.resume(flow.plan, driven.run_id, driven.store, options)
        self._wake_later(run)
        return run

    async def go_on(self, run_id: str, options: RunOptions = DEFAULTS) -> bool:
        """Drive a run of the store from here on; False where its flow is not here.

        `RunBusyError` where another process does; raises also what keeps the run from going on.
        """
        if self._driver.drives(run_id):
            return True
        if self._driver.is_stopping:
            self._driver.admit()
        events = await self._follower.events(run_id)
        started = start_of(events)
        flow = await self._source.find_flow(started, options.settings.get("model") or settings_of(events).get("model"))
        if flow is None:
            return False
        if self._driver.drives(run_id):
            return True
        driven = self._driver.reserve(run_id, flow.name, labels_of(started).get(CALLER, ""))
        try:
            driven.journal = driven.store.open(run_id)
            driven.journal.read()  # Its feed counts on from there; a record that is damaged is refused here.
        except BaseException:
            self._driver.release(driven)
            raise
        self._follower.let_go(run_id)
        await self._launch(driven, partial(self._drive, flow, options))
        return True

    async def cancel_parked(self, run_id: str) -> bool:
        """Write that a run was cancelled which no process works on; False: one does, or it has ended."""
        driven = self._driver.take_back(run_id)
        try:
            journal = self._store.open(run_id) if driven is None or driven.journal is None else driven.journal
        except RunBusyError:
            return False
        try:
            with only_looking():
                has_ended = RunOutcome.of(journal.read()).has_ended  # Now that no other process can go on with it.
            if not has_ended:
                journal.append(RunFinished(time(), "cancelled"))
        finally:
            await journal.close()
            if driven is not None:
                self._driver.release(driven)
        return not has_ended

    async def _wake_runs(self, rescues: bool) -> None:
        """Go on with what a server of this store left, at the start and whenever one has died since."""
        has_looked = False
        while rescues or not has_looked:
            has_looked = has_looked or await logging_failure(self._wake_waiting, "looking for what waits")
            if rescues:
                await logging_failure(self._rescue_abandoned, "looking for what was left")
            await anyio.sleep(_RESCUE_PAUSE)

    async def _wake_waiting(self) -> None:
        for info in await anyio.to_thread.run_sync(self._store.list):
            if info.status == "waiting" and self._source.has_flow(info.flow):
                try:
                    events = await self._follower.events(info.run_id)
                    if self._source.owns(start_of(events)):
                        self._wake_at(info.run_id, events)
                except StoreUnavailableError:  # All of them are looked at again.
                    raise
                except FlowEngineError as error:  # Removed or damaged: that keeps no other from going on.
                    log_failure(f"run {info.run_id}", error)

    async def _rescue_abandoned(self) -> None:
        for run_id in await anyio.to_thread.run_sync(lambda: list(self._store.abandoned())):
            await self._rescue(run_id)

    async def _rescue(self, run_id: str) -> None:
        if self._driver.drives(run_id):
            return
        try:
            events = await self._follower.events(run_id)
            started = start_of(events)
            if not self._source.owns(started) or queue_of(self._store, started) is not None:
                return
            if RunOutcome.of(events).is_settled:  # Somebody has gone on with it since it was looked for.
                return
            if _count_resumptions(events) >= _MOST_RESUMPTIONS:
                raise JournalError(f"the server died {_MOST_RESUMPTIONS} times in a row during it: look into it first")
            if await self.go_on(run_id):
                _LOG.info("run %s was interrupted, and goes on", run_id)
        except (RunBusyError, StoppingError):  # The next to look goes on with it.
            return
        except FlowEngineError as error:
            log_failure(f"run {run_id}", error)

    def _wake_later(self, run: Run) -> None:
        if run.status == "waiting":
            self._wake_at(run.id, run.events)

    def _wake_at(self, run_id: str, events: Sequence[Event]) -> None:
        """Go on with a run when the first of its questions expires, or when those are to be told again whom it did not
        reach."""
        times = [each.expires for each in RunRecord(events).questions if each.expires is not None]
        times += [] if (retry := next_try(events)) is None else [retry]
        if times:
            self._wake_soon(run_id, min(times))

    def _wake_soon(self, run_id: str, at: float) -> None:
        if self._tasks is not None and at < self._wakes.get(run_id, inf):
            self._wakes[run_id] = at
            self._tasks.start_soon(logging_failure, partial(self._wake, run_id, at), f"run {run_id}")

    async def _wake(self, run_id: str, at: float) -> None:
        await anyio.sleep(max(0.0, at - time()) + 0.01)
        if self._wakes.get(run_id) != at:  # It was to be woken earlier since.
            return
        del self._wakes[run_id]
        try:
            with suppress(RunBusyError, RunNotFoundError):
                if RunOutcome.of(await self._follower.events(run_id)).status == "waiting":
                    await self.go_on(run_id)
        except StoreUnavailableError as error:
            log_failure(f"run {run_id}", error)
            self._wake_soon(run_id, time() + _RESCUE_PAUSE)


async def logging_failure(work: Callable[[], Awaitable[None]], what: str) -> bool:
    """Do something beside the runs, and tell whether it went well; what went wrong is logged, and ends nothing else."""
    try:
        await work()
    except Exception as error:
        log_failure(what, error)
        return False
    return True


def log_failure(run_id: str, error: Exception) -> None:
    _LOG.error("%s: %s", run_id, Masker().mask(f"{type(error).__name__}: {error}"))


def _count_resumptions(events: Sequence[Event]) -> int:
    """Counts how often the run was resumed since a node last ended."""
    count = 0
    for event in reversed(events):
        if isinstance(event, NodeFinished):
            break
        count += isinstance(event, RunResumed)
    return count
