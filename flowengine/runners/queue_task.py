"""The task of a worker: one job, which is to go on with a run until it ends, waits, or is stopped.

It goes on as anybody would, from what the store has of the run. So a job may be worked on twice without harm, and
one that is put back loses nothing. A run that this worker lacks something for is left to others; one that its workers
die of is ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
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

from flowengine.context import RunStatus
from flowengine.engine.events import Event, RunFinished, RunStarted
from flowengine.engine.scheduler import error_info
from flowengine.errors import (
    FlowEngineError,
    RunError,
    RunNotFoundError,
    StoreUnavailableError,
    StoreVersionError,
    SupersededError,
)
from flowengine.journal.approvals import open_questions
from flowengine.journal.classes import only_looking
from flowengine.journal.postgres import PostgresJournal, PostgresStore
from flowengine.journal.postgres_writer import HandedBackError
from flowengine.nodes.plan import Plan
from flowengine.runners import queue_loading
from flowengine.runners.local import resume
from flowengine.runners.queue import TASK, close_run, expiry_lock
from flowengine.runners.queue_lacks import forget, note
from flowengine.runners.queue_plans import LackingError, Plans, check_versions, limits_of
from flowengine.runners.run import Run
from flowengine.runners.takeovers import Deaths, deaths_of

__all__ = ["RunTask", "Tell"]

Tell = Callable[[str], None]

_FIRST: Final = 1.0
_LONGEST: Final = 30.0
"""Seconds until a run is offered again for which a worker lacked something."""
_TRIES: Final = 20
"""Of a run on which workers stumble without knowing why."""


class _How(NamedTuple):
    """What a job says beside its run."""

    after: int | None = None
    """The run's length when it was put into the queue."""
    if_waiting: bool = False
    """Only where it still waits for a person: what it asked has expired."""
    allow_changed: bool = False

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> _How:
        unknown = ", ".join(sorted(said.keys() - set(cls._fields)))
        if unknown:
            raise LackingError(f"the FlowEngine that knows what '{unknown}' means for a job")
        return cls(**said)

    def is_done(self, ended: RunStatus | None, length: int) -> bool:
        """Whether there is nothing to do: the run has ended since, by a job that did not live to say so."""
        if ended == "succeeded":
            return True
        if self.if_waiting:
            return ended != "waiting"
        return self.after is not None and length > self.after and ended not in (None, "cancelled")


class _PutBackError(Exception):
    """The worker stops: another one goes on with the run."""


class _StumbledError(Exception):
    """Something that nobody has thought of: this worker is broken, or the run is."""


class _Again(BaseRetryStrategy):
    """What is worth another worker's while: nothing that is wrong with the run itself."""

    def __init__(self, busy: float) -> None:
        self._busy = busy

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        if isinstance(exception, _PutBackError):
            return RetryDecision(retry_at=datetime.now(UTC))
        if isinstance(exception, LackingError | _StumbledError):
            # Ever later, and not in step with other workers that lack it too.
            seconds = min(_FIRST * 2 ** min(job.attempts, 16), _LONGEST) * random.uniform(0.5, 1.0)
            return RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=seconds))
        if isinstance(exception, StoreUnavailableError):  # Another writes it, or the store is away for a while.
            return RetryDecision(retry_in={"seconds": max(1, round(self._busy))})
        return None


