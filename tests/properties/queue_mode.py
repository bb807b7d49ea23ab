"""Random flows through the queue: submitted to a store on PostgreSQL, and driven by a real worker until they end."""

from __future__ import annotations

from contextlib import chdir

from flowengine.engine.events import RunFinished
from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import requeue, submit
from flowengine.runtime.queue.worker import work
from flowengine.runtime.run import Run
from tests.properties import world
from tests.properties.comparing import observe
from tests.properties.random_flows import Case
from tests.properties.run_modes import Bench, answer_all, raise_differences
from tests.support.queue_runs import QUICK

__all__ = ["check_in_queue"]


async def check_in_queue(bench: Bench, store: PostgresStore, case: Case) -> None:
    """As `Bench.check`, for a run of a worker. The flow asks no model: the worker's would have to be scripted."""
    wanted = bench.meaning(case, case.first)
    flow = bench.flow(case.first)
    world.begin(case.down)
    with chdir(bench.folders[0]):
        raise_differences([("by a worker on PostgreSQL", wanted, observe(await _driven(flow, store, case)))])


async def _driven(flow: Flow, store: PostgresStore, case: Case) -> Run:
    """The run once its worker is done with it; a run that fails is put back as often as something was down."""
    run_id = await submit(store, flow.plan, case.first.inputs)
    tries = len(case.down)
    while True:
        await work(store, wait=False, pace=QUICK)
        last = store.events(run_id)[-1]
        assert isinstance(last, RunFinished)
        if last.status == "waiting":
            await answer_all(case, store, run_id)
        elif last.status == "failed" and tries:
            tries -= 1
        else:
            return await flow.resume(run_id, store=store)
        await requeue(store, run_id)
