"""Takes runs from a queue and drives them, several at a time, until it is told to stop.

What it is told by procrastinate is which run is next. It goes on with that run as anybody would, from what the
store has of it, with the flow's own text: a run that was begun elsewhere is no different from a new one. So a job
may be worked on twice without harm, and one that is put back loses nothing.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread
import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException
from procrastinate.worker import Worker
from psycopg_pool import AsyncConnectionPool, PoolClosed

from flowengine.engine import Event
from flowengine.errors import FlowEngineError, StoreVersionError
from flowengine.journal.postgres import PostgresRates, PostgresStore
from flowengine.runtime.queue.heartbeat import Presence, Tell, WorkerHeartbeat, WorkerNotice
from flowengine.runtime.queue.rescue import WORKER, Orphans, Rescue
from flowengine.runtime.queue.run_positions import check_queue_name
from flowengine.runtime.queue.run_queue import open_queue
from flowengine.runtime.queue.suspicion import Sharing
from flowengine.runtime.queue.task import RunTask
from flowengine.runtime.queue.worker_flows import WorkerFlows

if TYPE_CHECKING:
    from flowengine.runtime.schedules import WorkerSchedules

# --- A connection that waits for the server

T = TypeVar("T")

_FIRST: Final = 0.2
_LONGEST: Final = 2.0
_POOL: Final[dict[str, Any]] = {"timeout": 5.0, "reconnect_timeout": 5.0, "max_idle": 10.0}
"""Seconds after which the pool stops trying, so that the waiting task decides when the next try is; and after
which it closes a connection that is not needed."""


_EXPECTED: Final = ("query cancellation interrupted", "discarding closed connection")
"""What the driver says of a query that a worker cancels when it stops, and of the connection of it. A server that is
gone is told by the worker itself."""


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_EXPECTED)


for _driver in ("psycopg", "psycopg.pool"):
    logging.getLogger(_driver).addFilter(_is_news)


def _unchecked_pool(**options: Any) -> AsyncConnectionPool:
    """A pool that does not ask the server before each use whether it is there: who finds it gone tries again."""
    options["check"] = None
    return AsyncConnectionPool(**options)


class PatientConnector(PsycopgConnector):
    """Repeats requests to the server after a lost connection, until `stop_waiting`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(pool_factory=_unchecked_pool, **(_POOL | options))  # pyright: ignore[reportUnknownMemberType] # the library's own
        self._end = inf

    def stop_waiting(self, after: float) -> None:
        """From now on, a server that went away is waited for so many seconds in all."""
        self._end = min(self._end, monotonic() + after)

    async def execute_query_async(self, query: Any, **arguments: Any) -> None:
        """Change something, unless it is no longer this worker's to change.

        Where a job is no longer what it was, another worker has seen to it; after the pool was closed this worker has
        ended, and what it had in hand is taken over.
        """
        try:
            await self._patiently(partial(super().execute_query_async, query, **arguments))
        except ConnectorException as error:
            if not isinstance(error.__cause__, psycopg.errors.RaiseException | PoolClosed):
                raise

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        return await self._patiently(partial(super().execute_query_one_async, query, **arguments))

    async def execute_query_all_async(self, query: Any, **arguments: Any) -> list[dict[str, Any]]:
        return await self._patiently(partial(super().execute_query_all_async, query, **arguments))

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        channels = list(channels)
        await self._patiently(partial(super().listen_notify, on_notification, channels))

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        pause = _FIRST
        while True:
            try:
                return await work()
            except ConnectorException as error:
                cause = error.__cause__
                if not isinstance(cause, psycopg.OperationalError) or isinstance(cause, PoolClosed):
                    raise  # A pool that was closed stays so, whatever the server does.
                if monotonic() > self._end:
                    raise
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST)


_NEVER: Final = 1e9
_INTERRUPTED: Final = 0.75
"""The share of the grace after which runs are interrupted."""


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


# --- Restarting the library's worker when it ends by itself, and stopping it on a signal or for a newer store
#
# Beside it go its signs of life, and the looks for runs of workers that died and for runs without a job.

_FIRST_RESTART, _LONGEST_RESTART = 1.0, 30.0
"""Seconds until the library's worker is begun again."""
_STABLE: Final = 60.0
"""Seconds after which what was wrong before is forgotten."""


class Ending:
    """Whether a worker is to stop, and why where it stops by itself."""

    def __init__(self) -> None:
        self.begins = anyio.Event()
        self.error: StoreVersionError | None = None

    def refuse(self, error: StoreVersionError) -> None:
        """The worker cannot go on with this store."""
        self.error = self.error or error
        self.begins.set()


