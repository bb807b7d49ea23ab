"""The app: pages and API over a store, with the flows that it may run. The server's composition root.

    app = make_app("sqlite:///runs.db", ["flows/"])     # an ASGI app; app.state.token opens it

It can be mounted below a path of an app of your own, whose lifespan enters that of the viewer:

    Starlette(routes=[Mount("/runs", viewer)], lifespan=lambda app: viewer.router.lifespan_context(viewer))
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from os import PathLike

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from flowengine.engine.ports import JournalStore
from flowengine.flow import Flow
from flowengine.journal.stores import Durability, open_store
from flowengine.server.acts import Acts
from flowengine.server.api import api_routes
from flowengine.server.following import Following
from flowengine.server.guard import Guard
from flowengine.server.library import Library
from flowengine.server.pages import page_routes
from flowengine.server.parts import Parts
from flowengine.server.problems import ProblemError, problem_response
from flowengine.server.running import Runs
from flowengine.server.safety import LOOPBACK, Gate, Hosts, Keys, new_token
from flowengine.server.shelf import Shelf
from visualize.viewer.urls import runs_url

__all__ = ["make_app", "stop"]


def make_app(
    store: JournalStore | str,
    flows: Iterable[Flow | str | PathLike[str]] = (),
    token: str | None = None,
    *,
    hosts: Collection[str] = LOOPBACK,
    any_address: bool = False,
    durability: Durability = "full",
    environ: Mapping[str, str] | None = None,
    by: str = "",
) -> Starlette:
    """An ASGI app that shows the runs of a store, and runs `flows`: objects, flow files, or folders of them.

    `token`: without it, nothing is shown and nothing is done; None draws one at random (`app.state.token`).
    `hosts`: names by which the server is known, `any_address`: also by every IP address; requests for another name
    are refused. `environ`: where flow files look for keys; None: in the process's own. `by`: who answers
    approvals in the pages.
    """
    keys = Keys(token or new_token())
    opened = open_store(store, durability) if isinstance(store, str) else store
    shelf, library = Shelf(opened), Library(flows, os.environ if environ is None else environ)
    following = Following(shelf)
    runs = Runs(opened, following.hear)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            following.begin(tasks)
            runs.begin(tasks)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await stop(app)
                tasks.cancel_scope.cancel()
        if isinstance(store, str):
            opened.close()

    app = Starlette(
        routes=[*api_routes(), *page_routes()],
        middleware=[Middleware(Guard, Gate(keys, Hosts(frozenset(hosts), any_address)))],
        exception_handlers={404: _missing, 405: _missing},
        lifespan=lifespan,
    )
    app.state.parts = Parts(shelf, library, following, Acts(shelf, library, runs), keys, by)
    app.state.runs = runs
    app.state.token = keys.token
    return app


async def stop(app: Starlette) -> None:
    """Cancel the runs of this process, which is journaled, and let go of all followers. Done at the end by itself."""
    parts: Parts = app.state.parts
    runs: Runs = app.state.runs
    await runs.end()
    parts.following.end()


async def _missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    problem = ProblemError(status, "No such page" if status == 404 else "Not done that way")
    return problem_response(problem, as_page=True, back=runs_url())
