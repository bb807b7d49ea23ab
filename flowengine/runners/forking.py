"""A new run that shares the past of an earlier one up to a node, and goes on from there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from flowengine.context import SkipCause
from flowengine.engine.events import (
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunStarted,
)
from flowengine.errors import InputError, did_you_mean
from flowengine.nodes.container import file_path
from flowengine.nodes.past import Definitions, Past
from flowengine.nodes.plan import Plan
from flowengine.records import Reused
from flowengine.runners.run_limits import settings_of
from flowengine.values import freeze

__all__ = ["forked", "patches_of"]

_LASTING: SkipCause = "condition_false"
_Ending: TypeAlias = NodeFinished | NodeFailed | NodeSkipped


def forked(
    plan: Plan, events: Sequence[Event], run_id: str, node: str, state: Mapping[str, Any], at: float
) -> list[Event]:
    """The first events of the new run: its start, and what every node has left that is not behind `node`.

    `state`: shared state as `node` is to find it, key → value (a contribution where the key takes those).
    All of it happens at `at`. What had been paid is not told again: a node whose result is shared has a `Reused` in
    its place.
    """
    started = events[0]
    assert isinstance(started, RunStarted)  # As the store gives them.
    if started.flow != plan.name:
        raise InputError(f"run {started.run_id} is one of flow '{started.flow}', not of '{plan.name}'")
    _check(plan, node, state)
    shared = [plan.graph.ids[number] for number in range(len(plan.graph)) if not _is_behind(plan, node, number)]
    last = _last_endings(events)
    past = Past(events)
    now = Definitions(plan.fingerprints, plan.code)
    edited = sorted({file_path(each.path) for each in past.results.values() if not each.is_defined_as(now)})
    settings = {
        **settings_of(events),
        "forked": started.run_id,
        "from": node,
        "set": freeze(dict(state)),
        "edited": edited,
    }
    first: list[Event] = [
        started._replace(
            run_id=run_id,
            at=at,
            settings=settings,
            fingerprints=plan.fingerprints,
            code=plan.code,
            graph=plan.skeleton,
            source=plan.source,
        )
    ]
    for name in shared:
        ending = last.get(name)
        if isinstance(ending, NodeFinished):
            reused = Reused(started.run_id, name, past.results[name].calls)
            first += [NodeStarted(name, at), *_inside(name, past, started.run_id, at)]
            first += [NodeRecorded(name, at, reused), ending._replace(at=at)]
        elif ending is not None:
            first.append(ending._replace(at=at))
    return first


def _inside(name: str, past: Past, run_id: str, at: float) -> Iterator[Event]:
    """What the nodes inside a container have left."""
    for path, (_, result, _, calls) in past.results.items():
        if path.startswith((f"{name}.", f"{name}[")):
            yield NodeStarted(path, at)
            yield NodeRecorded(path, at, Reused(run_id, path, calls))
            yield NodeFinished(path, at, result)


def patches_of(plan: Plan, started: RunStarted) -> Mapping[int, Mapping[str, Any]]:
    """Node → what it is to find in shared state, for a run that was forked; nothing for any other."""
    node, state = started.settings.get("from"), started.settings.get("set")
    return {plan.graph.index[str(node)]: state} if node in plan.graph.index and state else {}


def _check(plan: Plan, node: str, state: Mapping[str, Any]) -> None:
    if node not in plan.graph.index:
        raise InputError(f"the flow has no node '{node}'{did_you_mean(node, plan.graph.index)}")
    for key in state:
        if key not in plan.state:
            raise InputError(f"shared state has no key '{key}'{did_you_mean(key, plan.state)}")


def _is_behind(plan: Plan, node: str, number: int) -> bool:
    start = plan.graph.index[node]
    return number == start or plan.graph.is_ancestor(start, number)


def _last_endings(events: Sequence[Event]) -> Mapping[str, _Ending]:
    """Node → how it settled for good, if it did."""
    found: dict[str, _Ending] = {}
    for event in events:
        if isinstance(event, NodeStarted):
            found.pop(event.node, None)
        elif isinstance(event, NodeFinished | NodeFailed) or (
            isinstance(event, NodeSkipped) and event.cause == _LASTING
        ):
            found[event.node] = event
    return found
