"""A worker: takes runs from a queue and drives them, several at a time, until it is told to stop.

What it is told by procrastinate is which run is next. It goes on with that run as anybody would, from what the
store has of it, with the flow's own text: a run that was begun elsewhere is no different from a new one. So a job
may be worked on twice without harm, and one that is put back loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import anyio
from procrastinate import App

from flowengine.journal.postgres import PostgresStore
from flowengine.journal.postgres_rates import PostgresRates
from flowengine.runners.queue import opened
from flowengine.runners.queue_connection import PatientConnector
from flowengine.runners.queue_plans import Plans
from flowengine.runners.queue_rescue import WORKER, Rescue
from flowengine.runners.queue_staying import Staying
from flowengine.runners.queue_task import RunTask, Tell

__all__ = ["Pace", "work"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. A worker that died is heard of no more after `stalled`; its runs go on elsewhere within ten."""

    grace: float = 20.0
    """That runs have when the worker is told to stop. For the first half they go on, in the second they begin nothing
    more: calls that are on their way end, so that they are not paid for twice. Then runs are interrupted."""
    heartbeat: float = 1.0
    stalled: float = 3.5
    """After the last heartbeat of a worker whose connection to the store is gone, too, its runs are another's."""
    hanging: float = 30.0
    """After the last heartbeat of any worker; one on a machine that is far too busy is late by many seconds."""
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
    takeovers: int = 5,
    wait: bool = True,
) -> None:
    """Drive the runs of a queue, until SIGTERM or Ctrl-C; without `wait`, until there is none that could begin.

    `tell` hears a line for each run that begins or ends. `environ`: where the flows' keys are looked up. The limits
    of providers are kept by all workers of the store together. A run is given up whose writers die so often in a row:
    it is taken over `takeovers` times, and not once more.
    """
    pace = pace or Pace()
    store.role = WORKER
    store.wait_for(pace.patience)
    rates = PostgresRates(store.url)
    async with AsyncExitStack() as stack:
        stack.callback(rates.close)
        app = await stack.enter_async_context(opened(store, kind=PatientConnector))
        plans = Plans(environ, rates.limiter)
        task = RunTask(app, store, plans, takeovers=takeovers, busy=pace.busy, tell=tell)
        rescue = Rescue(app, store, queue, stalled=pace.stalled, hanging=pace.hanging, pause=pace.rescue)
        await rescue.look()
        options = {
            "queues": [queue],
            "concurrency": concurrency,
            "wait": wait,
            "shutdown_graceful_timeout": pace.grace,
            "update_heartbeat_interval": pace.heartbeat,
            "stalled_worker_timeout": pace.hanging,
            "fetch_job_polling_interval": pace.poll,
            "abort_job_polling_interval": pace.poll,
            "delete_jobs": "successful",
        }
        staying = Staying(app, rescue, pause=pace.rescue, in_hand=task.in_hand, tell=tell, options=options)
        await staying.run(partial(_hurry, app, store, pace))


async def _hurry(app: App, store: PostgresStore, pace: Pace) -> None:
    """A worker that is told to stop waits no longer than its runs may for a server that is away."""
    store.wait_for(pace.grace)
    if isinstance(app.connector, PatientConnector):
        app.connector.stop_waiting(2 * pace.grace)
    await anyio.sleep(pace.grace / 2)
    store.hand_back()