@dataclass(slots=True, eq=False)
class Staying:
    """`run` returns when a signal came and what was begun has ended, or when the library's worker has no more to do.

    Where the worker has to stop by itself, it raises why in the end.
    """

    app: App
    rescue: Rescue
    orphans: Orphans
    presence: Presence
    sharing: Sharing
    pace: Pace
    tell: Tell
    vitals: WorkerHeartbeat
    ending: Ending
    options: dict[str, Any]
    _worker: Worker | None = field(init=False, default=None)

    async def run(self, when_stopped: Callable[[], Awaitable[None]]) -> None:
        """`when_stopped` is called when the worker is to stop, beside what ends then."""
        async with anyio.create_task_group() as beside:
            if threading.current_thread() is threading.main_thread():
                beside.start_soon(self._await_signal)
            beside.start_soon(self._obey, when_stopped)
            beside.start_soon(self._again_and_again, self.pace.heartbeat, self._show_life)
            beside.start_soon(self._again_and_again, self.pace.orphans, self._look_for_orphans)
            await self._work_again_and_again()
            beside.cancel_scope.cancel()
        if self.ending.error is not None:
            raise self.ending.error

    async def _work_again_and_again(self) -> None:
        pause = _FIRST_RESTART
        while not self.ending.begins.is_set():
            start = monotonic()
            why = await self._work()
            if why is None:
                return
            is_stable = monotonic() - start > _STABLE
            pause = _FIRST_RESTART if is_stable else min(2 * pause, _LONGEST_RESTART)
            self.tell(WorkerNotice(f"the queue was lost, working on in {pause:.0f} s: {why}", "queue_lost"))
            with anyio.move_on_after(pause):
                await self.ending.begins.wait()

    async def _work(self) -> str | None:
        """Work until the library's worker ends; why it did so without being told to."""
        self._worker = Worker(self.app, install_signal_handlers=False, **self.options)
        try:
            await self._worker.run()
        except ConnectorException as error:
            return " ".join(str(error.__cause__ or error).split())
        finally:
            self._worker = None
        return None if self.ending.begins.is_set() or not self.options["wait"] else "a part of it ended"

    async def _again_and_again(self, pause: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await anyio.sleep(pause * random.uniform(0.7, 1.3))  # Not in step with other workers.
            try:
                await work()
            except StoreVersionError as error:
                self.ending.refuse(error)
            except (ConnectorException, FlowEngineError) as error:
                self.tell(WorkerNotice(f"runs of dead workers cannot be looked for: {error}", "look_failed"))

    async def _show_life(self) -> None:
        """Also while the last jobs end, when the library's worker shows none any more."""
        worker = self._worker.worker_id if self._worker else None
        await self.presence.announce(worker)
        rescued = await self.rescue.look(worker, self.vitals.in_hand)
        for run_id in rescued:
            self.tell(WorkerNotice(f"run {run_id} was left by a worker that is gone", "rescued", run_id))
        await self.sharing.look(worker, bool(rescued))
        if worker is not None:
            self.vitals.signed = monotonic()

    async def _look_for_orphans(self) -> None:
        for run_id in await self.orphans.look():
            self.tell(WorkerNotice(f"run {run_id} had no job, and is put back into its queue", "requeued", run_id))
        self.vitals.orphans = self.orphans.count

    async def _await_signal(self) -> None:
        """The first signal stops the worker; the next ones do what they do to any process."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        self.ending.begins.set()

    async def _obey(self, when_stopped: Callable[[], Awaitable[None]]) -> None:
        await self.ending.begins.wait()
        self.vitals.is_stopping = True
        if self._worker is not None:
            self._worker.stop()
        await when_stopped()


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
    scheduled: WorkerSchedules | None = None,
    stopped: Callable[[Sequence[Event]], Awaitable[None]] | None = None,
) -> None:
    """Drive the runs of a queue, until SIGTERM or Ctrl-C; without `wait`, until there is none that could begin.

    `tell` hears a line for each run that begins or ends, `stopped` gets the events of each that ended or waits.
    `health`: a bound socket, on which `/healthz`, `/readyz` and `/metrics` are answered for as long as the worker
    lives. `environ`: where the flows' keys are looked up; None: in the process's environment. The limits of providers
    are kept by all workers of the store together. A run is given up whose writers die so often in a row: it is taken
    over `takeovers` times, and not once more. Raises `StoreVersionError` where a newer FlowEngine has the store; where
    it has since the worker began, what that had in hand is put back first.
    """
    check_queue_name(queue)
    pace = pace or Pace()
    store.role = WORKER
    store.wait_for(pace.patience)
    rates = PostgresRates(store.url)
    await anyio.to_thread.run_sync(store.check_version)
    async with AsyncExitStack() as stack:
        stack.callback(rates.close)
        app = await stack.enter_async_context(open_queue(store, connections=2, kind=PatientConnector))
        plans = WorkerFlows(os.environ if environ is None else environ, rates.limiter)
        ending = Ending()
        vitals = WorkerHeartbeat(queue, concurrency, fresh=pace.stalled + 2 * pace.heartbeat)
        tell = vitals.counting(tell)

        async def hand_on(events: Sequence[Event]) -> None:
            vitals.totals.count(events)
            if stopped is not None:
                await stopped(events)

        task = RunTask(
            app, store, plans, takeovers=takeovers, busy=pace.busy, tell=tell, refuse=ending.refuse, stopped=hand_on
        )
        vitals.in_hand = task.in_hand
        if health is not None:
            from flowengine.runtime.queue.health import answering  # Only who asks for it needs a server.

            await stack.enter_async_context(answering(health, vitals, store.url))
        if scheduled is not None:
            from flowengine.runtime.schedules import serving_schedules  # Few projects have schedules.

            where = os.environ if environ is None else environ
            await stack.enter_async_context(serving_schedules(store, scheduled, where, tell))
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
            pace=pace,
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
