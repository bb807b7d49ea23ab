"""Starts, answers, resumes and cancels runs, for pages and API alike. It decides on no access."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from flowengine.core.context import EMPTY
from flowengine.engine.events import RunFinished, RunStarted, TokenStreamed
from flowengine.errors import RunBusyError, StoreCorruptError
from flowengine.journal.approvals import answer
from flowengine.runtime.driven_run import DrivenRun
from flowengine.runtime.local import local
from flowengine.runtime.queue.run_positions import queue_of
from flowengine.runtime.run import DEFAULTS, Live, Run, RunOptions, settings_of
from flowengine.runtime.run_driver import RunDriver, Work
from flowengine.web.gate.problems import ProblemError
from flowengine.web.service.flow_catalog import CatalogEntry, Library
from flowengine.web.service.run_cache import RunCache

__all__ = ["ApprovalDecision", "RunCommands"]


class ApprovalDecision(NamedTuple):
    """A person's answer."""

    choice: str
    comment: str = ""
    form: Any = None
    by: str = ""


class RunCommands:
    """On one store, with the flows of one library; what it begins goes on in this process (`driver`) or a queue."""

    def __init__(
        self, shelf: RunCache, library: Library, driver: RunDriver, heard: Callable[[str, TokenStreamed], None]
    ) -> None:
        """`heard`: told of what agents write in the runs of this process."""
        self._shelf = shelf
        self._library = library
        self._driver = driver
        self._heard = heard

    async def start(self, name: str, inputs: Mapping[str, Any], **how: Any) -> str:
        """`start_entry` of the flow of that name."""
        return await self.start_entry(await self._shelf.do(self._library.find, name), inputs, **how)

    async def start_entry(
        self,
        entry: CatalogEntry,
        inputs: Mapping[str, Any],
        *,
        run_id: str | None = None,
        session: str | None = None,
        reuse: str | None = None,
        model: str | None = None,
        labels: Mapping[str, str] = EMPTY,
        limits: Mapping[str, Any] = EMPTY,
        queue: str | None = None,
    ) -> str:
        """The id of a new run, whose start is in the journal. `queue`: where a worker takes it from; None: this process
        runs it. `limits`: by their names in a flow file."""
        flow = await self._shelf.do(entry.flow, model)
        earlier = None if reuse is None else await self._shelf.do(self._shelf.store.find, reuse)
        settings = {"folder": os.getcwd(), **({} if model is None else {"model": model}), **limits}
        chosen = local.new_run_id() if run_id is None else run_id
        options = RunOptions(run_id=chosen, session=session, reuse=earlier, settings=settings, labels=labels)
        if queue is not None:
            from flowengine.runtime.queue.run_queue import queue_store, submit_runs  # Needs its extra.

            await submit_runs(queue_store(self._shelf.store), flow.plan, {chosen: inputs}, options, queue=queue)
            return chosen

        async def work(driven: DrivenRun) -> Run:
            return await local.start(flow.plan, inputs, driven.store, replace(options, live=self.listener(chosen)))

        await self.begin(chosen, flow.name, work)
        return chosen

    async def fork(
        self,
        run_id: str,
        node: str,
        *,
        state: Mapping[str, Any] = EMPTY,
        inputs: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] = EMPTY,
    ) -> str:
        """The id of a new run that shares a run's past and begins at a node (`runners.local.fork`). One of a run that
        was submitted goes into its queue."""
        started, _ = await self._ends(run_id)
        entry = await self._find_flow(started)
        flow = await self._shelf.do(entry.flow, limits.get("model") or started.settings.get("model"))
        new_id = local.new_run_id()
        how: dict[str, Any] = {"state": state, "inputs": inputs}
        if queue_of(self._shelf.store, started) is not None:
            from flowengine.runtime.queue.run_queue import PYTHON  # Needs its extra.

            here = {"baggage": flow.plan.baggage, "python": PYTHON, **limits}
            await local.write_fork(flow.plan, run_id, self._shelf.store, node, new_id=new_id, settings=here, **how)
            await self._requeue(new_id)
            return new_id

        options = RunOptions(run_id=new_id, settings=limits, live=self.listener(new_id))

        async def work(driven: DrivenRun) -> Run:
            return await local.fork(flow.plan, run_id, driven.store, node, options=options, **how)

        await self.begin(new_id, flow.name, work)
        return new_id

    async def approve(
        self, run_id: str, node: str | None, given: ApprovalDecision, asked: float | None = None
    ) -> tuple[str, bool]:
        """Write the answer down and go on with the run; the node's path, and whether the run goes on now. `asked`:
        when the question was asked, where no later one is meant.

        One that was submitted is put back into its queue. It does not go on where this server does not have the run's
        flow: then the answer is kept all the same. A run that is at work, here or elsewhere, is left to its owner, who
        takes the answer in.
        """
        started, _ = await self._ends(run_id)
        is_submitted = queue_of(self._shelf.store, started) is not None
        entry = None if is_submitted else await self._shelf.do(self._library.of_run, started)
        choice, comment, form, by = given
        path, writer = await answer(
            self._shelf.store, run_id, node, choice, comment=comment, by=by, form=form, asked=asked
        )
        if writer is not None:
            return path, True
        if is_submitted:
            await self._requeue(run_id)
        elif entry is not None:
            with suppress(RunBusyError):  # The process that has it since has the answer.
                await self._go_on(run_id, entry, DEFAULTS)
        return path, is_submitted or entry is not None

    async def resume(
        self,
        run_id: str,
        *,
        allow_changed: bool = False,
        retry_effects: Collection[str] = (),
        assume_done: Collection[str] = (),
        limits: Mapping[str, Any] = EMPTY,
        repeat_failed_items: bool = False,
    ) -> None:
        """`limits`: those that are chosen anew, by their names in a flow file, and the model. A run that was submitted
        goes back into its queue, unless a person's decision goes with it, which no queue carries."""
        if self._driver.drives(run_id):
            raise ProblemError(409, "It is running", f"run '{run_id}' is being run by this server")
        started, finished = await self._ends(run_id)
        if finished is not None and finished.status == "succeeded" and not repeat_failed_items:
            raise ProblemError(409, "It is over", f"run '{run_id}' has succeeded already")
        is_decided = bool(retry_effects or assume_done or repeat_failed_items)
        if not is_decided and queue_of(self._shelf.store, started) is not None:
            await self._requeue(run_id, allow_changed=allow_changed, settings=limits)
            return
        options = RunOptions(
            allow_changed=allow_changed,
            retry_effects=retry_effects,
            assume_done=assume_done,
            repeat_failed_items=repeat_failed_items,
            settings=limits,
        )
        await self._go_on(run_id, await self._find_flow(started), options)

    async def cancel(self, run_id: str) -> None:
        if await self._driver.cancel(run_id):
            return
        started, finished = await self._ends(run_id)
        if queue_of(self._shelf.store, started) is not None:
            from flowengine.runtime.queue.run_queue import cancel, queue_store  # Needs its extra.

            if await cancel(queue_store(self._shelf.store), run_id) != "nothing to stop":
                return
        if finished is None:
            why = "another process drives it, or it was interrupted: stop it there"
        elif finished.status in ("waiting", "paused"):
            why = f"it is not running: it is {finished.status}"
        else:
            why = f"it is over: it {finished.status}"
        raise ProblemError(409, "It cannot be cancelled here", f"run '{run_id}': {why}")

    def drives(self, run_id: str) -> bool:
        """Tells whether a run is one of this process."""
        return self._driver.drives(run_id)

    async def wait(self, run_id: str) -> None:
        """Until a run of this process has ended."""
        await self._driver.wait(run_id)

    def listener(self, run_id: str) -> Live:
        """Hears what agents write in a run of this process."""
        return partial(self._heard, run_id)

    async def begin(self, run_id: str, flow: str, work: Work) -> None:
        """Begin the work on a run; raises what it raises before anything of it is in the store."""
        if self._driver.is_stopping:
            raise ProblemError(503, "Not running", "the app's lifespan has not begun, or is over")
        if self._driver.drives(run_id):
            raise RunBusyError(f"run '{run_id}' is being written by this server", f"process {os.getpid()}")
        driven = self._driver.reserve(run_id, flow)
        await self._driver.launch(driven, work)
        await driven.begun.wait()
        if driven.failure is not None and not driven.is_recorded:
            raise driven.failure

    async def _requeue(self, run_id: str, **how: Any) -> None:
        from flowengine.runtime.queue.run_queue import queue_store, requeue  # Needs its extra.

        await requeue(queue_store(self._shelf.store), run_id, **how)

    async def _go_on(self, run_id: str, entry: CatalogEntry, options: RunOptions) -> None:
        model = options.settings.get("model") or settings_of(await self._shelf.events(run_id)).get("model")
        flow = await self._shelf.do(entry.flow, model)

        async def work(driven: DrivenRun) -> Run:
            return await local.resume(flow.plan, run_id, driven.store, replace(options, live=self.listener(run_id)))

        await self.begin(run_id, flow.name, work)

    async def _find_flow(self, started: RunStarted) -> CatalogEntry:
        entry = await self._shelf.do(self._library.of_run, started)
        if entry is None:
            raise ProblemError(
                409, "Its flow is not here", f"this server does not have the flow '{started.flow}': "
                f"use `flowengine resume {started.run_id}`"
            )  # fmt: skip
        return entry

    async def _ends(self, run_id: str) -> tuple[RunStarted, RunFinished | None]:
        """The first event, and the last one where it ends the run."""
        events = await self._shelf.events(run_id)
        if not events or not isinstance(events[0], RunStarted):
            raise StoreCorruptError(f"run {run_id}: the journal does not begin with its start")
        return events[0], events[-1] if isinstance(events[-1], RunFinished) else None
