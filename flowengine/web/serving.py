"""Serves the app on a port with uvicorn, until a signal comes. It knows sockets and nothing of runs."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any, ClassVar, Final, Literal, NamedTuple, cast

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import HANDLED_SIGNALS

from flowengine.errors import FlowEngineError, RunError
from flowengine.web.app import stop

# --- Limits of a connection


class ConnectionLimits(NamedTuple):
    """Limits on a client."""

    seconds: float = 20.0
    """For the head of a request, and again for its body."""
    waiting: int = 256
    """Connections without a whole head. A process often has 1,024 descriptors for everything."""


Phase = Literal["head", "body"]


def make_connection_class(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """The class of a server's connections."""

    class Limited(_Connection):
        allowed = limits
        waiting: ClassVar[dict[_Connection, None]] = {}

    return Limited


class _Connection(H11Protocol):
    allowed: ClassVar[ConnectionLimits]
    waiting: ClassVar[dict[_Connection, None]]
    """Connections without a whole head, the oldest first."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._phase: Phase | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base has it
        super().connection_made(transport)
        self._enter("head")
        if len(self.waiting) > self.allowed.waiting:
            next(iter(self.waiting)).refuse()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        self._enter(None if self.transport.is_closing() else self._phase_of_request())

    def refuse(self) -> None:
        """Close the connection, which has taken too long."""
        has_begun = self._phase == "body" or bool(self.conn.trailing_data[0])
        self._enter(None)
        if self.transport.is_closing():
            return
        request = self._current_request()
        if request is not None:
            request.disconnected = True
            request.message_event.set()
        if has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(408, b"the request did not arrive in time\n")
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._answer(431, b"the request's headers are too long\n")
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _phase_of_request(self) -> Phase | None:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        # Between two requests, where nothing of the next has come, uvicorn has a time limit of its own.
        is_next = self._current_request() is None or bool(self.conn.trailing_data[0])
        return "head" if self.conn.their_state is h11.IDLE and is_next else None

    def _current_request(self) -> RequestResponseCycle | None:
        """The latest request; its base declares it without the None that it begins with."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _enter(self, phase: Phase | None) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if phase is None else self.loop.call_later(self.allowed.seconds, self.refuse)
        if phase == "head":
            self.waiting[self] = None

    def _answer(self, status: int, text: bytes) -> None:
        """Say why the connection is closed now."""
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(text)))]
        reason = HTTPStatus(status).phrase.encode()
        response = h11.Response(status_code=status, headers=[*headers, ("connection", "close")], reason=reason)
        for event in (response, h11.Data(data=text), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")


_MAX_PORTS_TRIED: Final = 20
_MAX_UNSENT_BYTES: Final = 30_000
"""Milliseconds after which the system itself cuts off a client that takes nothing more."""
_GRACE_SECONDS: Final = 5
"""Seconds that answers which are on their way may take at the end."""
_LIMITS: Final = ConnectionLimits()
_INTERRUPTED_CODE: Final = 130
"""Exit code."""


class PortTakenError(FlowEngineError):
    """Another process listens there; `free` is the next port that is free, None where none was found."""

    def __init__(self, host: str, port: int, free: int | None) -> None:
        hint = f"; port {free} is free: --port {free}" if free is not None else ""
        super().__init__(f"port {port} of {host} is taken, perhaps by another `flowengine`{hint}")
        self.free = free


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to the port, 0 for any; `PortTakenError`, or a `FlowEngineError` for another reason."""
    try:
        return _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(host, port, _find_free_port(host, port)) from None
        raise FlowEngineError(f"cannot listen on port {port} of {host}: {error.strerror or error}") from error


def address_of(host: str, port: int) -> str:
    """The address for a browser on this machine.

    >>> address_of("0.0.0.0", 8700), address_of("::1", 8700)
    ('http://127.0.0.1:8700', 'http://[::1]:8700')
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def make_config(app: ASGIApp, limits: ConnectionLimits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=make_connection_class(limits),
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def serve(
    app: Starlette,
    listening: socket.socket,
    ready: Callable[[], None],
    limits: ConnectionLimits = _LIMITS,
    end: Callable[[], Awaitable[None]] | None = None,
    watch: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Until Ctrl-C or SIGTERM, a second one ends the process at once; `ready` is called once requests are answered.

    `end`: ends what the app has on its way, while requests are still answered; None: as the viewer does it. `watch`:
    entered in the event loop, for as long as it runs. An app that does not start is a `FlowEngineError`, with why.
    """
    watched = _WatchedStart(app)
    server = _Server(make_config(watched, limits), ready, end or partial(stop, app), watch)
    try:
        server.run(sockets=[listening])
    except SystemExit:  # As newer ones of the library answer it.
        if watched.failure is None:
            raise
    if watched.failure is not None and not server.has_been_ready:
        if isinstance(watched.failure, FlowEngineError):
            raise watched.failure
        name = type(watched.failure).__name__
        raise RunError(f"the server cannot start: {name}: {watched.failure}") from watched.failure


class _WatchedStart:
    """Wraps an app and keeps why it did not start: the library tells nobody but its log."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self.failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope["type"] == "lifespan":
                self.failure = error
            raise


class _Server(uvicorn.Server):
    """Tells the app first that it ends: uvicorn waits for its streams, which never end by themselves."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        end: Callable[[], Awaitable[None]],
        watch: Callable[[], AbstractContextManager[object]],
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._end = end
        self._watch = watch
        self.has_been_ready = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with self._watch():
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.has_been_ready = True
            self._ready()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals end the server and, once it has ended well, nothing more: the library would raise them again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:  # A node may block where nothing can cancel it; what the journal has committed stays.
            os._exit(_INTERRUPTED_CODE)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._end()
        await super().shutdown(sockets)


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Connections inherit it.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MAX_UNSENT_BYTES)
        listener.bind(address)
        listener.listen(128)  # Now, so that a second server on the port is told.
    except OSError:
        listener.close()
        raise
    return listener


def _find_free_port(host: str, port: int) -> int | None:
    for each in range(port + 1, min(port + 1 + _MAX_PORTS_TRIED, 65_536)):
        try:
            _bind(host, each).close()
        except OSError:
            continue
        return each
    return None