class RunTask:
    """Registers itself with the queue's library; `in_hand` are the jobs that it works on."""

    def __init__(
        self,
        app: App,
        store: PostgresStore,
        plans: Plans,
        *,
        takeovers: int,
        busy: float,
        tell: Tell,
    ) -> None:
        """`takeovers`: how often in a row a run is taken from writers that died. `busy`: seconds until a run is tried
        again that somebody else writes."""
        self._app, self._store, self._plans = app, store, plans
        self._takeovers, self._tell = takeovers, tell
        app.task(name=TASK, pass_context=True, retry=_Again(busy))(self._job)
        self.in_hand: set[int] = set()

    async def _job(self, context: JobContext, run_id: str, **how: Any) -> None:
        assert context.job.id is not None  # It comes from the queue.
        self.in_hand.add(context.job.id)
        try:
            await self._worked(context, run_id, how)
        finally:
            self.in_hand.discard(context.job.id)

    async def _worked(self, context: JobContext, run_id: str, how: Mapping[str, Any]) -> None:
        """One job: the run goes on until it ends, waits, or is stopped."""
        try:
            run = await self._run(run_id, _How.of(how), context.job)
        except HandedBackError:
            await close_run(self._store, run_id)
            self._put_back(run_id)
        except (SupersededError, RunNotFoundError) as error:  # There is nothing left to do here.
            self._tell(f"run {run_id}: {error}")
            return
        except LackingError as error:
            await anyio.to_thread.run_sync(note, self._store, run_id, str(error))
            self._tell(f"run {run_id} is left to others: this worker lacks {error}")
            raise
        except anyio.get_cancelled_exc_class():
            if context.abort_reason() is AbortReason.SHUTDOWN:
                self._put_back(run_id)
            self._tell(f"run {run_id} was cancelled")
            raise JobAborted from None
        except FlowEngineError:
            raise
        except Exception as error:
            await self._stumbled(run_id, error, context.job)
            return
        if run is not None:
            self._tell(f"run {run_id} {run.status}{f': {run.error.message}' if run.error else ''}")
            if run.status == "waiting":
                await self._wake(run_id, run.events, context.job)

    def _put_back(self, run_id: str) -> NoReturn:
        self._tell(f"run {run_id} is put back")
        raise _PutBackError(run_id) from None

    async def _run(self, run_id: str, how: _How, job: Job) -> Run | None:
        """The run, gone on with; None where it is not this job's any more."""
        journal = await self._store.take(run_id)
        try:
            plan, events = await self._looked_at(journal, how, job)
            if plan is None:
                return None
            started: Any = events[0]
            self._tell(f"run {run_id} {'begins' if len(events) == 1 else 'goes on'}: {started.flow}")
            return await resume(
                plan,
                run_id,
                self._store,
                limits=limits_of(plan, started),
                journal=journal,
                allow_changed=how.allow_changed,
            )
        except StoreUnavailableError:
            raise
        except StoreVersionError as error:
            raise LackingError(str(error)) from error
        except FlowEngineError as error:
            await journal.close()
            await self._end(run_id, error)
            return None
        finally:
            await journal.close()

    async def _looked_at(self, journal: PostgresJournal, how: _How, job: Job) -> tuple[Plan | None, Sequence[Event]]:
        """What the run is to go on with; None: it is not to."""
        with only_looking():  # Its flow, and with it its classes, is loaded below.
            events = await journal.read_beside()
        started, last = events[0], events[-1]
        assert isinstance(started, RunStarted)  # Stores give out no other runs.
        ended = last.status if isinstance(last, RunFinished) else None
        if how.is_done(ended, len(events)):
            if ended == "waiting":
                await self._wake(started.run_id, events, job)
            return None, events
        deaths = deaths_of(events)
        if deaths.in_a_row > self._takeovers:
            raise RunError(_given_up(deaths, self._takeovers))
        plan = self._plans.known(started) or await self._loaded(started)
        if not how.allow_changed:
            check_versions(plan, events)
        if job.attempts:
            await anyio.to_thread.run_sync(forget, self._store, started.run_id)
        journal.is_careful = deaths.in_a_row > 0
        return plan, events

    async def _stumbled(self, run_id: str, error: Exception, job: Job) -> None:
        """Others may fare better; where none does, the run is at fault."""
        said = f"{type(error).__name__}: {error}"
        if job.attempts + 1 < _TRIES:
            self._tell(f"run {run_id} is left to others: this worker stumbled ({said})")
            raise _StumbledError(said) from error
        await self._end(run_id, RunError(f"given up after {_TRIES} tries, each of which ended unexpectedly ({said})"))

    async def _loaded(self, started: RunStarted) -> Plan:
        """The plan, which is noted before: its code may take the worker with it."""
        tries = await anyio.to_thread.run_sync(queue_loading.begin, self._store, started.run_id)
        try:
            if tries > self._takeovers:
                raise RunError(
                    f"given up after {self._takeovers} takeovers: each worker that loaded the flow's code died of it"
                )
            return self._plans.loaded(started)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(queue_loading.end, self._store, started.run_id)

    async def _end(self, run_id: str, error: FlowEngineError) -> None:
        """The run could not go on at all: who looks at it is told why."""
        journal = await self._store.take(run_id)
        try:
            journal.append(RunFinished(time(), "failed", None, error_info(error)))
        finally:
            await journal.close()
        self._tell(f"run {run_id} failed: {error}")

    async def _wake(self, run_id: str, events: Sequence[Event], job: Job) -> None:
        """A run that waits holds no slot. Where its question expires, it is looked at again then."""
        times = [asked.expires for asked in open_questions(events).values() if asked.expires is not None]
        if not times:
            return
        at = datetime.fromtimestamp(min(times), UTC)
        task = self._app.configure_task(
            TASK,
            queue=job.queue,
            priority=job.priority,
            schedule_at=at,
            lock=expiry_lock(run_id),  # Not that of the run, whose own jobs would have to wait for it.
            queueing_lock=f"{run_id} at {at.isoformat()}",
        )
        try:
            await task.defer_async(run_id=run_id, if_waiting=True)
        except AlreadyEnqueued:
            return


def _given_up(deaths: Deaths, takeovers: int) -> str:
    nodes = " and ".join(f"'{each}'" for each in deaths.nodes)
    where = f", last in node{'s' if len(deaths.nodes) > 1 else ''} {nodes}" if nodes else ""
    return f"given up after {takeovers} takeovers{where}: each worker that had the run died, and nothing new finished"
