"""Serves what those who operate a server ask: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from flowengine.core import call_abandonable
from flowengine.engine import JournalStore
from flowengine.errors import FlowEngineError, JournalError, StoreVersionError
from flowengine.runtime.queue import QueueStatus, queues_of, workers_of
from flowengine.web.api.http_answers import make_routes
from flowengine.web.api.serving_parts import MountedRoutes, ServingParts
from flowengine.web.service import AccessError

_PATIENCE: Final = 5.0
"""Seconds that the store may take to answer."""


def make_health_routes(parts: ServingParts) -> MountedRoutes:
    service, metrics, asking = parts.service, parts.metrics, anyio.Lock()

    async def is_alive(request: Request) -> Response:
        """200 as long as the process answers."""
        return PlainTextResponse("ok\n")

    async def is_ready(request: Request) -> Response:
        """200 where runs are taken; 503 with the reason where the server stops or its store does not answer."""
        why = "it stops" if service.driver.is_stopping else await find_unreadiness(service.store)
        return PlainTextResponse("ready\n") if why is None else PlainTextResponse(f"not ready: {why}\n", 503)

    async def tell_metrics(request: Request) -> Response:
        """Counts and times in Prometheus' form; only for keys of all flows."""
        caller = request.state.caller
        if caller is not None and caller.flows is not None:
            raise AccessError("metrics are of all flows: they are for a key that may use all")
        if service.is_queued:
            async with asking:
                queues = await anyio.to_thread.run_sync(_ask_queues, service.store)
            counts = ((each.queue, state, count) for each in queues for state, count in _count_states(each))
            metrics.note_queues(counts, ((each.queue, each.workers) for each in queues))
        return Response(metrics.text(), media_type=metrics.media_type)

    table = [("GET", "/healthz", is_alive), ("GET", "/readyz", is_ready), ("GET", "/metrics", tell_metrics)]
    return MountedRoutes(make_routes(table), ("/healthz", "/readyz"))


async def find_unreadiness(store: JournalStore) -> str | None:
    """Explains why the store cannot be used now, to anybody, so without its address; None if it can."""
    ask: Callable[[], object] = getattr(store, "check_version", partial(store.recall, "serve.ready", ""))
    with anyio.move_on_after(_PATIENCE):
        try:
            await call_abandonable(ask)
        except StoreVersionError:
            return "the store was changed by a newer FlowEngine; upgrade this one"
        except JournalError:
            return "the store cannot be used"
        return None
    return "the store does not answer"


def _ask_queues(store: JournalStore) -> list[QueueStatus]:
    try:
        return list(queues_of(store, workers_of(store)))
    except FlowEngineError:  # `/readyz` says it.
        return []


def _count_states(queue: QueueStatus) -> list[tuple[str, int]]:
    """Each run is in one state."""
    return [
        ("due", queue.due),
        ("later", queue.later),
        ("asking", queue.asking),
        ("lacking", queue.lacking),
        ("taken", queue.taken - queue.lost),
        ("lost", queue.lost),
    ]
