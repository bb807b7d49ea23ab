"""Makes the app: pages and API over a store, with the flows that it may run. The server's composition root.

    app = make_app("sqlite:///runs.db", ["flows/"])     # an ASGI app; app.state.token opens it

It can be mounted below a path of an app of your own, whose lifespan enters that of the viewer:

    Starlette(routes=[Mount("/runs", viewer)], lifespan=lambda app: viewer.router.lifespan_context(viewer))
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from os import PathLike
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowengine.engine.ports import Durability
from flowengine.flow import Flow
from flowengine.journal.stores import AnyStore, as_store
from flowengine.runners.run_driver import Admission, RunDriver
from flowengine.web.api.api import make_api_routes
from flowengine.web.gate.problems import ProblemError, problem_of, problem_response, refusal_response, tell_allowed
from flowengine.web.gate.requests import ServerParts
from flowengine.web.gate.safety import LOOPBACK, AccessKeys, Gate, Hosts, RequestHead, make_token
from flowengine.web.pages.action_handlers import make_handlers
from flowengine.web.pages.answer_links import AnswerDesk, make_answer_routes
from flowengine.web.pages.case_pages import CASE_LINK, make_case_routes
from flowengine.web.pages.eval_pages import make_eval_routes
from flowengine.web.pages.pages import FILE_CSP, make_page_routes
from flowengine.web.pages.playground_pages import make_playground_routes
from flowengine.web.pages.run_actions import OnceTable
from flowengine.web.service.flow_catalog import Library
from flowengine.web.service.run_cache import RunCache
from flowengine.web.service.run_commands import ApprovalDecision, RunCommands
from flowengine.web.service.run_watch import RunWatches
from visualize.viewer.html import ROOT, runs_url
from visualize.viewer.page import CSP

__all__ = ["make_app", "stop"]

# --- The gate in front of the app

_HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_DAY: Final = 86_400


def cookie_name(host: str) -> str:
    """Cookies are shared by all ports of a host; servers on several ports must not take each other's away.

    >>> cookie_name("127.0.0.1:8700")
    'flowengine-8700'
    """
    port = host.rpartition(":")[2]
    return f"flowengine-{port if port.isdecimal() else 'web'}"


class Guard:
    """ASGI in, ASGI out."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                policy = headers.get("Content-Security-Policy")
                for name, value in _HEADERS.items():
                    headers[name] = value
                if policy == FILE_CSP:
                    headers["Content-Security-Policy"] = FILE_CSP
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        before = ROOT.set(scope.get("root_path", ""))
        try:
            answer = self._answer(scope)
            await (self._app if answer is None else answer)(scope, receive, guarded)
        finally:
            ROOT.reset(before)

    def _answer(self, scope: Scope) -> Response | None:
        """Returns the response in the app's place: a refusal, or the cookie for a browser with a token."""
        headers = Headers(scope=scope)
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        asked = RequestHead(
            scope["method"],
            path,
            headers.get("host", ""),
            headers.get("origin"),
            headers.get("sec-fetch-site"),
            headers.get("authorization"),
            _read_cookie(headers),
        )
        known = self._gate.hosts.knows(asked.host)
        if known and asked.method == "GET" and not path.startswith("/api/"):
            pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            given = next((value for name, value in pairs if name == "token"), None)
            if given is not None and self._gate.is_token(given):
                rest = urlencode([pair for pair in pairs if pair[0] != "token"])
                return self._signed_in(scope, asked.host, f"{quote(scope['path'])}{'?' if rest else ''}{rest}")
        refusal = self._gate.refusal(asked)
        return None if refusal is None else refusal_response(refusal, as_page=not path.startswith("/api/"))

    def _signed_in(self, scope: Scope, host: str, address: str) -> Response:
        """Back to the same place without the token, which so does not stay in the address bar."""
        response = RedirectResponse(f"/{address.lstrip('/')}", 303)
        response.set_cookie(
            cookie_name(host),
            self._gate.keys.cookie,
            max_age=_DAY,
            httponly=True,
            samesite="strict",
            secure=scope.get("scheme") == "https",
        )
        return response


def _read_cookie(headers: Headers) -> str | None:
    """Our cookie, which is never quoted: `http.cookies` takes a minute for one of 60,000 backslashes in quotes."""
    pairs = [each.strip().partition("=") for line in headers.getlist("cookie") for each in line.split(";")]
    return {name: value for name, _, value in pairs}.get(cookie_name(headers.get("host", "")))


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
    opened = as_store(store, durability)
    environ = os.environ if environ is None else environ
    shelf, library = RunCache(opened), Library(flows, environ)
    following = RunWatches(shelf)
    runs = RunDriver(opened, Admission(at_once=inf), lambda what, error: problem_of(error))
    commands = RunCommands(shelf, library, runs, following.hear)

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
        if opened is not store:
            opened.close()

    async def give(run_id: str, question: str, given: ApprovalDecision, asked: float) -> bool:
        return (await commands.approve(run_id, question, given, asked))[1]

    desk = AnswerDesk(environ, shelf.events, give)
    app = Starlette(
        routes=[
            *make_answer_routes(desk),
            *make_api_routes(),
            *make_eval_routes(),
            *make_case_routes(),
            *([] if read_only else make_playground_routes()),
            *make_page_routes(),
        ],
        middleware=[Middleware(Guard, Gate(keys, Hosts(frozenset(hosts), any_address), read_only))],
        exception_handlers={404: _answer_not_found, 405: _answer_not_found},
        lifespan=lifespan,
    )
    app.state.parts = ServerParts(shelf, library, following, commands, keys, by, options, read_only)
    app.state.actions = {} if read_only else make_handlers()
    app.state.links = {CASE_LINK} if read_only else {CASE_LINK, "play"}
    app.state.once = OnceTable()
    app.state.runs = runs
    app.state.token = keys.token
    return app


async def stop(app: Starlette) -> None:
    """Cancel the runs of this process, which is journaled, and let go of all followers. Done at the end by itself."""
    parts: ServerParts = app.state.parts
    runs: RunDriver = app.state.runs
    await runs.end(puts_back=False)
    parts.following.end()


async def _answer_not_found(request: Request, error: Exception) -> Response:
    status, root = getattr(error, "status_code", 404), request.scope.get("root_path", "")
    is_page = not request.scope["path"].removeprefix(root).startswith("/api/")
    told = "" if is_page else f"{request.method} {request.url.path}: see {root}/api/openapi.json"
    missing = "No such page" if is_page else "No such address"
    problem = ProblemError(status, missing if status == 404 else "Not done that way", told)
    return tell_allowed(request, problem_response(problem, as_page=is_page, back=runs_url()))
