"""Starts, answers, resumes, forks, cancels and follows the runs of one store, whichever door somebody comes by.

A run goes on in this process, which also wakes it when what it asks expires, or in the store's queue, whose workers do
so. Nothing here knows HTTP, and nothing here decides who may do what.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from flowengine.core import EMPTY
from flowengine.engine import Event, JournalStore, RunFinished, RunStarted
from flowengine.errors import FlowNotFoundError, JournalError, RunBusyError
from flowengine.journal import answer
from flowengine.runtime import DEFAULTS, Admission, RunDriver, RunOptions, StoppingError, settings_of
from flowengine.runtime.local import local
from flowengine.runtime.queue import queue_of
from flowengine.web.service.local_runs import FlowSource, LocalRuns, RunStart, log_failure
from flowengine.web.service.outcomes import start_of
from flowengine.web.service.run_follower import RunFollower

_LOG: Final = logging.getLogger("flowengine.serving")


class TakenAnswer(NamedTuple):
    """An answer that was taken."""

    node: str
    """Path of the node whose question it was."""
    goes_on: bool
    """Whether the run goes on now; else the answer is kept for the process that has its flow."""


class RunService(FlowSource):
    """The runs of one store: `async with service`. One event loop uses it; subclasses know which flows there are."""

    wakes: bool = True
    """Whether runs of the store go on by themselves when what they ask expires."""
    rescues: bool = True
    """Whether runs go on by themselves that a server has left which died."""
    retells: bool = False
    """Whether those who follow late are told from its beginning what is being written."""
    puts_back: bool = True
    """Whether runs that are on their way at the end go on at the next start; else they are cancelled."""

    def __init__(self, store: JournalStore, *, admission: Admission | None = None, grace: float = 20.0) -> None:
        """`grace`: seconds that runs may take to end when the service does."""
        self.store = store
        self.driver = RunDriver(store, admission or Admission(), log_failure, retells=self.retells)
        self._tasks: TaskGroup | None = None
        self.follower = RunFollower(store, self.driver.feed_of, self.driver.drives, retells=self.retells)
        self._local = LocalRuns(store, self, self.driver, self.follower)
        self._grace = grace

    # --- Its life

    @asynccontextmanager
    async def _run_tasks(self) -> AsyncGenerator[Self]:
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.driver.begin(tasks)
            self.follower.begin(tasks)
            if self.wakes:
                self._local.begin_waking(tasks, rescues=self.rescues)
            try:
                yield self
            except Exception as error:
                failure = error  # Raised once the group is closed, so that it comes out alone.
            finally:
                with anyio.CancelScope(shield=True):
                    await self.drain()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        self._life = self._run_tasks()
        return await self._life.__aenter__()

    async def __aexit__(self, *exception: Any) -> bool | None:
        return await self._life.__aexit__(*exception)

    async def drain(self) -> None:
        """Take nothing more; runs end within the grace, or are put back for the next start, or cancelled."""
        if self.driver.is_stopping:
            return
        for run_id in await self.driver.end(self._grace, puts_back=self.puts_back):
            if self.puts_back:
                _LOG.warning("run %s is put back: it goes on at the next start", run_id)
        self.follower.end()

    # --- What is done with a run

    async def begin(self, start: RunStart, *, queue: str | None = None, tokens: bool = False) -> bool:
        """Begin a new run, which the store has when this returns; False, or a `JournalError`: its id is there already.

        `queue`: where a worker takes it from; None: it goes on here. `tokens`: those who follow it here hear what
        agents write while they write it.
        """
        if self._tasks is None:
            raise StoppingError("nothing runs here: the app's lifespan has not begun")
        if queue is not None:
            from flowengine.runtime.queue import queue_store, submit_runs  # Needs its extra.

            if self.driver.is_stopping:
                self.driver.admit()
            store, runs = queue_store(self.store), {start.run_id: start.inputs}
            with suppress(RunBusyError):
                if await anyio.to_thread.run_sync(store.status_of, start.run_id) is None:
                    return start.run_id in await submit_runs(store, start.flow.plan, runs, start.options, queue=queue)
            return False
        with suppress(RunBusyError):
            await self._local.begin(start, tokens)
            return True
        return False

    async def answer(
        self,
        run_id: str,
        question: str | None,
        choice: str,
        values: Any = None,
        by: str = "",
        *,
        comment: str = "",
        asked: float | None = None,
    ) -> TakenAnswer:
        """Answer what the run waits with, which then goes on, unless its flow is not here: then the answer is kept.

        `question`: the node's path; None where it waits with one. `values`: what its form asks for. `asked`: when the
        question was asked, where no later one is meant. `ApprovalError` says why an answer is not taken. A run that is
        at work is left to its owner, who takes the answer in.
        """
        events = await self.follower.events(run_id)
        reply = await answer(self.store, run_id, question, choice, comment=comment, by=by, form=values, asked=asked)
        if reply.writer is not None or await self._requeue(run_id, events):
            return TakenAnswer(reply.node, True)
        try:
            return TakenAnswer(reply.node, await self._local.go_on(run_id))
        except RunBusyError:  # The process that has it since has the answer.
            return TakenAnswer(reply.node, True)

    async def resume(self, run_id: str, options: RunOptions = DEFAULTS) -> None:
        """Resume a run that failed, was cancelled, or was interrupted; one that is on its way here is left to go on.

        A run of a queue goes back there, unless a person's decision goes with it, which no queue carries.
        """
        is_decided = bool(options.retry_effects or options.assume_done or options.repeat_failed_items)
        if self.driver.drives(run_id):
            if is_decided or options.allow_changed or options.settings:
                raise JournalError(f"run '{run_id}' is on its way here: what was chosen for it does not reach it")
            return
        events = await self.follower.events(run_id)
        how: Mapping[str, Any] = {"allow_changed": options.allow_changed, "settings": options.settings}
        if not is_decided and await self._requeue(run_id, events, **how):
            return
        if not await self._local.go_on(run_id, options):
            raise _not_here(start_of(events))

    async def fork(
        self,
        run_id: str,
        node: str,
        *,
        state: Mapping[str, Any] = EMPTY,
        inputs: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] = EMPTY,
    ) -> str:
        """The id of a new run that shares a run's past and begins at a node (`runtime.local.fork`). One of a run that
        was submitted goes into its queue."""
        events = await self.follower.events(run_id)
        started = start_of(events)
        flow = await self.find_flow(started, limits.get("model") or settings_of(events).get("model"))
        if flow is None:
            raise _not_here(started)
        new_id = local.new_run_id()
        if queue_of(self.store, started) is None:
            options = RunOptions(run_id=new_id, settings=limits)
            await self._local.fork(flow, run_id, node, options, state=state, inputs=inputs)
            return new_id
        from flowengine.runtime.queue import PYTHON, queue_store, requeue  # Needs its extra.

        here = {"baggage": flow.plan.baggage, "python": PYTHON, **limits}
        await local.write_fork(
            flow.plan, run_id, self.store, node, new_id=new_id, settings=here, state=state, inputs=inputs
        )
        await requeue(queue_store(self.store), new_id)
        return new_id

    async def cancel(self, run_id: str) -> None:
        """Cancel the run, wherever it is; `JournalError` where there is nothing to stop."""
        if await self.driver.cancel(run_id):
            return
        events = await self.follower.events(run_id)
        if queue_of(self.store, start_of(events)) is not None:
            from flowengine.runtime.queue import cancel, queue_store  # Needs its extra.

            if await cancel(queue_store(self.store), run_id) != "nothing to stop":
                return
        elif await self._local.cancel_parked(run_id):
            return
        last = events[-1]
        status = last.status if isinstance(last, RunFinished) else "running"
        how = "it is at work in another process" if status == "running" else f"it is {status}"
        raise JournalError(f"run '{run_id}' cannot be cancelled: {how}")

    async def events(self, run_id: str, after: int = 0) -> Sequence[Event]:
        """Returns the stored events of a run; `RunNotFoundError` where there is none."""
        return await self.follower.events(run_id, after)

    def drives(self, run_id: str) -> bool:
        """Tells whether a run is one of this process."""
        return self.driver.drives(run_id)

    async def _requeue(self, run_id: str, events: Sequence[Event], **how: Any) -> bool:
        """Put the run back into its queue; False: it is of none."""
        if queue_of(self.store, start_of(events)) is None:
            return False
        from flowengine.runtime.queue import queue_store, requeue  # Needs its extra.

        await requeue(queue_store(self.store), run_id, **how)
        return True


def _not_here(started: RunStarted) -> FlowNotFoundError:
    return FlowNotFoundError(f"run '{started.run_id}' is of flow '{started.flow}', which is not here")
