"""Makes the app: pages and API over a store, with the flows that it may run. The server's composition root.

    app = make_app("sqlite:///runs.db", ["flows/"])     # an ASGI app; app.state.token opens it

It can be mounted below a path of an app of your own, whose lifespan enters that of the viewer:

    Starlette(routes=[Mount("/runs", viewer)], lifespan=lambda app: viewer.router.lifespan_context(viewer))
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from flowengine.engine import Durability
from flowengine.flow import Flow
from flowengine.journal import AnyStore, as_store
from flowengine.web.api import make_api_routes
from flowengine.web.gate import (
    LOOPBACK,
    AccessKeys,
    Gate,
    Hosts,
    ProblemError,
    ServerParts,
    TokenDoor,
    TokenRule,
    make_token,
    problem_response,
    tell_allowed,
)
from flowengine.web.pages import (
    CASE_LINK,
    AnswerDesk,
    OnceTable,
    make_answer_routes,
    make_case_routes,
    make_eval_routes,
    make_handlers,
    make_page_routes,
    make_playground_routes,
)
from flowengine.web.service import Library, LibraryRuns, RunCache
from visualize.viewer import runs_url

__all__ = ["make_app", "stop"]


def make_app(
    store: AnyStore,
    flows: Iterable[Flow | str | PathLike[str]] = (),
    token: str | None = None,
    *,
    hosts: Collection[str] = LOOPBACK,
    any_address: bool = False,
    durability: Durability = "full",
    environ: Mapping[str, str] | None = None,
    by: str = "",
    options: Sequence[str] = (),
    read_only: bool = False,
) -> Starlette:
    """An ASGI app that shows the runs of a store, and runs `flows`: objects, flow files, or folders of them.

    `token`: without it, nothing is shown and nothing is done; None draws one at random (`app.state.token`).
    `hosts`: names by which the server is known, `any_address`: also by every IP address; requests for another name
    are refused. `environ`: where flow files look for keys; None: in the process's own. `by`: who answers
    approvals in the pages. `options`: what the commands that pages show need so that they find the same store.
    `read_only`: nothing is started, answered or changed; pages show the commands alone.
    """
    keys = AccessKeys(token or make_token())
    journals = as_store(store, durability)
    environ = os.environ if environ is None else environ
    shelf, library = RunCache(journals), Library(flows, environ)
    runs = LibraryRuns(shelf, library, wakes=not read_only)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with runs:
            yield
        if journals is not store:
            journals.close()

    desk = AnswerDesk(environ, runs)
    allowed_hosts = Hosts(frozenset(hosts), any_address)
    app = Starlette(
        routes=[
            *make_answer_routes(desk),
            *make_api_routes(),
            *make_eval_routes(),
            *make_case_routes(),
            *([] if read_only else make_playground_routes()),
            *make_page_routes(),
        ],
        middleware=[Middleware(Gate, door=TokenDoor(TokenRule(keys, read_only)), hosts=allowed_hosts)],
        exception_handlers={404: _answer_not_found, 405: _answer_not_found},
        lifespan=lifespan,
    )
    app.state.parts = ServerParts(shelf, library, runs, keys, by, options, read_only)
    app.state.actions = {} if read_only else make_handlers()
    app.state.links = {CASE_LINK} if read_only else {CASE_LINK, "play"}
    app.state.once = OnceTable()
    app.state.token = keys.token
    return app


async def stop(app: Starlette) -> None:
    """Cancel the runs of this process, which is journaled, and let go of all followers. Done at the end by itself."""
    parts: ServerParts = app.state.parts
    await parts.acts.drain()


async def _answer_not_found(request: Request, error: Exception) -> Response:
    status, root = getattr(error, "status_code", 404), request.scope.get("root_path", "")
    is_page = not request.scope["path"].removeprefix(root).startswith("/api/")
    detail = "" if is_page else f"{request.method} {request.url.path}: see {root}/api/openapi.json"
    missing = "No such page" if is_page else "No such address"
    problem = ProblemError(status, missing if status == 404 else "Not done that way", detail)
    return tell_allowed(request, problem_response(problem, as_page=is_page, back=runs_url()))
