"""Names what the routes of a server share, and what a module of routes gives to be mounted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.routing import BaseRoute

from flowengine.flowfile.project.project import Project
from flowengine.serving.api_keys import KeyRing
from flowengine.serving.callbacks import CallbackSender
from flowengine.serving.flow_service import FlowService
from flowengine.serving.serving_metrics import ServingMetrics

__all__ = ["MountedRoutes", "ServingParts"]


@dataclass(frozen=True)
class ServingParts:
    """Made once, for one app."""

    service: FlowService
    metrics: ServingMetrics
    keys: KeyRing | None = None
    """None: whoever reaches the server may do everything."""
    callbacks: CallbackSender | None = None
    project: Project | None = None
    """Where webhooks are listed."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where secrets are looked up."""
    max_body: int = 4_000_000
    """Bytes of a request's body."""


class MountedRoutes(NamedTuple):
    """What a module of routes gives."""

    routes: Sequence[BaseRoute]
    open_paths: Sequence[str] = ()
    """Beginnings of paths that need no key: they tell nothing, or whoever asks there proves it in another way."""
