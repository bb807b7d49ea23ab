"""Compiles the flows of runs on this machine, from the text and files that a run brings and the code and keys here.

If a part of that is missing here, the run is not at fault: another worker may have it. Compiled flows are cached for
a while, because many runs share one flow; the cache's key includes the run's own settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from flowengine.engine import Event, NodeFinished, RunStarted
from flowengine.errors import DefinitionError, FlowError
from flowengine.flowfile import place_of, unpack_bundle
from flowengine.flowfile.compile import load_plan
from flowengine.flowfile.project import find_project
from flowengine.models.wrappers import Limiters
from flowengine.nodes import CompiledFlow, are_others
from flowengine.runtime.local import changed_definitions
from flowengine.runtime.queue.run_queue import PYTHON
from flowengine.version import __version__

_MOST: Final = 64
_AGE: Final = 30.0
"""Seconds for which a plan is kept: what was changed on the machine since is seen then."""


class LackingError(Exception):
    """This worker lacks what a run needs; the message says what."""


class WorkerFlows:
    """`environ` is where keys are looked up, `limiters` keep the limits of vendors."""

    def __init__(self, environ: Mapping[str, str], limiters: Limiters) -> None:
        self._environ, self._limiters = environ, limiters
        self._plans: dict[tuple[Any, ...], tuple[float, CompiledFlow]] = {}

    def find_loaded(self, started: RunStarted) -> CompiledFlow | None:
        """The plan of a run, where it was loaded a while ago."""
        since, plan = self._plans.get(_identity_of(started), (0.0, None))
        return plan if monotonic() - since < _AGE else None

    def load(self, started: RunStarted) -> CompiledFlow:
        """The plan of a run, made now; `LackingError` where it cannot be built, or not be run, here."""
        plan = self._load(started)
        if len(self._plans) >= _MOST:
            self._plans.clear()
        self._plans[_identity_of(started)] = monotonic(), plan
        return plan

    async def prepare(self, started: RunStarted, plan: CompiledFlow) -> None:
        """See that a plan that was loaded can be run here, which may take as long as a command that gives a key."""
        if not plan.prepares_slowly:
            return
        try:
            await plan.ready()
        except DefinitionError as error:
            self._plans.pop(_identity_of(started), None)
            raise LackingError(_format_problems(error, started)) from error

    def _load(self, started: RunStarted) -> CompiledFlow:
        if started.source is None:
            raise LackingError("the flow was built in Python, and no worker has it")
        settings = started.settings
        try:
            place = place_of(started.path or "flow.yaml", str(settings.get("folder", "")))
            path, project, files = unpack_bundle(settings.get("baggage"), place, find_project(place))
            plan = load_plan(
                path,
                text=started.source,
                model=settings.get("model"),
                environ=self._environ,
                limiters=self._limiters,
                project=project,
                files=files,
            )
            plan = replace(plan, interruptible=False)
            if not plan.prepares_slowly:
                plan.prepare()
        except DefinitionError as error:
            raise LackingError(_format_problems(error, started)) from error
        return plan


def _identity_of(started: RunStarted) -> tuple[Any, ...]:
    """All that makes a plan what it is."""
    settings = started.settings
    return (
        started.source,
        started.path,
        *(repr(settings.get(name)) for name in ("folder", "model", "baggage")),
        repr(sorted(started.code.items())),
    )


def check_versions(plan: CompiledFlow, events: Sequence[Event]) -> None:
    """`LackingError` where the flow means something else here than where the run was submitted: another FlowEngine
    reads it, or the functions that are still to be called are others."""
    started: Any = events[0]
    changed = changed_definitions(plan, events)
    if changed:
        raise LackingError(f"FlowEngine {started.engine}, for which the flow was read: {__version__} is here")
    if started.settings.get("python", PYTHON) != PYTHON:
        return  # Functions compiled by another Python cannot be compared.
    done = {event.node for event in events if isinstance(event, NodeFinished)}
    others = [
        node
        for node, was in started.code.items()
        if node.partition(".")[0].partition("[")[0] not in done
        and (node not in plan.code or are_others(was, plan.code[node]))
    ]
    if others:
        names = ", ".join(f"'{each}'" for each in others[:5])
        raise LackingError(f"the functions that {names} called when the run was submitted: others are here")


def _format_problems(error: DefinitionError, started: RunStarted) -> str:
    """Every problem on one line; and that the flow may be newer than what reads it."""
    problems = [str(each) for each in error.diagnostics] if isinstance(error, FlowError) else [str(error)]
    newer = f" (the run is of FlowEngine {started.engine}, this is {__version__})"
    return "; ".join(problems) + ("" if started.engine == __version__ else newer)
