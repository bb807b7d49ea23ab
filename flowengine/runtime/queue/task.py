"""Works on one job of a worker: goes on with a run until it ends, waits, or is stopped.

It goes on as anybody would, from what the store has of the run. So a job may be worked on twice without harm, and
one that is put back loses nothing. A run that this worker lacks something for is left to others; one that its workers
die of is ended.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import time
from typing import Any, Final, NamedTuple, NoReturn

import anyio
import anyio.to_thread
from procrastinate import App, JobContext, RetryDecision
from procrastinate.exceptions import AlreadyEnqueued, JobAborted
from procrastinate.job_context import AbortReason
from procrastinate.jobs import Job
from procrastinate.retry import BaseRetryStrategy

from flowengine.core import RunStatus
from flowengine.engine import Event, RunFinished, RunStarted, error_info
from flowengine.errors import (
    FlowEngineError,
    JournalError,
    RunError,
    RunNotFoundError,
    StoreUnavailableError,
    StoreVersionError,
    SupersededError,
)
from flowengine.journal import only_looking, open_questions
from flowengine.journal.postgres import HandedBackError, PostgresJournal, PostgresStore
from flowengine.models.litellm import wait_for_started_import
from flowengine.nodes import CompiledFlow
from flowengine.runtime.deliveries import next_try
from flowengine.runtime.local import resume
from flowengine.runtime.queue import crash_count as queue_loading
from flowengine.runtime.queue.crash_count import LeftError, deaths_of
from flowengine.runtime.queue.heartbeat import Tell, WorkerNotice
from flowengine.runtime.queue.run_positions import TASK, forget, note
from flowengine.runtime.queue.run_queue import append_events, close_run
from flowengine.runtime.queue.suspicion import Turns
from flowengine.runtime.queue.tables import before_new, expiry_lock, is_new
from flowengine.runtime.queue.worker_flows import LackingError, WorkerFlows, check_versions
from flowengine.runtime.run import Run, RunOptions, settings_of, unheard

_FIRST: Final = 1.0
_LONGEST: Final = 30.0
"""Seconds until a run is offered again for which a worker lacked something."""
_TRIES: Final = 20
"""The tries of a run on which workers stumble without knowing why."""
_OFFERS: Final = 10
"""Tries after which a run waits for its turn where it is, and is left to others no more."""


class JobTerms(NamedTuple):
    """The parameters of a job, beside its run."""

    after: int | None = None
    """The run's length when it was put into the queue."""
    if_waiting: bool = False
    """Only where it still waits for a person: what it asked has expired."""
    allow_changed: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> JobTerms:
        unknown = ", ".join(sorted(fields.keys() - set(cls._fields)))
        if unknown:
            raise LackingError(f"the FlowEngine that knows what '{unknown}' means for a job")
        return cls(**fields)

    def is_done(self, ended: RunStatus | None, length: int) -> bool:
        """Tells whether there is nothing to do: the run has ended since, by a job that did not live to say so."""
        if ended == "succeeded":
            return True
        if self.if_waiting:
            return ended != "waiting"
        return self.after is not None and length > self.after and ended not in (None, "cancelled")


def may_leave(job: Job) -> bool:
    """Tells whether a run that has to wait here for its turn is left to another worker."""
    return job.attempts < _OFFERS


class PutBackError(Exception):
    """The worker stops: another one goes on with the run."""

    def __init__(self, run_id: str, *, has_begun: bool) -> None:
        super().__init__(run_id)
        self.has_begun = has_begun


class StumbledError(Exception):
    """An unexpected error: this worker is broken, or the run is."""


class JobRetry(BaseRetryStrategy):
    """Decides when an unfinished job is executed again."""

    def __init__(self, busy: float) -> None:
        self._busy = busy

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        if isinstance(exception, JobAborted):
            return None
        if isinstance(exception, PutBackError):
            priority = before_new(job.priority) if exception.has_begun else job.priority
            return RetryDecision(retry_at=datetime.now(UTC), priority=priority)
        if isinstance(exception, LeftError):
            return RetryDecision(retry_at=datetime.now(UTC))
        if isinstance(exception, StoreUnavailableError):  # Another writes it, or the store is away for a while.
            return RetryDecision(retry_in={"seconds": max(1, round(self._busy))})
        # Ever later, and not in step with other workers that lack the same; no job is given up whose run has not ended.
        seconds = min(_FIRST * 2 ** min(job.attempts, 16), _LONGEST) * random.uniform(0.5, 1.0)
        return RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=seconds))


