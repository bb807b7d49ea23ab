"""Runs the flows of a library, whose files may change meanwhile, for the one who has the server's token.

What goes on here ends with the server, and is cancelled in its record: nothing is spent later that nobody asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from typing import Any, Final

from flowengine.core import EMPTY
from flowengine.engine import RunStarted
from flowengine.errors import JournalError
from flowengine.flow import Flow
from flowengine.runtime import Admission, DrivenRun, Live, RunOptions, Work
from flowengine.runtime.local import local
from flowengine.web.service.flow_catalog import CatalogEntry, Library
from flowengine.web.service.local_runs import RunStart
from flowengine.web.service.run_cache import RunCache
from flowengine.web.service.run_service import RunService

_VIEWER: Final = "viewer"
"""The setting of a run that a viewer began."""


class LibraryRuns(RunService):
    """The runs of a viewer's store."""

    retells = True
    rescues = False
    puts_back = False

    def __init__(self, shelf: RunCache, library: Library, *, wakes: bool = True) -> None:
        """`wakes`: whether runs go on by themselves."""
        super().__init__(shelf.store, admission=Admission(at_once=inf), grace=0)
        self.wakes = wakes
        self._shelf = shelf
        self._library = library

    async def find_flow(self, started: RunStarted, model: str | None = None) -> Flow | None:
        entry = await self._shelf.do(self._library.of_run, started)
        return None if entry is None else await self._shelf.do(entry.flow, model)

    def owns(self, started: RunStarted) -> bool:
        return bool(started.settings.get(_VIEWER))

    def listener(self, driven: DrivenRun) -> Live:
        """Hears what the agents of a run of this process write."""
        return self._local.listener(driven)

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
        """The id of a new run, which the store has. `queue`: where a worker takes it from; None: it goes on here.
        `limits`: by their names in a flow file."""
        flow = await self._shelf.do(entry.flow, model)
        earlier = None if reuse is None else await self._shelf.do(self.store.find, reuse)
        settings = {"folder": os.getcwd(), _VIEWER: True, **({} if model is None else {"model": model}), **limits}
        new_id = local.new_run_id() if run_id is None else run_id
        options = RunOptions(run_id=new_id, session=session, reuse=earlier, settings=settings, labels=labels)
        if not await self.begin(RunStart(new_id, flow, inputs, options), queue=queue):
            raise JournalError(f"run '{new_id}' exists already; resume it, or choose another id")
        return new_id

    async def perform(self, run_id: str, flow: str, work: Work) -> None:
        """Begin work on a run of this process; raises what it raises before anything of it is in the store."""
        await self._local.perform(run_id, flow, work)

    async def wait(self, run_id: str) -> None:
        """Until a run of this process has ended."""
        await self.driver.wait(run_id)
