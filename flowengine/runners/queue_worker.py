"""A worker: takes runs from a queue and drives them, several at a time, until it is told to stop.

What it is told by procrastinate is which run is next. It goes on with that run as anybody would, from what the
store has of it, with the flow's own text: a run that was begun elsewhere is no different from a new one. So a job
may be worked on twice without harm, and one that is put back loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import time
from typing import NoReturn

import anyio
from procrastinate import App, JobContext, RetryDecision
from procrastinate.exceptions import AlreadyEnqueued, JobAborted
from procrastinate.job_context import AbortReason
from procrastinate.jobs import Job
from procrastinate.retry import BaseRetryStrategy

from flowengine.engine.events import RunFinished, RunStarted
from flowengine.engine.scheduler import error_info
from flowengine.errors import (
    FlowEngineError,
    RunNotFoundError,
    StoreUnavailableError,
    SupersededError,
)
from flowengine.journal.approvals import open_questions
from flowengine.journal.classes import only_looking
from flowengine.journal.postgres import PostgresStore
from flowengine.journal.postgres_rates import PostgresRates
from flowengine.llm.rate import Limiters
from flowengine.nodes.limits import FlowLimits
from flowengine.nodes.plan import Plan
from flowengine.runners.local import resume
from flowengine.runners.queue import TASK, opened
from flowengine.runners.queue_connection import PatientConnector
from flowengine.runners.queue_rescue import WORKER, Rescue
from flowengine.runners.queue_staying import Staying
from flowengine.runners.run import Run
from flowengine.spec.builder import load_plan
from flowengine.spec.carried import place_of

__all__ = ["Pace", "work"]

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. A worker that died is heard of no more after `stalled`; its runs go on elsewhere within ten."""

    grace: float = 20.0
    """That runs have when the worker is told to stop. For the first half they go on, in the second they begin nothing
    more: calls that are on their way end, so that they are not paid for twice. Then runs are interrupted."""
    heartbeat: float = 1.0
    stalled: float = 5.0
    """After the last heartbeat of a worker, its runs are another's."""
    rescue: float = 1.0
    """Between two looks for such runs."""
    patience: float = 600.0
    """For a server that went away, before runs are given up for later."""
    poll: float = 5.0
    busy: float = 5.0
    """Until a run is tried again that somebody else writes."""


async def work(
    store: PostgresStore,
    *,
    queue: str = "default",
    concurrency: int = 1,
    pace: Pace | None = None,
    tell: Tell = lambda line: None,
    environ: Mapping[str, str] = os.environ,
    wait: bool = True,
) -> None:
    """Drive the runs of a queue, until SIGTERM or Ctrl-C; without `wait`, until there is none that could begin.

    `tell` hears a line for each run that begins or ends. `environ`: where the flows' keys are looked up. The limits
    of providers are kept by all workers of the store together.
    """
    pace = pace or Pace()
    store.role = WORKER
    store.wait_for(pace.patience)
    rates = PostgresRates(store.url)
    async with AsyncExitStack() as stack:
        stack.callback(rates.close)
        app = await stack.enter_async_context(opened(store, kind=PatientConnector))
        worker = _Worker(app, store, queue, pace, tell, environ, rates.limiter)
        rescue = Rescue(app, store, queue, stalled=pace.stalled, pause=pace.rescue)
        await rescue.look()
        options = {
            "queues": [queue],
            "concurrency": concurrency,
            "wait": wait,
            "shutdown_graceful_timeout": pace.grace,
            "update_heartbeat_interval": pace.heartbeat,
            "stalled_worker_timeout": pace.stalled,
            "fetch_job_polling_interval": pace.poll,
            "abort_job_polling_interval": pace.poll,
            "delete_jobs": "successful",
        }
        staying = Staying(app, rescue, pause=pace.rescue, in_hand=worker.in_hand, tell=tell, options=options)
        await staying.run(partial(_hurry, app, store, pace))


async def _hurry(app: App, store: PostgresStore, pace: Pace) -> None:
    """A worker that is told to stop waits no longer than its runs may for a server that is away."""
    store.wait_for(pace.grace)
    if isinstance(app.connector, PatientConnector):
        app.connector.stop_waiting(2 * pace.grace)
    await anyio.sleep(pace.grace / 2)
    store.hand_back()


class _PutBackError(Exception):
    """The worker stops: another one goes on with the run."""


class _Again(BaseRetryStrategy):
    """What is worth another worker's while: nothing that is wrong with the run itself."""

    def __init__(self, busy: float) -> None:
        self._busy = busy

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        if isinstance(exception, _PutBackError):
            return RetryDecision(retry_at=datetime.now(UTC))
        if isinstance(exception, StoreUnavailableError):  # Another writes it, or the store is away for a while.
            return RetryDecision(retry_in={"seconds": max(1, round(self._busy))})
        return None


