"""The limits that a run goes on with: the flow's own, with those in their place that were chosen for the run.

What was chosen is in the run's journal, at its start and at each time that it went on; the last word counts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.context import EMPTY
from flowengine.engine.events import Event, RunResumed, RunStarted
from flowengine.ledger import Bounds
from flowengine.nodes.limits import FlowLimits

__all__ = ["chosen_limits", "limits_under", "settings_of"]


def settings_of(events: Iterable[Event]) -> Mapping[str, Any]:
    """What callers chose for a run: at its start, and for each time that it went on.

    >>> settings_of([RunStarted("r", "f", 0.0, {}, {}, {}, settings={"timeout": 5}), RunResumed(1.0)])
    {'timeout': 5}
    """
    settings: dict[str, Any] = {}
    for event in events:
        if isinstance(event, RunStarted | RunResumed):
            settings.update(event.settings)
    return settings


def limits_under(flow: FlowLimits, settings: Mapping[str, Any]) -> FlowLimits:
    """The flow's limits, with those that were chosen in their place.

    >>> limits_under(FlowLimits(timeout=5.0), {"model_calls": 3, "folder": "/home"}).bounds.model_calls
    3
    """
    if not settings:
        return flow
    chosen = {name: settings.get(name, own) for name, own in _by_name(flow).items()}
    bounds = Bounds(*(chosen.pop(name) for name in Bounds._fields))
    return FlowLimits(bounds=bounds, **chosen)


def chosen_limits(limits: FlowLimits, before: FlowLimits) -> Mapping[str, Any]:
    """The settings that make the limits of those that held before.

    >>> dict(chosen_limits(FlowLimits(bounds=Bounds(cost_usd=2.0)), FlowLimits()))
    {'cost_usd': 2.0}
    """
    if limits is before:
        return EMPTY
    earlier = _by_name(before)
    return {name: value for name, value in _by_name(limits).items() if value != earlier[name]}


def _by_name(limits: FlowLimits) -> dict[str, Any]:
    """The limits as a flow file names them."""
    return {
        "concurrency": limits.concurrency,
        "timeout": limits.timeout,
        "on_failure": limits.on_failure,
        "on_limit": limits.on_limit,
        **limits.bounds._asdict(),
    }
