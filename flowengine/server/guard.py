"""The gate round the app: applies `safety` to each request, signs browsers in, and sets the headers of all answers."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowengine.server.problems import refused
from flowengine.server.safety import Asked, Gate
from visualize.viewer.page import CSP
from visualize.viewer.urls import ROOT

__all__ = ["Guard", "cookie_name"]

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
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        before = ROOT.set(scope.get("root_path", ""))
        try:
            answer = self._answer(scope)
            await (self._app if answer is None else answer)(scope, receive, guarded)
        finally:
            ROOT.reset(before)

    def _answer(self, scope: Scope) -> Response | None:
        """What is said in the app's place: a refusal, or the cookie for a browser that brought the token."""
        headers = Headers(scope=scope)
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        asked = Asked(
            scope["method"],
            path,
            headers.get("host", ""),
            headers.get("origin"),
            headers.get("sec-fetch-site"),
            headers.get("authorization"),
            _cookie(headers),
        )
        known = self._gate.hosts.knows(asked.host)
        if known and asked.method == "GET" and not path.startswith("/api/"):
            pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            given = next((value for name, value in pairs if name == "token"), None)
            if given is not None and self._gate.is_token(given):
                rest = urlencode([pair for pair in pairs if pair[0] != "token"])
                return self._signed_in(scope, asked.host, f"{scope['path']}{'?' if rest else ''}{rest}")
        refusal = self._gate.refusal(asked)
        return None if refusal is None else refused(refusal, as_page=not path.startswith("/api/"))

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


def _cookie(headers: Headers) -> str | None:
    try:
        found = SimpleCookie("; ".join(headers.getlist("cookie"))).get(cookie_name(headers.get("host", "")))
    except CookieError:
        return None
    return None if found is None else found.value
