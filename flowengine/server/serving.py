"""Serves the app on a port with uvicorn, until a signal comes. It knows sockets and nothing of runs."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette

from flowengine.errors import FlowEngineError
from flowengine.server.app import stop
from flowengine.server.patience import Limits, connections_with

__all__ = ["PortTakenError", "address_of", "config_of", "listen", "serve"]

_TRIES: Final = 20
_STALLED: Final = 30_000
"""Milliseconds after which the system itself cuts off a client that takes nothing more."""
_GRACE: Final = 5
"""Seconds that answers which are on their way may take at the end."""
_LIMITS: Final = Limits()
_INTERRUPTED: Final = 130
"""Exit code."""


class PortTakenError(FlowEngineError):
    """Another process listens there; `free` is the next port that nobody has, None where none was found."""

    def __init__(self, host: str, port: int, free: int | None) -> None:
        hint = f"; port {free} is free: --port {free}" if free is not None else ""
        super().__init__(f"port {port} of {host} is taken, perhaps by another `flowengine ui`{hint}")
        self.free = free


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to the port, 0 for any; `PortTakenError`, or a `FlowEngineError` for another reason."""
    try:
        return _bound(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(host, port, _next_free(host, port)) from None
        raise FlowEngineError(f"cannot listen on port {port} of {host}: {error.strerror or error}") from error


def address_of(host: str, port: int) -> str:
    """The address for a browser on this machine.

    >>> address_of("0.0.0.0", 8700), address_of("::1", 8700)
    ('http://127.0.0.1:8700', 'http://[::1]:8700')
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def config_of(app: Starlette, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=connections_with(limits),
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE,
    )


def serve(app: Starlette, listening: socket.socket, ready: Callable[[], None], limits: Limits = _LIMITS) -> None:
    """Until Ctrl-C or SIGTERM, a second one ends the process at once; `ready` is called once requests are answered."""
    config = config_of(app, limits)
    with suppress(KeyboardInterrupt):  # What uvicorn raises again when it has ended well.
        _Server(config, app, ready).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Tells the app first that it ends: uvicorn waits for its streams, which never end by themselves."""

    def __init__(self, config: uvicorn.Config, app: Starlette, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:  # A node may block where nothing can cancel it; what the journal has committed stays.
            os._exit(_INTERRUPTED)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await stop(self._app)
        await super().shutdown(sockets)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Connections inherit it.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED)
        found.bind(address)
        found.listen(128)  # Now, so that a second server on the port is told.
    except OSError:
        found.close()
        raise
    return found


def _next_free(host: str, port: int) -> int | None:
    for each in range(port + 1, min(port + 1 + _TRIES, 65_536)):
        try:
            _bound(host, each).close()
        except OSError:
            continue
        return each
    return None
