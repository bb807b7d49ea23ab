"""Lets requests in: by the name that the server is asked by, by where a browser's request comes from, and by key.

An admitted caller is `request.state.caller` from then on. What is open (`/healthz`, signed links, webhooks) needs no
key: it tells nothing, or is proved in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowengine.core.context import EMPTY
from flowengine.errors import FlowEngineError
from flowengine.web.api.http_answers import error_response
from flowengine.web.gate.api_keys import KeyRing, RequestRates
from flowengine.web.gate.problems import ProblemError
from flowengine.web.gate.safety import Hosts, is_same_origin
from flowengine.web.service.outcomes import FlowCaller

__all__ = ["ApiGate"]

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_MAX_KEY: Final = 200
"""Characters of a key; a longer one is none of ours."""


class _AmbiguousError(ProblemError):
    """A proxy may have taken another part of what was sent for the body than we do (RFC 9112, 6.3)."""


class ApiGate:
    """ASGI in, ASGI out."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Hosts | None,
        origins: Collection[str],
        keys: KeyRing | None,
        open_paths: Sequence[str],
        errors: Mapping[str, Callable[[Exception], Response]] = EMPTY,
    ) -> None:
        """`hosts`: None: every name is known. `origins`: pages of other sites that may ask. `keys`: None: who
        reaches the server may do everything. `open_paths`: beginnings of paths that need no key. `errors`: beginning
        of a path → how a refusal is answered there."""
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._keys = keys
        self._open = tuple(open_paths)
        self._errors = errors
        self._rates = None if keys is None else RequestRates(keys.store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            scope.setdefault("state", {})["caller"] = await self._admit(scope, Headers(scope=scope))
        except FlowEngineError as error:
            path = _path_of(scope)
            answer = next((each for start, each in self._errors.items() if path.startswith(start)), error_response)
            response = answer(error)
            if isinstance(error, _AmbiguousError):
                response.headers["Connection"] = "close"  # Where the next request begins is not certain.
            await response(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    async def _admit(self, scope: Scope, headers: Headers) -> FlowCaller | None:
        """Returns the caller; raises if the request is refused."""
        if "transfer-encoding" in headers and "content-length" in headers:
            raise _AmbiguousError(400, "Not one length", "found both Transfer-Encoding and Content-Length")
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts is not None and not self._hosts.knows(host):
            raise ProblemError(421, "Not known by this name", "names beside its own: --allow-host")
        if origin is not None and origin not in self._origins and not is_same_origin(origin, host):
            raise ProblemError(403, "Another site's request", "pages of other sites may ask with --allow-origin")
        if self._keys is None or _path_of(scope).startswith(self._open):
            return None
        if self._keys.is_stale:
            await anyio.to_thread.run_sync(self._keys.refresh)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip()
        caller = self._keys.find(given) if scheme.lower() == "bearer" and 0 < len(given) <= _MAX_KEY else None
        if caller is None:
            raise ProblemError(
                401, "A key is needed", "send `Authorization: Bearer KEY`; `flowengine keys add NAME` makes one"
            )
        if self._rates is not None and caller.requests_per_minute is not None:
            await anyio.to_thread.run_sync(self._rates.count, caller)
        return caller


def _path_of(scope: Scope) -> str:
    """Below where the app is mounted."""
    return scope["path"].removeprefix(scope.get("root_path", ""))
