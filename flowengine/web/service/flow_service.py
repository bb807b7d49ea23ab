"""Starts, follows, answers and cancels runs of a set of flows by name, for whatever other programs reach them by.

A run that is started with a key is the run of that key: the store's own uniqueness of ids decides who begins it, so
it is one run for all servers of the store, also after a restart; a repeated call finds it running, waiting or done.
With a store on PostgreSQL runs go into its queue. Nothing here knows HTTP.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Final, get_args

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from flowengine.core.context import EMPTY, RunStatus
from flowengine.engine.events import Event, RunFinished
from flowengine.engine.ports import JournalStore, RunInfo
from flowengine.errors import (
    DefinitionError,
    FlowNotFoundError,
    InputError,
    JournalError,
    RunBusyError,
    RunNotFoundError,
    did_you_mean,
)
from flowengine.flow import Flow
from flowengine.journal.approvals import answer
from flowengine.journal.run_index import RunsAsked, run_index_of
from flowengine.journal.run_lookup import check_labels
from flowengine.runs import RunRecord
from flowengine.runtime.driven_run import DrivenRun
from flowengine.runtime.local import local
from flowengine.runtime.queue.run_positions import check_queue_name, queue_of, standing_of
from flowengine.runtime.run import RunOptions
from flowengine.runtime.run_driver import Admission, RunDriver
from flowengine.runtime.run_feed import Followed
from flowengine.runtime.sessions import check_session_name
from flowengine.web.gate.api_keys import DayBudgets
from flowengine.web.service.flow_catalog import Library
from flowengine.web.service.local_runs import LocalRuns, RunStart, log_failure, logging_failure
from flowengine.web.service.outcomes import (
    CALLER,
    SERVED,
    AccessError,
    FlowCaller,
    KeyReusedError,
    RunOutcome,
    StartedRun,
    check_access,
    read_call,
    start_of,
)
from flowengine.web.service.run_booking import DAY, book_run, cost_of
from flowengine.web.service.run_follower import RunFollower
from flowengine.web.service.start_requests import read_start, run_id_of_key

__all__ = ["AccessError", "FlowCaller", "FlowService", "KeyReusedError", "RunOutcome", "StartedRun", "run_id_of_key"]

_LOG: Final = logging.getLogger("flowengine.serving")
_STATUSES: Final[Sequence[str]] = get_args(RunStatus)
_RETRY: Final = 0.02
"""Seconds until a key is looked at again whose run did not begin after all."""


class FlowService:
    """Flows by name on one store: `async with FlowService(store, ["flows/"]) as service`. One event loop uses it."""

    def __init__(
        self,
        store: JournalStore,
        flows: Iterable[Flow | str | PathLike[str]],
        *,
        admission: Admission | None = None,
        environ: Mapping[str, str] | None = None,
        grace: float = 20.0,
        queue: str = "default",
    ) -> None:
        """`flows`: objects, files, or folders of them; they are read now. `environ`: where they look for keys.

        `grace`: seconds that runs may take to end when the service does. `queue`: where runs go on PostgreSQL.
        Raises what is wrong with a flow, and `DefinitionError` for two of one name.
        """
        self.store = store
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.flows: Mapping[str, Flow] = _load_flows(flows, self.environ)
        self.driver = RunDriver(store, admission or Admission(), log_failure)
        self.driver.tell(self._settle_soon)
        self.budgets = DayBudgets(store)
        self._beginning: dict[str, anyio.Event] = {}
        """Runs that a call is about to begin."""
        self._settling = anyio.Lock()
        """Whether a run has ended is not looked at while it is taken up again."""
        self._tasks: TaskGroup | None = None
        self._follower = RunFollower(store, self.driver.feed_of, self.driver.drives)
        self._local = LocalRuns(store, self.flows, self.driver, self._follower)
        self._grace = grace
        self._folder = os.getcwd()  # From which the paths of the flows go out.
        self._queue = check_queue_name(queue) if hasattr(store, "transact") else None
        """None: runs go on here."""

    def check_models(self) -> None:
        """Raise what would keep runs here from the models that they mean: a missing key, or that none is chosen."""
        if self.is_queued:
            return  # Workers have the keys.
        for flow in self.flows.values():
            flow.plan.refuse_stand_in()
            if not flow.plan.prepares_slowly:
                flow.plan.prepare()

    @property
    def is_queued(self) -> bool:
        """Whether runs go into a queue, and workers go on with them."""
        return self._queue is not None

    @asynccontextmanager
    async def _run_tasks(self) -> AsyncGenerator[FlowService]:
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.driver.begin(tasks)
            self._follower.begin(tasks)
            if self._queue is None:
                self._local.begin_rescue(tasks)
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

    async def __aenter__(self) -> FlowService:
        self._life = self._run_tasks()
        return await self._life.__aenter__()

    async def __aexit__(self, *exception: Any) -> bool | None:
        return await self._life.__aexit__(*exception)

    async def drain(self) -> None:
        """Take nothing more; runs end within the grace, or are put back for the next start."""
        if self.driver.is_stopping:
            return
        for run_id in await self.driver.end(self._grace):
            _LOG.warning("run %s is put back: it goes on at the next start", run_id)
        self._follower.end()

    def flow(self, name: str, caller: FlowCaller | None = None) -> Flow:
        """`FlowNotFoundError`, also for one that the caller may not use."""
        known = self.names(caller)
        if name not in known:
            raise FlowNotFoundError(f"there is no flow '{name:.80}' here{did_you_mean(name[:80], known)}")
        return self.flows[name]

    def names(self, caller: FlowCaller | None = None) -> Sequence[str]:
        """The flows that the caller may use."""
        return [name for name in self.flows if caller is None or caller.may_use(name)]

    async def start(
        self,
        flow: str,
        inputs: Mapping[str, Any],
        *,
        run_key: str | None = None,
        run_id: str | None = None,
        caller: FlowCaller | None = None,
        labels: Mapping[str, str] | None = None,
        session: str | None = None,
        tokens: bool = False,
        settings: Mapping[str, Any] = EMPTY,
        around: Callable[[str], AbstractAsyncContextManager[None]] | None = None,
    ) -> StartedRun:
        """The run of the key, which begins where there is none yet; without a key it is a new one.

        It is in the store when this returns. `run_key`: of one caller and flow; with other inputs than before it is
        a `KeyReusedError`. `run_id`: the run's own, which no caller chooses. `session`: of one caller. `tokens`: those
        who follow hear what agents write while they write it. `around`: a block of the run's id in which a new run
        begins, for what has to be known beside it. `OverloadedError` and `StoppingError` where it cannot be taken now,
        `InputError` for inputs that do not fit; then nothing is written.
        """
        plan = self.flow(flow, caller).plan
        # Beside the event loop: a caller's inputs may be megabytes.
        inputs, request = await anyio.to_thread.run_sync(read_start, plan.inputs, inputs, session)
        name = None if caller is None else caller.name
        if run_key is not None:
            run_id = run_id_of_key(run_key, flow, name)
        run_id = run_id or local.new_run_id()
        given = {**(labels or EMPTY), **({} if name is None else {CALLER: name})}
        if session is not None:
            check_session_name(session)
        if labels and name is not None and labels.get(CALLER, name) != name:
            raise InputError(f"label '{CALLER}' is set by the server")
        options = RunOptions(
            run_id=run_id,
            session=session if session is None or name is None else f"{name}/{session}",
            settings={**settings, "folder": self._folder, SERVED: {CALLER: name, "request": request}},
            labels=given,
        )
        start = RunStart(run_id, inputs, options)
        while True:
            failure: JournalError | None = None
            try:
                if await self._begin_alone(flow, start, caller, tokens, around):
                    return StartedRun(run_id, True)
            except JournalError as error:  # The run is there already, or it cannot be written.
                failure = error
            with suppress(RunNotFoundError):  # It was about to begin, and did not.
                return StartedRun(run_id, False, await self._attach(run_id, request))
            if failure is not None:
                raise failure
            await anyio.sleep(_RETRY)

    async def outcome(self, run_id: str, caller: FlowCaller | None = None) -> RunOutcome:
        """Returns the run's state; raises `RunNotFoundError` also for a run of another caller."""
        return check_access(RunOutcome.of(await self._follower.events(run_id)), caller)

    async def record(self, run_id: str, caller: FlowCaller | None = None) -> RunRecord:
        """All that is on record of the run: its nodes, its usage, its events."""
        events = await self._follower.events(run_id)
        check_access(RunOutcome.of(events), caller)
        return RunRecord(events)

    async def wait(self, run_id: str, caller: FlowCaller | None = None) -> RunOutcome:
        """Waits until the run ends or asks a person, and returns its state.

        Raises what ended the run without a word in its record, and `StoppingError` where the service stops before.
        """
        driven = self.driver.find(run_id)
        if driven is None:
            outcome = await self.outcome(run_id, caller)
            if not outcome.is_settled:
                async for _ in self.follow(run_id, caller=caller):
                    pass
                outcome = await self.outcome(run_id, caller)
            return outcome
        if driven.started is not None:
            check_access(RunOutcome.between(driven.started, RunFinished(0, "running")), caller)
        await driven.ended.wait()
        if driven.failure is not None:
            raise driven.failure
        if driven.started is None or driven.finished is None or driven.finished.status == "waiting":
            return await self.outcome(run_id, caller)
        return check_access(RunOutcome.between(driven.started, driven.finished), caller)

    async def follow(
        self, run_id: str, after: int = 0, *, stay: bool = False, caller: FlowCaller | None = None
    ) -> AsyncGenerator[Followed]:
        """The run's events from a position on, until it has ended or waits; `stay`: also beyond what it waits for.

        What agents write comes between, without a position, where the run was started with `tokens`.
        """
        await self.outcome(run_id, caller)
        async with aclosing(self._follower.follow(run_id, after, stay=stay)) as found:
            async for each in found:
                yield each

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
        caller: FlowCaller | None = None,
    ) -> str:
        """Answer what the run waits with, which then goes on; the path of the question's node.

        `question`: the node's path; None where it waits with one. `values`: what its form asks for. `asked`: when the
        question was asked, where no later one is meant. `ApprovalError`
        says why an answer is not taken.
        """
        events = await self._follower.events(run_id)
        check_access(RunOutcome.of(events), caller)
        given = await answer(self.store, run_id, question, choice, comment=comment, by=by, form=values, asked=asked)
        if given.writer is None and not await self._requeue(run_id, events):
            with suppress(RunBusyError):  # The process that has it since has the answer.
                await self._local.go_on(run_id)
        return given.node

    async def resume(self, run_id: str, caller: FlowCaller | None = None) -> None:
        """Go on with a run that failed, was cancelled, or was interrupted."""
        events = await self._follower.events(run_id)
        check_access(RunOutcome.of(events), caller)
        if self.driver.drives(run_id):
            return
        started = start_of(events)
        async with self._settling:
            if caller is not None and caller.budget_usd_day is not None and DAY in read_call(started):
                day, most = read_call(started)[DAY], started.settings["cost_usd"]
                cost = cost_of(events)
                await anyio.to_thread.run_sync(self.budgets.reopen, caller, day, run_id, most, cost)
            if not await self._requeue(run_id, events):
                await self._local.go_on(run_id)

    async def cancel(self, run_id: str, caller: FlowCaller | None = None) -> None:
        """Stop the run, wherever it is; `JournalError` where there is nothing to stop."""
        events = await self._follower.events(run_id)
        outcome = check_access(RunOutcome.of(events), caller)
        if queue_of(self.store, start_of(events)) is not None:
            from flowengine.runtime.queue.run_queue import cancel, queue_store  # Needs its extra.

            if await cancel(queue_store(self.store), run_id) != "nothing to stop":
                return
        elif await self.driver.cancel(run_id) or await self._local.cancel_parked(run_id):
            return
        how = "it is at work in another process" if outcome.status == "running" else f"it is {outcome.status}"
        raise JournalError(f"run '{run_id}' cannot be cancelled: {how}")

    async def list_runs(
        self,
        caller: FlowCaller | None = None,
        *,
        flow: str = "",
        status: str = "",
        labels: Mapping[str, str] = EMPTY,
        limit: int = 100,
    ) -> Sequence[RunInfo]:
        """The runs that are asked for, of those that the caller has started; the newest first.

        `InputError` for a status that no run has.
        """
        if status not in ("", *_STATUSES):
            raise InputError(f"a run has no status '{status:.40}'{did_you_mean(status[:40], _STATUSES)}")
        wanted = {**check_labels(labels), **({} if caller is None else {CALLER: caller.name})}
        storable = flow.encode(errors="replace").decode().replace("\0", "?")
        index = run_index_of(self.store)  # A store may have very many runs, and a chat asks for each message.
        return (await anyio.to_thread.run_sync(index.find, RunsAsked(storable, status, wanted), limit)).infos

    async def _begin_alone(
        self,
        flow: str,
        start: RunStart,
        caller: FlowCaller | None,
        tokens: bool,
        around: Callable[[str], AbstractAsyncContextManager[None]] | None,
    ) -> bool:
        """Tells whether the run began by this call: of several for one run, one tries at a time."""
        run_id = start.run_id
        budgeted = caller if caller is not None and caller.budget_usd_day is not None else None
        driven = self.driver.find(run_id)
        begun = self._beginning.get(run_id) if driven is None else driven.begun
        if begun is not None:
            await begun.wait()
            return False
        done = self._beginning[run_id] = anyio.Event()
        try:
            if (budgeted is not None or around is not None) and await self._follower.is_known(run_id):
                return False
            async with nullcontext() if around is None else around(run_id):
                if budgeted is None:
                    return await self._begin(flow, start, tokens)
                return await self._begin_within(budgeted, flow, start, tokens)
        finally:
            del self._beginning[run_id]
            done.set()

    async def _begin_within(self, caller: FlowCaller, flow: str, start: RunStart, tokens: bool) -> bool:
        """As `_begin`, within what the caller may spend today."""
        await self._settle_ended(caller)
        limit = self.flows[flow].plan.limits.bounds.cost_usd
        given, day = await anyio.to_thread.run_sync(self.budgets.reserve, caller, start.run_id, limit)
        settings = start.options.settings
        settings = {**settings, SERVED: {**settings[SERVED], DAY: day}, "cost_usd": given, "needs_prices": True}
        start = start._replace(options=replace(start.options, settings=settings))
        try:
            return await self._begin(flow, start, tokens)
        except BaseException:
            with anyio.CancelScope(shield=True):
                if not self.driver.drives(start.run_id) and not await self._follower.is_known(start.run_id):
                    await anyio.to_thread.run_sync(self.budgets.settle, caller.name, day, start.run_id, 0.0)
            raise

    async def _settle_ended(self, caller: FlowCaller) -> None:
        """Settle runs that ended elsewhere: in a worker, or in a server that died before it could."""
        for run_id in await anyio.to_thread.run_sync(self.budgets.open_runs, caller):
            if not self.driver.drives(run_id):
                with suppress(RunNotFoundError):
                    await self._settle(run_id)

    def _settle_soon(self, driven: DrivenRun) -> None:
        """A run that went on here has ended or waits."""
        is_bound = driven.started is None or DAY in read_call(driven.started)
        if self._tasks is not None and is_bound:
            self._tasks.start_soon(logging_failure, partial(self._settle, driven.run_id), f"run {driven.run_id}")

    async def _settle(self, run_id: str) -> None:
        async with self._settling:
            if self.driver.drives(run_id):  # It was resumed since.
                return
            events = await self._follower.events(run_id)
            is_queued = queue_of(self.store, start_of(events)) is not None
            if is_queued and await anyio.to_thread.run_sync(standing_of, self.store, run_id):
                return  # A worker is to go on with it.
            await anyio.to_thread.run_sync(book_run, self.budgets, events)

    async def _begin(self, flow: str, start: RunStart, tokens: bool) -> bool:
        """Tells whether the run began; False, or a `JournalError`: its id may be there already."""
        with suppress(RunBusyError):
            if self._queue is not None:
                return await self._submit(flow, start)
            await self._local.begin(flow, start, tokens)
            return True
        return False

    async def _attach(self, run_id: str, request: str) -> RunOutcome | None:
        """Find the run of a key, which was begun before; one that no process goes on with goes on here."""
        events = await self._follower.events(run_id)
        if read_call(start_of(events)).get("request") != request:
            raise KeyReusedError(
                "this key was used with other inputs: a key is good for one run; take another for another run"
            )
        outcome = RunOutcome.of(events)
        if self.driver.drives(run_id):  # It goes on, whatever its record says yet.
            return None
        if outcome.is_settled:
            return outcome
        if self._queue is None:
            with suppress(RunBusyError):
                await self._local.go_on(run_id)
        return None

    async def _submit(self, flow: str, start: RunStart) -> bool:
        from flowengine.runtime.queue.run_queue import queue_store, submit_runs  # Needs its extra.

        if self.driver.is_stopping:
            self.driver.admit()
        store = queue_store(self.store)
        if await anyio.to_thread.run_sync(store.status_of, start.run_id) is not None:
            return False
        runs, queue = {start.run_id: start.inputs}, self._queue or "default"
        new = await submit_runs(store, self.flows[flow].plan, runs, start.options, queue=queue)
        return start.run_id in new

    async def _requeue(self, run_id: str, events: Sequence[Event]) -> bool:
        """Put the run back into its queue; False: it is of none."""
        if queue_of(self.store, start_of(events)) is None:
            return False
        from flowengine.runtime.queue.run_queue import queue_store, requeue  # Needs its extra.

        await requeue(queue_store(self.store), run_id)
        return True


def _load_flows(given: Iterable[Flow | str | PathLike[str]], environ: Mapping[str, str]) -> Mapping[str, Flow]:
    found: dict[str, Flow] = {}
    for entry in Library(given, environ).entries().values():
        flow = entry.flow()
        if flow.name in found:
            where = " and ".join(f"'{each.plan.path or '(built in Python)'}'" for each in (found[flow.name], flow))
            raise DefinitionError(f"two flows are named '{flow.name}': {where}; a flow is called by its name")
        found[flow.name] = flow
    return found
