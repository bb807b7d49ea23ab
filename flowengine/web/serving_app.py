"""Makes the app that serves flows over HTTP: the gate, the routes of all modules, and the life of its service.

    app = make_serving_app("sqlite:///runs.db", ["flows/"])     # an ASGI app, for any server of such apps

It can be mounted below a path of an app of your own, whose lifespan enters that of this app:

    Starlette(routes=[Mount("/ai", app)], lifespan=lambda _: app.router.lifespan_context(app))
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike
from time import perf_counter
from typing import Final, Literal

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowengine.engine import Durability
from flowengine.flow import Flow
from flowengine.flowfile.project import Project
from flowengine.journal import AnyStore, as_store
from flowengine.models import read_environment
from flowengine.runtime import Admission
from flowengine.web.api import (
    MountedRoutes,
    ServingMetrics,
    ServingParts,
    error_response,
    make_flow_routes,
    make_health_routes,
)
from flowengine.web.gate import ANSWERS, LOOPBACK, Gate, Hosts, KeyDoor, KeyRing, ProblemError, tell_allowed
from flowengine.web.hooks import CallbackSender, make_webhook_routes
from flowengine.web.mcp import make_mcp_routes
from flowengine.web.openai import make_openai_routes
from flowengine.web.pages import AnswerDesk, make_answer_routes
from flowengine.web.service import FlowService, make_ticker
from flowengine.web.streams import make_stream_routes

__all__ = ["make_serving_app"]


def _make_link_routes(parts: ServingParts) -> MountedRoutes:
    """The pages by which people answer what runs ask, without a key: a link says itself who answers what."""
    return MountedRoutes(make_answer_routes(AnswerDesk(parts.environ, parts.service)), (ANSWERS,))


_ROUTES: Final = (
    make_flow_routes,
    _make_link_routes,
    make_openai_routes,
    make_stream_routes,
    make_mcp_routes,
    make_health_routes,
    make_webhook_routes,
)


def make_serving_app(
    store: AnyStore,
    flows: Iterable[Flow | str | PathLike[str]],
    *,
    needs_key: bool = True,
    hosts: Collection[str] | None = LOOPBACK,
    any_address: bool = False,
    origins: Collection[str] = (),
    admission: Admission | None = None,
    grace: float = 20.0,
    queue: str = "default",
    durability: Durability = "full",
    environ: Mapping[str, str] | None = None,
    project: Project | None = None,
    max_body: int = 4_000_000,
    mcp_patience: float = 50.0,
    mcp_on_cancel: Literal["cancel", "detach"] = "cancel",
) -> Starlette:
    """An ASGI app that serves `flows`: objects, flow files, or folders of them.

    `needs_key`: a caller needs one of the keys of the store (`KeyRing`). `hosts`: names by which the server is
    known, None for any, `any_address`: also by every IP address. `origins`: pages of other sites that may ask.
    `project`: its webhooks start flows, and its `allow_callbacks` are told of runs.
    `grace`: seconds that runs may take to end when it stops. `queue`: where runs go in a store on PostgreSQL.
    `mcp_patience`, `mcp_on_cancel`: as `--patience` and `--on-cancel` of `flowengine mcp`. `ModelConfigError` where
    runs go on here and a key is missing, or the stand-in would answer although nobody named it.
    """
    journals = as_store(store, durability)
    looked_up = os.environ if environ is None else environ
    if project is not None:
        looked_up = read_environment(project.root, looked_up)
    service = FlowService(journals, flows, admission=admission, environ=looked_up, grace=grace, queue=queue)
    service.check_models()
    keys = KeyRing(journals) if needs_key else None
    metrics = ServingMetrics(service)
    callbacks = CallbackSender(service, () if project is None else project.allow_callbacks, looked_up)
    parts = ServingParts(service, metrics, callbacks, project, looked_up, max_body, mcp_patience, mcp_on_cancel)
    mounted = [make(parts) for make in _ROUTES]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with service, anyio.create_task_group() as tasks:
            tasks.start_soon(callbacks.run)
            if project is not None and (ticker := make_ticker(service, project)) is not None:
                tasks.start_soon(ticker.run)
            async with AsyncExitStack() as stack:
                for each in mounted:
                    if each.life is not None:
                        await stack.enter_async_context(each.life())
                yield
                await service.drain()
            tasks.cancel_scope.cancel()
        if journals is not store:
            journals.close()

    middleware = [Middleware(_Counting, metrics)]
    if origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=[*_RUN_HEADERS, "Retry-After", "Mcp-Session-Id"],
        )
        middleware.append(cors)
    refusals = {path: answer for each in mounted for path, answer in each.errors.items()}
    door = KeyDoor(keys, [path for each in mounted for path in each.open_paths], error_response, refusals)
    names = None if hosts is None else Hosts(frozenset(hosts), any_address)
    gate = Middleware(Gate, door=door, hosts=names, origins=frozenset(origins))
    app = Starlette(
        routes=[route for each in mounted for route in each.routes],
        middleware=[*middleware, gate],
        exception_handlers={404: _answer_not_found, 405: _answer_not_found},
        lifespan=lifespan,
    )
    app.state.serving = parts
    return app


async def _answer_not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    title = "No such address" if status == 404 else "Not done that way"
    root: str = request.scope.get("root_path", "")
    problem = ProblemError(status, title, f"{request.method} {request.url.path}: see {root}/openapi.json")
    return tell_allowed(request, error_response(problem))


class _Counting:
    """Counts requests by the route that answered; ASGI in, ASGI out."""

    def __init__(self, app: ASGIApp, metrics: ServingMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "")  # A path that no route has could be anything.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.count(route, method, status, perf_counter() - began)


_RUN_HEADERS: Final = ("Location", "Flowengine-Run", "Flowengine-Status", "Idempotent-Replayed")
_METHODS: Final[Sequence[str]] = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")
