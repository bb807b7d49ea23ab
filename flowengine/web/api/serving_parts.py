"""Names what the routes of a server share, and what a module of routes gives to be mounted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from starlette.responses import Response
from starlette.routing import BaseRoute

from flowengine.core import EMPTY
from flowengine.flowfile.project import Project
from flowengine.web.api.serving_metrics import ServingMetrics
from flowengine.web.service import FlowService


class Callbacks(Protocol):
    """Tells other programs what becomes of runs."""

    @property
    def are_sent(self) -> bool: ...

    def check(self, url: str) -> None:
        """Raise `InputError` for an address that is not told anything."""
        ...

    def expecting(self, url: str, run_id: str) -> AbstractAsyncContextManager[None]:
        """The run begins inside: that address is told of it from then on."""
        ...

    def record(self, run_id: str) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True)
class ServingParts:
    """Made once, for one app."""

    service: FlowService
    metrics: ServingMetrics
    callbacks: Callbacks
    project: Project | None
    """The project that lists the webhooks."""
    environ: Mapping[str, str] = field(repr=False)
    """Variables in which secrets are looked up."""
    max_body: int
    """Bytes of a request's body."""
    mcp_patience: float
    """Seconds after which a call of an MCP tool hands back the id of its run."""
    mcp_on_cancel: Literal["cancel", "detach"]
    """Whether the run of a cancelled call of an MCP tool is cancelled or goes on."""


class MountedRoutes(NamedTuple):
    """The routes of a module."""

    routes: Sequence[BaseRoute]
    open_paths: Sequence[str] = ()
    """Beginnings of paths that need no key: they tell nothing, or check their callers in another way."""
    errors: Mapping[str, Callable[[Exception], Response]] = EMPTY
    """Beginning of a path → how an error is answered there that a request meets before its handler; elsewhere it is a
    problem object."""
    life: Callable[[], AbstractAsyncContextManager[object]] | None = None
    """Makes the context that is open while the server runs."""
