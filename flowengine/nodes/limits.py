"""Bounds of a run and of its parts, as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowengine.engine.scheduler import OnFailure
from flowengine.ledger import Bounds, OnLimit

__all__ = ["FlowLimits", "PartLimits"]


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Bounds of a whole run."""

    concurrency: int | None = None
    """Nodes in flight at once; None: as many as are ready."""
    timeout: float | None = None
    """Seconds for the whole run; None: no bound."""
    on_failure: OnFailure = "drain"
    bounds: Bounds = field(default_factory=Bounds)
    """Of all model calls together."""
    on_limit: OnLimit = "fail"
    """At a bound, or when the time is up: the run fails, pauses (to be resumed), or ends with what it has."""


@dataclass(frozen=True, slots=True)
class PartLimits:
    """Bounds of one node, or of everything inside a container."""

    bounds: Bounds = field(default_factory=Bounds)
    timeout: float | None = None
    """Seconds for all attempts together."""
    on_limit: OnLimit = "fail"
    """The part fails; the run pauses; a container ends with what it has."""
