"""A worker of the queue's library that stays: begun anew when it ended by itself, told to stop by signals.

Beside it, it is looked for the runs of workers that died. It knows no runs, and what a job does is the library's
and the tasks' concern.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Awaitable, Callable, Collection
from time import monotonic
from typing import Any, Final

import anyio
from procrastinate import App
from procrastinate.exceptions import ConnectorException
from procrastinate.worker import Worker

from flowengine.errors import FlowEngineError
from flowengine.runners.queue_rescue import Rescue

__all__ = ["Staying"]

_FIRST: Final = 1.0
_LONGEST: Final = 30.0
_STABLE: Final = 60.0
"""Seconds after which what was wrong before is forgotten."""


class Staying:
    """`run` returns when a signal came and what was begun has ended, or when the library's worker has no more to do."""

    def __init__(
        self,
        app: App,
        rescue: Rescue,
        *,
        pause: float,
        in_hand: Collection[int],
        tell: Callable[[str], None],
        options: dict[str, Any],
    ) -> None:
        self._app, self._rescue, self._pause, self._in_hand = app, rescue, pause, in_hand
        self._tell, self._options = tell, options
        self._worker: Worker | None = None
        self._stopped = anyio.Event()

    async def run(self, when_stopped: Callable[[], Awaitable[None]]) -> None:
        """`when_stopped` is called when a signal came, beside what ends then."""
        async with anyio.create_task_group() as beside:
            if threading.current_thread() is threading.main_thread():
                beside.start_soon(self._obey, when_stopped)
            beside.start_soon(self._look_again_and_again)
            await self._work_again_and_again()
            beside.cancel_scope.cancel()

    async def _work_again_and_again(self) -> None:
        pause = _FIRST
        while not self._stopped.is_set():
            begun = monotonic()
            why = await self._work()
            if why is None:
                return
            pause = _FIRST if monotonic() - begun > _STABLE else min(2 * pause, _LONGEST)
            self._tell(f"the queue was lost, working on in {pause:.0f} s: {why}")
            with anyio.move_on_after(pause):
                await self._stopped.wait()

    async def _work(self) -> str | None:
        """Work until the library's worker ends; why it did so without being told to."""
        self._worker = Worker(self._app, install_signal_handlers=False, **self._options)
        try:
            await self._worker.run()
        except ConnectorException as error:
            return " ".join(str(error.__cause__ or error).split())
        finally:
            self._worker = None
        return None if self._stopped.is_set() or not self._options["wait"] else "a part of it ended"

    async def _look_again_and_again(self) -> None:
        while True:
            await anyio.sleep(self._pause * random.uniform(0.7, 1.3))  # Not in step with other workers.
            worker = self._worker.worker_id if self._worker else None
            try:
                if worker is not None:  # The library's worker sends none any more while its last jobs end.
                    await self._app.job_manager.update_heartbeat(worker)
                rescued = await self._rescue.look(worker, self._in_hand)
            except (ConnectorException, FlowEngineError) as error:
                self._tell(f"runs of dead workers cannot be looked for: {error}")
                continue
            for run_id in rescued:
                self._tell(f"run {run_id} was left by a worker that is gone")

    async def _obey(self, when_stopped: Callable[[], Awaitable[None]]) -> None:
        """The first signal stops the worker; the next ones do what they do to any process."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        self._stopped.set()
        if self._worker is not None:
            self._worker.stop()
        await when_stopped()
