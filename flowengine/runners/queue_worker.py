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
from time import time
from typing import Final

import anyio
from procrastinate import App, JobContext, RetryDecision
from procrastinate.exceptions import AlreadyEnqueued, JobAborted
from procrastinate.job_context import AbortReason
from procrastinate.jobs import Job, Status
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
from flowengine.runners.queue import TASK, close_run, opened
from flowengine.runners.run import Run
from flowengine.spec.builder import load_plan
from flowengine.spec.carried import place_of

__all__ = ["Pace", "work"]

RESCUE: Final = "flowengine.rescue"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds; of the library, but for `grace`."""

    grace: float = 20.0
    """That runs have to end when the worker is told to stop; then they are interrupted and put back."""
    heartbeat: float = 10.0
    stalled: float = 30.0
    """After the last heartbeat of a worker, its runs are another's."""
    rescue: str = "*/10 * * * * *"
    """When it is looked for such runs: cron's columns, and one for seconds."""
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
    rates = PostgresRates(store.url)
    async with AsyncExitStack() as stack:
        stack.callback(rates.close)
        app = await stack.enter_async_context(opened(store))
        _Worker(app, store, queue, pace, tell, environ, rates.limiter)
        await _rescue(app, store, queue, pace)
        await app.run_worker_async(
            queues=[queue],
            concurrency=concurrency,
            wait=wait,
            shutdown_graceful_timeout=pace.grace,
            update_heartbeat_interval=pace.heartbeat,
            stalled_worker_timeout=pace.stalled,
            fetch_job_polling_interval=pace.poll,
            abort_job_polling_interval=pace.poll,
            delete_jobs="successful",
        )


async def _rescue(app: App, store: PostgresStore, queue: str, pace: Pace) -> None:
    """Put back the runs of workers that are heard of no more, but for those that somebody wants to stop."""
    jobs = app.job_manager
    stopped = set(await jobs.list_jobs_to_abort_async(queue=queue))
    for job in await jobs.get_stalled_jobs(queue=queue, seconds_since_heartbeat=pace.stalled):
        if job.id in stopped:
            await jobs.finish_job(job, Status.ABORTED, delete_job=False)
            await close_run(store, str(job.task_kwargs.get("run_id")))
        else:
            await jobs.retry_job(job)


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
        rescue = app.task(name=RESCUE, queue=queue, queueing_lock=f"{RESCUE} {queue}", priority=1_000)(self._rescue)
        app.periodic(cron=pace.rescue, periodic_id=queue)(rescue)

    async def _rescue(self, timestamp: int) -> None:
        await _rescue(self._app, self._store, self._queue, self._pace)

    async def _job(self, context: JobContext, run_id: str, if_waiting: bool = False) -> None:
        """One job: the run goes on until it ends, waits, or is stopped."""
        try:
            run = await self._run(run_id, if_waiting)
        except (SupersededError, RunNotFoundError) as error:  # There is nothing left to do here.
            self._tell(f"run {run_id}: {error}")
            return
        except anyio.get_cancelled_exc_class():
            if context.abort_reason() is AbortReason.SHUTDOWN:
                self._tell(f"run {run_id} is put back")
                raise _PutBackError(run_id) from None
            self._tell(f"run {run_id} was cancelled")
            raise JobAborted from None
        if run is not None:
            self._tell(f"run {run_id} {run.status}{f': {run.error.message}' if run.error else ''}")
            if run.status == "waiting":
                await self._wake(run, context.job)

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
