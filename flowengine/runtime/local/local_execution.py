"""Executes one run: its first events, its nodes within its time and its limits, what it leaves, its last event.

Which nodes run is the walk's to say, and running them the scheduler's; how a run begins or goes on is the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias, cast

import anyio

from flowengine.core import BlobStore, Budget, Fence, FileKeeper, FileValue, Ledger, RunScope, find_files, is_interrupt
from flowengine.engine import (
    Event,
    Journal,
    JournalStore,
    Parked,
    RunFinished,
    RunStarted,
    Scheduler,
    TokenStreamed,
    Walk,
    error_info,
)
from flowengine.errors import DefinitionError, JournalError, LimitError, NotJournalableError
from flowengine.journal import Mail, commit_events
from flowengine.nodes import CompiledFlow, RunLimits, outputs_of, partial_outputs_of
from flowengine.runtime.run import Live, Run, RunOptions
from flowengine.runtime.sessions import leave_behind


def _tell_elsewhere(
    live: Live, store: JournalStore, journal: Journal, run_id: str, scope: RunScope, piece: TokenStreamed
) -> None:
    """Hand a piece on, and show it to those who follow the run from other processes."""
    from flowengine.journal import LiveBoard  # Most runs have nothing to show.

    scope.once(LiveBoard, lambda: LiveBoard(store, run_id, scope, journal.flush)).hear(piece)
    live(piece)


class _Refused(NamedTuple):
    """A node that must not run, which is known before any has."""

    node: str
    error: DefinitionError


_Stop: TypeAlias = LimitError | _Refused | None
"""What kept a run from its end."""


def _run_clock() -> Callable[[], float]:
    """Unix seconds as of now, which only go forward, while the machine sleeps too where it has such a clock."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        since = time.time() - time.monotonic()
        return lambda: since + time.monotonic()
    read, clock = time.clock_gettime, time.CLOCK_BOOTTIME
    offset = time.time() - read(clock)
    return lambda: offset + read(clock)  # Called twice for each node, so without a partial.


