"""Runs of this process: started, taken up again, cancelled. Each is a task of the app's lifespan.

Whoever launches one waits until its first event is in the journal, or is told why there is none. How the run ends is
in the journal, where everybody reads it; the end of the app cancels what still runs, and that is journaled too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from flowengine.engine.events import Event, TokenStreamed
from flowengine.engine.ports import JournalStore
from flowengine.errors import StoreUnavailableError
from flowengine.journal.tee import TeeStore
from flowengine.runners.local import Live
from flowengine.runners.run import Run
from flowengine.server.problems import ProblemError, problem_of

__all__ = ["Job", "Runs"]

Job: TypeAlias = Callable[[JournalStore, Live], Awaitable[Run]]
"""Runs in the store that it is given, and tells what agents write."""
Heard: TypeAlias = Callable[[str, TokenStreamed], None]


class _Launch:
    """One job on its way."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.begun = anyio.Event()
        """The journal has taken its first event, or it is over."""
        self.ended = anyio.Event()
        self.has_run = False
        self.failure: Exception | None = None

    def hear(self, event: Event) -> None:
        self.has_run = True
        self.begun.set()


class Runs:
    """The runs that this process drives."""

    def __init__(self, store: JournalStore, heard: Heard) -> None:
        self._store = store
        self._heard = heard
        self._tasks: TaskGroup | None = None
        self._launched: dict[str, _Launch] = {}

    def begin(self, tasks: TaskGroup) -> None:
        """Runs are tasks of this group from now on."""
        self._tasks = tasks

    async def end(self) -> None:
        """Cancel what runs, and take no more."""
        self._tasks = None
        for run_id in list(self._launched):
            await self.cancel(run_id)

    def drives(self, run_id: str) -> bool:
        return run_id in self._launched

    async def launch(self, run_id: str, job: Job) -> None:
        """Begin a job; raises what it raises before anything of it is in the journal."""
        if self._tasks is None:
            raise ProblemError(503, "Not running", "the app's lifespan has not begun, or is over")
        if run_id in self._launched:
            raise StoreUnavailableError(f"run '{run_id}' is being written by this server")
        launch = self._launched[run_id] = _Launch()
        self._tasks.start_soon(self._drive, run_id, launch, job)
        await launch.begun.wait()
        if launch.failure is not None and not launch.has_run:
            raise launch.failure

    async def cancel(self, run_id: str) -> bool:
        """Stop a run of this process and wait for its end; False: it is none."""
        launch = self._launched.get(run_id)
        if launch is None:
            return False
        launch.scope.cancel()
        await launch.ended.wait()
        return True

    async def _drive(self, run_id: str, launch: _Launch, job: Job) -> None:
        try:
            with launch.scope:
                await job(TeeStore(self._store, launch.hear), partial(self._heard, run_id))
        except (Exception, SystemExit, BaseExceptionGroup) as error:  # A node may call sys.exit(): that ends no server.
            launch.failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
            if launch.has_run:
                problem_of(launch.failure)  # Nobody waits for it any more, so it is logged.
        finally:
            del self._launched[run_id]
            launch.begun.set()
            launch.ended.set()
