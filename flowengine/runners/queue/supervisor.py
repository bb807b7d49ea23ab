"""Restarts the queue library's worker when it ends by itself, and stops it on a signal or for a newer store.

Beside it go its signs of life, and the looks for runs of workers that died and for runs without a job. It knows no
runs, and what a job does is the library's and the tasks' concern.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import anyio
from procrastinate import App
from procrastinate.exceptions import ConnectorException
from procrastinate.worker import Worker

from flowengine.errors import FlowEngineError, StoreVersionError
from flowengine.runners.queue.heartbeat import Presence, Tell, WorkerHeartbeat, WorkerNotice
from flowengine.runners.queue.rescue import Orphans, Rescue
from flowengine.runners.queue.suspicion import Sharing

__all__ = ["Ending", "Staying"]

_FIRST: Final = 1.0
_LONGEST: Final = 30.0
_STABLE: Final = 60.0
"""Seconds after which what was wrong before is forgotten."""


class Ending:
    """Whether a worker is to stop, and why where nobody told it to."""

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
    pause: float
    """Seconds between two signs of life."""
    orphans_pause: float
    """Seconds between two looks for runs without a job."""
    in_hand: Collection[int]
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
            beside.start_soon(self._again_and_again, self.pause, self._show_life)
            beside.start_soon(self._again_and_again, self.orphans_pause, self._look_for_orphans)
            await self._work_again_and_again()
            beside.cancel_scope.cancel()
        if self.ending.error is not None:
            raise self.ending.error

    async def _work_again_and_again(self) -> None:
        pause = _FIRST
        while not self.ending.begins.is_set():
            begun = monotonic()
            why = await self._work()
            if why is None:
                return
            pause = _FIRST if monotonic() - begun > _STABLE else min(2 * pause, _LONGEST)
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
        rescued = await self.rescue.look(worker, self.in_hand)
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
