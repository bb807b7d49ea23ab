"""Serves flows as MCP tools at /mcp, by streamable HTTP; the gate in front has checked key, name and origin.

Each request's key says which flows and runs there are. A session of the protocol belongs to the key that began it: the
library is told who that is, and refuses the session's id to others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from flowengine.core import MAX_VALUES, ValueCounter
from flowengine.version import missing_modules
from flowengine.web.api import MountedRoutes, ServingParts, caller_of
from flowengine.web.gate import ProblemError, problem_response
from flowengine.web.service import FlowCaller

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_MAX_SESSIONS: Final = 1_000
"""Sessions of one caller, at most."""
_IDLE: Final = 30 * 60.0
"""Seconds without a request after which a session of the protocol ends."""


def make_mcp_routes(parts: ServingParts) -> MountedRoutes:
    """None where the extra `mcp` is not installed."""
    if missing_modules("mcp"):
        return MountedRoutes([])
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # Needs the extra.
    from mcp.server.auth.provider import AccessToken

    sessions = _CallerSessions(parts)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        caller: FlowCaller | None = scope["state"]["caller"]
        if caller is not None:
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.name, scopes=[]))
        manager = await sessions.of(None if caller is None else caller.name)
        read = await _read_ahead(receive, parts.max_body) if scope["method"] == "POST" else receive
        if read is None:
            detail = f"a message may hold {MAX_VALUES:,} values, lists and objects counted twice"
            refusal = problem_response(ProblemError(413, "Too many values", detail), as_page=False)
            await refusal(scope, receive, send)
        else:
            await manager.handle_request(scope, read, send)

    return MountedRoutes([Route("/mcp", _Endpoint(answer), methods=["GET", "POST", "DELETE"])], life=sessions.live)


async def _read_ahead(receive: Receive, most: int) -> Receive | None:
    """Reads a body, and returns a `Receive` that gives it once more; None for one of so many values that the library,
    which parses it on the event loop, would hold up all others. One that is too long is the library's to refuse."""
    counter, size, parts = ValueCounter(), 0, deque[Message]()
    while not parts or (parts[-1].get("more_body") and size <= most):
        parts.append(await receive())
        size += len(parts[-1].get("body", b""))
        if counter.feed(parts[-1].get("body", b"")) > MAX_VALUES:
            return None

    async def read() -> Message:
        return parts.popleft() if parts else await receive()

    return read


class _CallerSessions:
    """The protocol's sessions of each caller apart, so that none opens all that there may be."""

    def __init__(self, parts: ServingParts) -> None:
        self._parts = parts
        self._managers: dict[str | None, StreamableHTTPSessionManager] = {}
        self._starting = anyio.Lock()
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            self._managers, self._tasks = {}, tasks
            yield
            tasks.cancel_scope.cancel()

    async def of(self, caller: str | None) -> StreamableHTTPSessionManager:
        """Returns the sessions of a caller; None: of all callers of a server without keys."""
        async with self._starting:
            if caller not in self._managers:
                if self._tasks is None:
                    raise RuntimeError("the app's lifespan was not entered")
                self._managers[caller] = await self._tasks.start(self._run)
        return self._managers[caller]

    async def _run(self, *, task_status: TaskStatus[StreamableHTTPSessionManager]) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # Needs the extra.

        from flowengine.web.mcp.mcp_server import McpSettings, make_mcp_server

        parts = self._parts
        manager = StreamableHTTPSessionManager(
            make_mcp_server(parts.service, McpSettings(parts.mcp_patience, parts.mcp_on_cancel), _caller_of),
            max_request_body_size=parts.max_body,
            max_sessions=_MAX_SESSIONS,
            session_idle_timeout=_IDLE,
        )
        async with manager.run():
            task_status.started(manager)
            await anyio.sleep_forever()


class _Endpoint:
    """Flows as tools, for MCP clients (streamable HTTP).

    ASGI, as an endpoint of a route: a class is mounted as it is, a function would be handed a request.
    """

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


def _caller_of(request: ServerRequestContext[Any, Any]) -> FlowCaller | None:
    http_request: Any = request.request
    if not isinstance(http_request, Request):
        raise TypeError("a request over HTTP brings its head along")
    return caller_of(cast("Request", http_request))
