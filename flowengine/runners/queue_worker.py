"""A worker: takes runs from a queue and drives them, several at a time, until it is told to stop.

What it is told by procrastinate is which run is next. It goes on with that run as anybody would, from what the
store has of it, with the flow's own text: a run that was begun elsewhere is no different from a new one. So a job
may be worked on twice without harm, and one that is put back loses nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from procrastinate import App

from flowengine.journal.postgres import PostgresStore
from flowengine.journal.postgres_rates import PostgresRates
from flowengine.runners.notices import Tell
from flowengine.runners.queue import opened
from flowengine.runners.queue_connection import PatientConnector
from flowengine.runners.queue_orphans import Orphans
from flowengine.runners.queue_plans import Plans
from flowengine.runners.queue_presence import Presence
from flowengine.runners.queue_rescue import WORKER, Rescue
from flowengine.runners.queue_sharing import Sharing
from flowengine.runners.queue_staying import Ending, Staying
from flowengine.runners.queue_task import RunTask
from flowengine.runners.queue_vitals import Vitals

__all__ = ["Pace", "work"]

_NEVER: Final = 1e9
_INTERRUPTED: Final = 0.75
"""Of the grace, after which runs are interrupted."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. A worker that died is heard of no more after `stalled`; its runs go on elsewhere within ten."""

    grace: float = 20.0
    """Until the worker has ended that is told to stop. For the first half runs go on, then they begin nothing more:
    calls that are on their way end, so that they are not paid for twice. After three quarters what is left is
    interrupted, so that it is written and put back within the grace."""
    heartbeat: float = 1.5
    """Between two signs of life, each of which is also a look for runs of workers that are gone."""
    stalled: float = 3.5
    """After the last heartbeat of a worker whose connection to the store is gone, too, its runs are another's."""
    hanging: float = 30.0
    """After the last heartbeat of any worker; one on a machine that is far too busy is late by many seconds."""
    orphans: float = 30.0
    """Between two looks for runs without a job; what is without one twice is put back into its queue."""
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
    environ: Mapping[str, str] | None = None,
    takeovers: int = 5,
    wait: bool = True,
    health: socket.socket | None = None,
) -> None:
    """Drive the runs of a queue, until SIGTERM or Ctrl-C; without `wait`, until there is none that could begin.

    `tell` hears a line for each run that begins or ends. `health`: a bound socket, on which `/healthz`, `/readyz` and
    `/metrics` are answered for as long as the worker lives. `environ`: where the flows' keys are looked up; None: in
    the process's environment. The limits of providers are kept by all workers of the store together. A run is given up
    whose writers die so often in a row: it is taken over `takeovers` times, and not once more. Raises
    `StoreVersionError` where a newer FlowEngine has the store; where it has since the worker began, what that had in
    hand is put back first.
    """
    pace = pace or Pace()
    store.role = WORKER
    store.wait_for(pace.patience)
    rates = PostgresRates(store.url)
    await anyio.to_thread.run_sync(store.check_version)
    async with AsyncExitStack() as stack:
        stack.callback(rates.close)
        app = await stack.enter_async_context(opened(store, connections=2, kind=PatientConnector))
        plans = Plans(os.environ if environ is None else environ, rates.limiter)
        ending = Ending()
        vitals = Vitals(queue, concurrency, fresh=pace.stalled + 2 * pace.heartbeat)
        tell = vitals.counting(tell)
        task = RunTask(app, store, plans, takeovers=takeovers, busy=pace.busy, tell=tell, refuse=ending.refuse)
        vitals.in_hand = task.in_hand
        if health is not None:
            from flowengine.runners.queue_health import answering  # Only who asks for it needs a server.

            await stack.enter_async_context(answering(health, vitals, store.url))
        rescue = Rescue(app, store, queue, stalled=pace.stalled, hanging=pace.hanging, pause=pace.heartbeat)
        await rescue.look()
        options = {
            "queues": [queue],
            "concurrency": concurrency,
            "wait": wait,
            "shutdown_graceful_timeout": _INTERRUPTED * pace.grace,
            "update_heartbeat_interval": _NEVER,  # `Rescue` does it with what it asks.
            "stalled_worker_timeout": pace.hanging,
            "fetch_job_polling_interval": pace.poll,
            "abort_job_polling_interval": pace.poll,
            "delete_jobs": "always",  # The run's own record says how it ended.
        }
        staying = Staying(
            app,
            rescue,
            Orphans(store),
            Presence(app, queue, concurrency),
            Sharing(app, queue, task.turns.company, stalled=pace.stalled),
            pause=pace.heartbeat,
            orphans_pause=pace.orphans,
            in_hand=task.in_hand,
            tell=tell,
            vitals=vitals,
            ending=ending,
            options=options,
        )
        await staying.run(partial(_hurry, app, store, pace))


async def _hurry(app: App, store: PostgresStore, pace: Pace) -> None:
    """A worker that is told to stop waits no longer than its runs may for a server that is away."""
    store.wait_for(pace.grace / 2)
    if isinstance(app.connector, PatientConnector):
        app.connector.stop_waiting(pace.grace)
    await anyio.sleep(pace.grace / 2)
    store.hand_back()
