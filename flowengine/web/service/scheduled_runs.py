"""Has the flows of a project's schedules run in a server, when they are due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Final

import anyio.to_thread

from flowengine.core import Schedule
from flowengine.errors import RunNotFoundError, StoreUnavailableError
from flowengine.flowfile.project import Project
from flowengine.runtime import OverloadedError, StoppingError
from flowengine.runtime.schedules import LABEL, ScheduleTicker
from flowengine.web.service.flow_service import FlowService

_LOG: Final = logging.getLogger("flowengine.serving")


class _ServiceHost:
    """Begins runs in the service, which puts them into the queue where it has one."""

    def __init__(self, service: FlowService, names: dict[str, str]) -> None:
        self._service = service
        self._names = names
        """Name of a schedule → that of its flow in the service."""

    async def begin(self, schedule: Schedule, run_id: str, /) -> None:
        try:
            await self._service.start(
                self._names[schedule.name], schedule.inputs, run_id=run_id, labels={LABEL: schedule.name}
            )
        except (OverloadedError, StoppingError) as error:
            raise StoreUnavailableError(str(error)) from error

    async def cancel(self, run_id: str, /) -> None:
        await self._service.cancel(run_id)

    async def goes_on(self, run_id: str, /) -> bool:
        try:
            outcome = await self._service.outcome(run_id)
        except RunNotFoundError:
            return False
        if outcome.status != "running" or self._service.is_queued or self._service.driver.drives(run_id):
            return outcome.status in ("running", "waiting")
        return run_id not in await anyio.to_thread.run_sync(self._service.store.abandoned)


def make_ticker(service: FlowService, project: Project, clock: Callable[[], float] = time) -> ScheduleTicker | None:
    """Returns the ticker for the schedules of served flows, or None; names the other schedules."""
    served = {
        Path(flow.plan.path).resolve(): name for name, flow in service.flows.items() if flow.plan.path is not None
    }
    names: dict[str, str] = {}
    ours: list[Schedule] = []
    for each in project.schedules:
        name = served.get((project.root / each.flow).resolve())
        if name is None:
            _LOG.warning("schedule '%s' is left to others: '%s' is not served here", each.name, each.flow)
        else:
            names[each.name] = name
            ours.append(each)
    if not ours:
        return None
    return ScheduleTicker(service.store, ours, _ServiceHost(service, names), _log, clock=clock)


def _log(text: str, run_id: str) -> None:
    _LOG.info("%s", text, extra={"event": "schedule", "run": run_id or None})
