"""Runs a set of flows by name for callers, each of whom sees its own runs and spends its own budget.

A run that is started with a key is the run of that key: the store's own uniqueness of ids decides who begins it, so
it is one run for all servers of the store, also after a restart; a repeated call finds it running, waiting or done.
With a store on PostgreSQL runs go into its queue. Nothing here knows HTTP.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Final, get_args

import anyio
import anyio.to_thread

from flowengine.core import EMPTY, RunStatus
from flowengine.engine import JournalStore, RunFinished, RunInfo, RunStarted
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
from flowengine.journal import RunsAsked, check_labels, run_index_of
from flowengine.runs import RunRecord
from flowengine.runtime import DEFAULTS, Admission, DrivenRun, Followed, RunOptions, check_session_name
from flowengine.runtime.local import local
from flowengine.runtime.queue import check_queue_name, queue_of, standing_of
from flowengine.web.service.day_budgets import DAY, DayBudgets, book_run, cost_of
from flowengine.web.service.flow_catalog import Library
from flowengine.web.service.local_runs import RunStart, logging_failure
from flowengine.web.service.outcomes import (
    CALLER,
    SERVED,
    FlowCaller,
    KeyReusedError,
    RunOutcome,
    StartedRun,
    check_access,
    read_call,
    start_of,
)
from flowengine.web.service.run_service import RunService, TakenAnswer
from flowengine.web.service.start_requests import read_start, run_id_of_key

_STATUSES: Final[Sequence[str]] = get_args(RunStatus)
_RETRY: Final = 0.02
"""Seconds until a key is looked at again whose run did not begin after all."""


class FlowService(RunService):
    """Flows by name on one store, for callers: `async with FlowService(store, ["flows/"]) as service`."""

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
        super().__init__(store, admission=admission, grace=grace)
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.flows: Mapping[str, Flow] = _load_flows(flows, self.environ)
        self.driver.tell(self._settle_soon)
        self.budgets = DayBudgets(store)
        self._beginning: dict[str, anyio.Event] = {}
        """Runs that a call is about to begin."""
        self._settling = anyio.Lock()
        """Whether a run has ended is not looked at while it is taken up again."""
        self._folder = os.getcwd()  # From which the paths of the flows go out.
        self._queue = check_queue_name(queue) if hasattr(store, "transact") else None
        """None: runs go on here."""
        self.wakes = self.rescues = self._queue is None

    async def find_flow(self, started: RunStarted, model: str | None = None) -> Flow | None:
        return self.flows.get(started.flow)

    def has_flow(self, name: str) -> bool:
        return name in self.flows

    def owns(self, started: RunStarted) -> bool:
        return bool(read_call(started)) and started.flow in self.flows

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

    def flow(self, name: str, caller: FlowCaller | None = None) -> Flow:
        """`FlowNotFoundError`, also for one that the caller may not use."""
        names = self.names(caller)
        if name not in names:
            raise FlowNotFoundError(f"there is no flow '{name:.80}' here{did_you_mean(name[:80], names)}")
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
        own_labels = {**(labels or EMPTY), **({} if name is None else {CALLER: name})}
        if session is not None:
            check_session_name(session)
        if labels and name is not None and labels.get(CALLER, name) != name:
            raise InputError(f"label '{CALLER}' is set by the server")
        options = RunOptions(
            run_id=run_id,
            session=session if session is None or name is None else f"{name}/{session}",
            settings={**settings, "folder": self._folder, SERVED: {CALLER: name, "request": request}},
            labels=own_labels,
        )
        start = RunStart(run_id, self.flows[flow], inputs, options)
        while True:
            failure: JournalError | None = None
            try:
                if await self._begin_alone(start, caller, tokens, around):
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
        return check_access(RunOutcome.of(await self.follower.events(run_id)), caller)

    async def record(self, run_id: str, caller: FlowCaller | None = None) -> RunRecord:
        """All that is on record of the run: its nodes, its usage, its events."""
        events = await self.follower.events(run_id)
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
        async with aclosing(self.follower.follow(run_id, after, stay=stay)) as batches:
            async for each in batches:
                for item in each:
                    yield item

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
    ) -> TakenAnswer:
        """Answers like `RunService.answer`, in a run that the caller may know."""
        await self.outcome(run_id, caller)
        return await super().answer(run_id, question, choice, values, by, comment=comment, asked=asked)

    async def resume(self, run_id: str, options: RunOptions = DEFAULTS, *, caller: FlowCaller | None = None) -> None:
        """Resumes like `RunService.resume`, a run that the caller may know, and within what it may spend."""
        events = await self.follower.events(run_id)
        check_access(RunOutcome.of(events), caller)
        async with self._settling:
            started = start_of(events)
            if caller is not None and caller.budget_usd_day is not None and DAY in read_call(started):
                if self.driver.drives(run_id):
                    return
                day, most = read_call(started)[DAY], started.settings["cost_usd"]
                cost = cost_of(events)
                await anyio.to_thread.run_sync(self.budgets.reopen, caller, day, run_id, most, cost)
            await super().resume(run_id, options)

    async def cancel(self, run_id: str, caller: FlowCaller | None = None) -> None:
        """Cancels like `RunService.cancel`, a run that the caller may know."""
        await self.outcome(run_id, caller)
        await super().cancel(run_id)

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
        label_filter = {**check_labels(labels), **({} if caller is None else {CALLER: caller.name})}
        storable = flow.encode(errors="replace").decode().replace("\0", "?")
        index = run_index_of(self.store)  # A store may have very many runs, and a chat asks for each message.
        return (await anyio.to_thread.run_sync(index.find, RunsAsked(storable, status, label_filter), limit)).infos

    async def _begin_alone(
        self,
        start: RunStart,
        caller: FlowCaller | None,
        tokens: bool,
        around: Callable[[str], AbstractAsyncContextManager[None]] | None,
    ) -> bool:
        """Tells whether the run began by this call: of several for one run, one tries at a time."""
        run_id = start.run_id
        budgeted = caller if caller is not None and caller.budget_usd_day is not None else None
        driven = self.driver.find(run_id)
        beginning = self._beginning.get(run_id) if driven is None else driven.begun
        if beginning is not None:
            await beginning.wait()
            return False
        done = self._beginning[run_id] = anyio.Event()
        try:
            if (budgeted is not None or around is not None) and await self.follower.is_known(run_id):
                return False
            async with nullcontext() if around is None else around(run_id):
                if budgeted is None:
                    return await self.begin(start, queue=self._queue, tokens=tokens)
                return await self._begin_within(budgeted, start, tokens)
        finally:
            del self._beginning[run_id]
            done.set()

    async def _begin_within(self, caller: FlowCaller, start: RunStart, tokens: bool) -> bool:
        """Begins a run within what the caller may spend today."""
        await self._settle_ended(caller)
        limit = start.flow.plan.limits.bounds.cost_usd
        grant, day = await anyio.to_thread.run_sync(self.budgets.reserve, caller, start.run_id, limit)
        settings = start.options.settings
        settings = {**settings, SERVED: {**settings[SERVED], DAY: day}, "cost_usd": grant, "needs_prices": True}
        start = start._replace(options=replace(start.options, settings=settings))
        try:
            return await self.begin(start, queue=self._queue, tokens=tokens)
        except BaseException:
            with anyio.CancelScope(shield=True):
                if not self.driver.drives(start.run_id) and not await self.follower.is_known(start.run_id):
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
            events = await self.follower.events(run_id)
            is_queued = queue_of(self.store, start_of(events)) is not None
            if is_queued and await anyio.to_thread.run_sync(standing_of, self.store, run_id):
                return  # A worker is to go on with it.
            await anyio.to_thread.run_sync(book_run, self.budgets, events)

    async def _attach(self, run_id: str, request: str) -> RunOutcome | None:
        """Find the run of a key, which was begun before; one that no process goes on with goes on here."""
        events = await self.follower.events(run_id)
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


def _load_flows(sources: Iterable[Flow | str | PathLike[str]], environ: Mapping[str, str]) -> Mapping[str, Flow]:
    flows: dict[str, Flow] = {}
    for entry in Library(sources, environ).entries().values():
        flow = entry.flow()
        if flow.name in flows:
            where = " and ".join(f"'{each.plan.path or '(built in Python)'}'" for each in (flows[flow.name], flow))
            raise DefinitionError(f"two flows are named '{flow.name}': {where}; a flow is called by its name")
        flows[flow.name] = flow
    return flows