class _Worker:
    """The tasks of one worker."""

    def __init__(
        self,
        app: App,
        store: PostgresStore,
        queue: str,
        pace: Pace,
        tell: Tell,
        environ: Mapping[str, str],
        limiters: Limiters,
    ) -> None:
        self._app, self._store, self._queue, self._pace, self._tell = app, store, queue, pace, tell
        self._environ, self._limiters = environ, limiters
        app.task(name=TASK, pass_context=True, retry=_Again(pace.busy))(self._job)
        self.in_hand: set[int] = set()
        """Jobs that are worked on."""

    async def _job(self, context: JobContext, run_id: str, if_waiting: bool = False) -> None:
        assert context.job.id is not None  # It comes from the queue.
        self.in_hand.add(context.job.id)
        try:
            await self._worked(context, run_id, if_waiting)
        finally:
            self.in_hand.discard(context.job.id)

    async def _worked(self, context: JobContext, run_id: str, if_waiting: bool) -> None:
        """One job: the run goes on until it ends, waits, or is stopped."""
        try:
            run = await self._run(run_id, if_waiting)
        except (SupersededError, RunNotFoundError) as error:  # There is nothing left to do here.
            if self._store.is_leaving and isinstance(error, SupersededError):
                self._put_back(run_id)
            self._tell(f"run {run_id}: {error}")
            return
        except anyio.get_cancelled_exc_class():
            if context.abort_reason() is AbortReason.SHUTDOWN:
                self._put_back(run_id)
            self._tell(f"run {run_id} was cancelled")
            raise JobAborted from None
        if run is not None:
            self._tell(f"run {run_id} {run.status}{f': {run.error.message}' if run.error else ''}")
            if run.status == "waiting":
                await self._wake(run, context.job)

    def _put_back(self, run_id: str) -> NoReturn:
        self._tell(f"run {run_id} is put back")
        raise _PutBackError(run_id) from None

    async def _run(self, run_id: str, if_waiting: bool) -> Run | None:
        with only_looking():  # Its flow, and with it its classes, is loaded below.
            events = self._store.events(run_id)
        started, last = events[0], events[-1]
        assert isinstance(started, RunStarted)  # Stores give out no other runs.
        ended = last.status if isinstance(last, RunFinished) else None
        if ended == "succeeded" or (if_waiting and ended != "waiting"):
            return None
        self._tell(f"run {run_id} {'begins' if len(events) == 1 else 'goes on'}: {started.flow}")
        try:
            plan = _plan_of(started, self._environ, self._limiters)
            return await resume(plan, run_id, self._store, limits=_limits_of(plan, started))
        except StoreUnavailableError:
            raise
        except FlowEngineError as error:
            await self._fail(run_id, error)
            self._tell(f"run {run_id} failed: {error}")
            return None

    async def _fail(self, run_id: str, error: FlowEngineError) -> None:
        """The run could not go on at all: who looks at it is told why."""
        journal = self._store.open(run_id)
        try:
            journal.append(RunFinished(time(), "failed", None, error_info(error)))
        finally:
            await journal.close()

    async def _wake(self, run: Run, job: Job) -> None:
        """A run that waits holds no slot. Where its question expires, it is looked at again then."""
        times = [asked.expires for asked in open_questions(run.events).values() if asked.expires is not None]
        if not times:
            return
        at = datetime.fromtimestamp(min(times), UTC)
        task = self._app.configure_task(
            TASK,
            queue=self._queue,
            priority=job.priority,
            schedule_at=at,
            lock=run.id,
            queueing_lock=f"{run.id} at {at.isoformat()}",
        )
        try:
            await task.defer_async(run_id=run.id, if_waiting=True)
        except AlreadyEnqueued:
            return


def _plan_of(started: RunStarted, environ: Mapping[str, str], limiters: Limiters) -> Plan:
    """The flow as the run has it. What it names beside itself is looked for in the worker's own project."""
    if started.source is None:
        raise RunNotFoundError(f"run {started.run_id} is of a flow built in Python, which no worker has")
    path = place_of(started.path or "flow.yaml", str(started.settings.get("folder", "")))
    model = started.settings.get("model")
    return load_plan(path, text=started.source, model=model, environ=environ, limiters=limiters)


def _limits_of(plan: Plan, started: RunStarted) -> FlowLimits:
    """The flow's own, with those that were given when it was submitted in their place."""
    given = {name: started.settings[name] for name in ("concurrency", "timeout") if name in started.settings}
    return replace(plan.limits, **given)