@dataclass(slots=True, eq=False)
class LocalExecution:
    """Drives a run: journals its first events, runs its nodes, journals its last event."""

    plan: CompiledFlow
    walk: Walk
    journal: Journal
    limits: RunLimits
    store: JournalStore
    options: RunOptions
    clock: Callable[[], float] = field(default_factory=_run_clock)
    mail: Mail = field(init=False)
    ledger: Ledger | None = field(init=False)

    def __post_init__(self) -> None:
        self.mail = Mail(self.store, self.run_id)
        self.ledger = self._make_ledger()

    @property
    def run_id(self) -> str:
        return self.walk.run_id or ""

    async def run(self, first: Sequence[Event], leaving: RunStarted | None) -> Run:
        """The run at its end; the journal is closed whatever happens.

        `leaving`: the start of the run; None for one that leaves nothing. A run that succeeds leaves what it leaves
        before that is on record: if it is interrupted meanwhile, it is resumed, and leaves it again: nothing is kept
        twice.
        """
        walk, journal, mail, has_ended = self.walk, self.journal, self.mail, False
        try:
            await commit_events(journal, *first)  # From here on the run can be found and resumed.
            try:
                stop = await self._begin()
            finally:
                if mail.post is not None:
                    mail.close()
            finished = self._finish(stop)._replace(unrecorded_usd=self._unrecorded_usd)
            if finished.status == "succeeded" and leaving is not None and _has_more_to_keep(leaving, walk):
                if getattr(self.store, "is_shared", False):  # A store in memory keeps any value.
                    from flowengine.journal import encode

                    finished = _write_end(finished, encode)
                if finished.status == "succeeded":
                    unkept = await leave_behind(self.plan, self.store, leaving, walk, self._fence)
                    finished = finished._replace(unkept=tuple(unkept))
            finished = _write_end(finished, journal.append)
            has_ended = True
            await commit_events(journal)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                is_stopped = isinstance(error, anyio.get_cancelled_exc_class()) or is_interrupt(error)
                end = RunFinished(self.clock(), "cancelled", unrecorded_usd=self._unrecorded_usd)
                await _close_quietly(journal, *([end] if is_stopped and not has_ended else []))
            raise
        await journal.close()
        if mail.keys and finished.status in ("succeeded", "partial"):
            mail.forget()
        return Run(self.plan, self.run_id, walk, finished, partial(self.store.events, self.run_id), self.limits)

    @property
    def _fence(self) -> Fence | None:
        """Only where others can take the run over."""
        return getattr(self.journal, "fence", None)

    def _begin(self) -> Awaitable[_Stop]:
        """`_schedule` within the run's time, while people are told of its questions; that takes none of the time."""
        schedule = self._schedule if self.limits.timeout is None else self._schedule_in_time
        if self.plan.notifier is None:
            return schedule()
        from flowengine.runtime.deliveries import Deliveries  # Few flows ask people, and fewer tell them.

        deliveries = Deliveries(self.plan.notifier, self.journal, self.clock)
        return deliveries.beside(schedule, lambda: self.walk.waits and self.walk.failure() is None, self.mail)

    async def _schedule_in_time(self, tell: Callable[[], None] | None = None) -> _Stop:
        """`_schedule` for as long as the run may take."""
        seconds, stop = self.limits.timeout, None
        with anyio.move_on_after(seconds) as scope:
            stop = await self._schedule(tell)
        if not scope.cancel_called or not self.walk.is_cut:
            return stop
        message = f"the run took longer than its limit of {seconds:g} s"
        return LimitError(message, part="", on_limit=self.limits.on_limit, limit="timeout")

    async def _schedule(self, tell: Callable[[], None] | None = None) -> _Stop:
        """Run what can run; the limit that ended it early, or what kept it from beginning."""
        plan, walk, limits, live = self.plan, self.walk, self.limits, self.options.live
        is_shown = live is not None and getattr(self.store, "is_shared", False)
        has_tasks = plan.starts_tasks or is_shown
        async with RunScope(self._fence, limits.concurrency, self._keeper, has_tasks=has_tasks) as scope:
            refused = await self._check_servers(scope)
            if refused is not None:
                return refused
            if live is not None and is_shown:
                live = partial(_tell_elsewhere, live, self.store, self.journal, self.run_id, scope)
            scheduler = Scheduler(
                walk,
                plan.nodes,
                self.journal,
                concurrency=limits.concurrency,
                on_failure=limits.on_failure,
                live=live,
                scope=scope,
                ledger=self.ledger,
                clock=self.clock,
                parked=Parked(self.mail, self.journal, walk.history, self.clock, scope.start_soon, tell),
                interruptible=plan.interruptible,
            )
            await scheduler.run()
        return scheduler.limited

    def _keeper(self) -> FileKeeper | None:
        store, run_id = self.store, self.run_id
        return keeper_of(self.plan, store, run_id, lambda: find_files(list(store.events(run_id))))

    async def _check_servers(self, scope: RunScope) -> _Refused | None:
        """The first node that is still to run and whose servers do not go with its definition."""
        for path, node in self.plan.server_checks:
            number = self.walk.graph.index.get(path.partition(".")[0])
            if number is None or self.walk.status_of(number) in ("pending", "running", "cancelled", "failed"):
                try:
                    await node.check_servers(path, scope)
                except DefinitionError as error:
                    return _Refused(path, error)
        return None

    def _make_ledger(self) -> Ledger | None:
        """Returns the run's limits less its earlier spending; None without limits and counts."""
        limits, above = self.limits, self.options.above
        if above is None and limits.bounds == Budget() and not limits.needs_prices:
            return None
        history = self.walk.history
        spent = history.sum_spending()
        spent = spent._replace(cost_usd=spent.cost_usd + history.unrecorded_usd)
        return Ledger(
            limits.bounds, on_limit=limits.on_limit, above=above, spent=spent, needs_prices=limits.needs_prices
        )

    @property
    def _unrecorded_usd(self) -> float:
        """Dollars of calls that left no record, with those of before a resumption."""
        before = self.walk.history.unrecorded_usd
        return before if self.ledger is None else before + self.ledger.unrecorded_usd

    def _finish(self, stop: _Stop) -> RunFinished:
        at = self.clock()
        if isinstance(stop, _Refused):
            return RunFinished(at, "failed", None, error_info(stop.error), stop.node)
        failure = self.walk.failure()
        if failure is not None:
            node, error = failure
            return RunFinished(at, "failed", None, error, node)
        if stop is not None:
            info, part = error_info(stop), stop.part or None
            if stop.on_limit == "partial":
                return RunFinished(at, "partial", partial_outputs_of(self.plan, self.walk), info, part)
            return RunFinished(at, "paused" if stop.on_limit == "pause" else "failed", None, info, part)
        if self.walk.is_cut:
            return RunFinished(at, "cancelled")
        if self.walk.waits:
            return RunFinished(at, "waiting")
        try:
            return RunFinished(at, "succeeded", outputs_of(self.plan, self.walk))
        except Exception as error:
            return RunFinished(at, "failed", None, error_info(error))


def _write_end(finished: RunFinished, write: Callable[[Event], object]) -> RunFinished:
    """The end that was written: the run's own, or that its outputs, or its error, cannot be written down."""
    try:
        write(finished)
    except NotJournalableError as error:
        finished = finished._replace(status="failed", outputs=None, error=error_info(error))
        write(finished)
    return finished


def _has_more_to_keep(started: RunStarted, walk: Walk) -> bool:
    return started.settings.get("session") is not None or walk.store.may_keep("memory")


def keeper_of(
    plan: CompiledFlow, store: JournalStore, run_id: str, stored_files: Callable[[], Iterable[FileValue]] = tuple
) -> FileKeeper | None:
    """Takes files in for a run; None where the store, of another package, keeps none."""
    return (
        FileKeeper(cast("BlobStore", store), run_id, plan.files, stored_files) if hasattr(store, "put_blob") else None
    )


async def _close_quietly(journal: Journal, *last: Event) -> None:
    """Another error is on its way already: a journal that takes nothing more, or cannot be closed, must not hide it."""
    with suppress(JournalError):
        for event in last:
            journal.append(event)
    with suppress(JournalError):
        await journal.close()
