"""Lets requests in, at every door: by the rules that hold for all of them (`refuse_head`), then by the door's own.

An admitted caller is `request.state.caller` from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowengine.errors import FlowEngineError
from flowengine.web.gate.problems import ProblemError
from flowengine.web.gate.safety import Hosts, RequestHead, cookie_name, refuse_head
from flowengine.web.service import FlowCaller
from visualize.viewer import ROOT


class Door(Protocol):
    """One server's way in: whom it admits, and how it answers whom it does not."""

    headers: Mapping[str, str]
    """Headers of each answer whose handler sets no others."""

    async def admit(self, head: RequestHead, scope: Scope) -> FlowCaller | Response | None:
        """The caller, if there are several; or an answer in the app's place. Raises where the request is refused."""
        ...

    def refuse(self, error: FlowEngineError, path: str) -> Response: ...


class Gate:
    """Middleware (ASGI) that hands on what is admitted, and answers the rest."""

    def __init__(self, app: ASGIApp, *, door: Door, hosts: Hosts | None, origins: Collection[str] = ()) -> None:
        """`hosts`: None: every name is known. `origins`: pages of other sites that may ask."""
        self._app = app
        self._door = door
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in {**self._door.headers, **_HEADERS}.items():
                    headers.setdefault(name, value)
            await send(message)

        before = ROOT.set(scope.get("root_path", ""))
        try:
            answer = await self._answer(scope)
            await (self._app if answer is None else answer)(scope, receive, guarded)
        finally:
            ROOT.reset(before)

    async def _answer(self, scope: Scope) -> Response | None:
        """Returns the response in the app's place: a refusal, or what the door answers by itself."""
        head = _read_head(scope)
        try:
            refusal = refuse_head(head, self._hosts, self._origins)
            if refusal is not None:
                raise ProblemError(*refusal)
            caller = await self._door.admit(head, scope)
        except FlowEngineError as error:
            response = self._door.refuse(error, head.path)
            if head.has_two_lengths:
                response.headers["Connection"] = "close"  # Where the next request begins is not certain.
            return response
        if isinstance(caller, Response):
            return caller
        scope.setdefault("state", {})["caller"] = caller
        return None


_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def _read_head(scope: Scope) -> RequestHead:
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    return RequestHead(
        scope["method"],
        scope["path"].removeprefix(scope.get("root_path", "")),  # Below where the app is mounted.
        host,
        headers.get("origin"),
        headers.get("sec-fetch-site"),
        headers.get("authorization"),
        _read_cookie(headers, cookie_name(host)),
        "transfer-encoding" in headers and "content-length" in headers,
    )


def _read_cookie(headers: Headers, cookie_name: str) -> str | None:
    """Our cookie, which is never quoted: `http.cookies` takes a minute for one of 60,000 backslashes in quotes."""
    pairs = [each.strip().partition("=") for line in headers.getlist("cookie") for each in line.split(";")]
    return {name: value for name, _, value in pairs}.get(cookie_name)