class RunTask:
    """Registers itself with the queue's library; `in_hand` are the jobs that it works on."""

    def __init__(
        self,
        app: App,
        store: PostgresStore,
        plans: WorkerFlows,
        *,
        takeovers: int,
        busy: float,
        tell: Tell,
        refuse: Callable[[StoreVersionError], None],
        stopped: Callable[[Sequence[Event]], Awaitable[None]],
    ) -> None:
        """`takeovers`: how often in a row a run is taken from writers that died. `busy`: seconds until a run is tried
        again that somebody else writes. `refuse` is called where the store is a newer FlowEngine's by now. `stopped`
        gets the events of each run that ended here or waits."""
        self._app, self._store, self._plans = app, store, plans
        self._tell, self._refuse, self._stopped = tell, refuse, stopped
        app.task(name=TASK, pass_context=True, retry=JobRetry(busy))(self._job)
        self.in_hand: set[int] = set()
        self.turns = Turns(store, takeovers)
        self._loading = anyio.Lock()

    async def _job(self, context: JobContext, run_id: str, **how: Any) -> None:
        assert context.job.id is not None  # It comes from the queue.
        self.in_hand.add(context.job.id)
        try:
            await self._work(context, run_id, how)
        finally:
            self.in_hand.discard(context.job.id)

    async def _work(self, context: JobContext, run_id: str, how: Mapping[str, Any]) -> None:
        """One job: the run goes on until it ends, waits, or is stopped."""
        try:
            run = await self._run(run_id, JobTerms.of(how), context.job)
        except HandedBackError:
            await close_run(self._store, run_id, "running")
            self._put_back(run_id)
        except (SupersededError, RunNotFoundError) as error:  # There is nothing left to do here.
            self._tell(WorkerNotice(f"run {run_id}: {error}", "dropped", run_id))
            return
        except LackingError as error:
            await self._lack(run_id, error)
        except LeftError:
            self._tell(WorkerNotice(f"run {run_id} is left to a worker that is idle", "left", run_id))
            raise
        except anyio.get_cancelled_exc_class():
            await self.stop(run_id, context.abort_reason())
        except FlowEngineError as error:
            await self.fail(run_id, error)
            return
        except Exception as error:
            await self.handle_stumble(run_id, error, context.job)
            return
        else:
            if run is not None:
                why = f": {run.error.message}" if run.error else ""
                self._tell(WorkerNotice(f"run {run_id} {run.status}{why}", run.status, run_id))
                await self._hand_on(run_id, run.events)
                if run.status == "waiting":
                    await self._wake(run_id, run.events, context.job)

    def _put_back(self, run_id: str, *, has_begun: bool = True) -> NoReturn:
        self._tell(WorkerNotice(f"run {run_id} is put back", "put_back", run_id))
        raise PutBackError(run_id, has_begun=has_begun) from None

    async def stop(self, run_id: str, why: AbortReason | None) -> NoReturn:
        """The run was interrupted, by somebody who wants it stopped or because the worker stops."""
        with anyio.CancelScope(shield=True):
            status = await anyio.to_thread.run_sync(self._store.status_of, run_id)
            if why is AbortReason.SHUTDOWN:
                with suppress(JournalError):  # Then the run is called cancelled for as long as it is in the queue.
                    if status == "cancelled":  # Else it had not begun here.
                        await close_run(self._store, run_id, "running")
                self._put_back(run_id)
            if status in ("running", "waiting", "paused"):  # It had not begun here.
                await close_run(self._store, run_id)
            await self._hand_on(run_id)
        self._tell(WorkerNotice(f"run {run_id} was cancelled", "cancelled", run_id))
        raise JobAborted from None

    async def _lack(self, run_id: str, error: LackingError) -> NoReturn:
        """Others may have what this worker lacks."""
        await anyio.to_thread.run_sync(note, self._store, run_id, str(error))
        self._tell(WorkerNotice(f"run {run_id} is left to others: this worker lacks {error}", "left", run_id))
        raise error

    async def fail(self, run_id: str, error: FlowEngineError) -> None:
        """The run cannot go on, unless it is the store or this worker that is at fault."""
        if isinstance(error, JournalError):
            await self._refuse_newer_store(run_id)
        if isinstance(error, StoreUnavailableError):
            raise error
        if isinstance(error, StoreVersionError):
            await self._lack(run_id, LackingError(str(error)))
        await self._end(run_id, error)

    async def _refuse_newer_store(self, run_id: str) -> None:
        """Keeps the job if the store belongs to a newer FlowEngine by now."""
        try:
            await anyio.to_thread.run_sync(self._store.check_version)
        except StoreVersionError as error:
            self._refuse(error)
            self._put_back(run_id)

    async def _run(self, run_id: str, how: JobTerms, job: Job) -> Run | None:
        """The run, gone on with; None where it is not this job's any more."""
        journal = await self._store.take(run_id)
        try:
            started, events = await self._look_at(journal, how, job)
            if started is None:
                return None
            deaths = deaths_of(events)
            journal.is_careful = deaths.in_a_row > 0
            loading = 0
            if self._plans.find_loaded(started) is None:
                loading = await anyio.to_thread.run_sync(queue_loading.deaths_while_loading, self._store, run_id)
            async with self.turns.turn(
                journal, run_id, deaths, loading, is_new=is_new(job.priority), may_leave=may_leave(job)
            ):
                plan = await self._compile_flow(started, events, how, job)
                word, event = ("begins", "begins") if len(events) == 1 else ("goes on", "goes_on")
                self._tell(WorkerNotice(f"run {run_id} {word}: {started.flow}", event, run_id))
                options = RunOptions(journal=journal, allow_changed=how.allow_changed, live=unheard)
                return await resume(plan, run_id, self._store, options)
        finally:
            await journal.close()

    async def _look_at(
        self, journal: PostgresJournal, how: JobTerms, job: Job
    ) -> tuple[RunStarted | None, Sequence[Event]]:
        """Returns how the run was started, and its events; None if it must not continue."""
        with only_looking():  # Its flow, and with it its classes, is loaded when its turn has come.
            events = await journal.read_beside()
        started, last = events[0], events[-1]
        assert isinstance(started, RunStarted)  # Stores give out no other runs.
        ended = last.status if isinstance(last, RunFinished) and last.status != "running" else None
        if how.is_done(ended, len(events)):
            if ended == "waiting":
                await self._wake(started.run_id, events, job)
            return None, events
        return started._replace(settings=settings_of(events)), events

    async def _compile_flow(
        self, started: RunStarted, events: Sequence[Event], how: JobTerms, job: Job
    ) -> CompiledFlow:
        """Compiles the flow with which the run continues."""
        plan = self._plans.find_loaded(started) or await self._load_flow(started)
        await (
            wait_for_started_import()
        )  # Nothing of the run is at work while it is waited for, so no death is its fault.
        if not how.allow_changed:
            check_versions(plan, events)
        if job.attempts:
            await anyio.to_thread.run_sync(forget, self._store, started.run_id)
        return plan

    async def handle_stumble(self, run_id: str, error: Exception, job: Job) -> None:
        """Others may fare better; where none does, the run is at fault."""
        message = f"{type(error).__name__}: {error}"
        if job.attempts + 1 < _TRIES:
            text = f"run {run_id} is left to others: this worker stumbled ({message})"
            self._tell(WorkerNotice(text, "left", run_id))
            raise StumbledError(message) from error
        await self._end(
            run_id, RunError(f"given up after {_TRIES} tries, each of which ended unexpectedly ({message})")
        )

    async def _load_flow(self, started: RunStarted) -> CompiledFlow:
        """The plan, which is noted before: its code may take the worker with it. One at a time, as most are of one
        flow."""
        async with self._loading:
            if (plan := self._plans.find_loaded(started)) is not None:
                return plan
            await anyio.to_thread.run_sync(queue_loading.begin, self._store, started.run_id)
            try:
                plan = self._plans.load(started)
                await self._plans.prepare(started, plan)
                return plan
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(queue_loading.end, self._store, started.run_id)

    async def _end(self, run_id: str, error: FlowEngineError) -> None:
        """The run could not go on at all: who looks at it is told why."""
        await append_events(self._store, run_id, RunFinished(time(), "failed", None, error_info(error)))
        self._tell(WorkerNotice(f"run {run_id} failed: {error}", "failed", run_id))
        await self._hand_on(run_id)

    async def _hand_on(self, run_id: str, events: Sequence[Event] | None = None) -> None:
        """Give the events of a run that stopped here to who counts and books it; a run is over without that, too."""
        try:
            with only_looking():
                events = await anyio.to_thread.run_sync(self._store.events, run_id) if events is None else events
            await self._stopped(events)
        except JournalError as error:
            self._tell(WorkerNotice(f"run {run_id} is not booked yet: {error}", "not_booked", run_id))

    async def _wake(self, run_id: str, events: Sequence[Event], job: Job) -> None:
        """A run that waits holds no slot. It is looked at again when its question expires, and when those are to be
        told of it who could not be told."""
        times = [question.expires for question in open_questions(events).values() if question.expires is not None]
        times += [] if (retry := next_try(events)) is None else [retry]
        if not times:
            return
        at = datetime.fromtimestamp(min(times), UTC)
        task = self._app.configure_task(
            TASK,
            queue=job.queue,
            priority=before_new(job.priority),
            schedule_at=at,
            lock=expiry_lock(run_id),  # Not that of the run, whose own jobs would have to wait for it.
            queueing_lock=f"{run_id} at {at.isoformat()}",
        )
        try:
            await task.defer_async(run_id=run_id, if_waiting=True)
        except AlreadyEnqueued:
            return
