"""The port on which a worker says whether it is well: `/healthz`, `/readyz` and `/metrics`.

It is answered by the worker's own event loop, so a loop that is stuck does not answer. It reads and changes nothing.
What it says holds nothing of any run, so there is no token.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
import anyio.to_thread
import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from flowengine.errors import FlowEngineError
from flowengine.runners.queue_metrics import metrics_of, text_of
from flowengine.runners.queue_status import QueueStatus, queues_of, workers_of
from flowengine.runners.queue_vitals import Vitals

__all__ = ["answering", "listen"]

_CONNECT: Final = 2
"""Seconds for a connection to the store."""
_ANSWER: Final = b"SET statement_timeout = '5s'"
_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to the port, 0 for any."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise FlowEngineError(f"cannot listen on port {port} of {host}: {error.strerror or error}") from error


@asynccontextmanager
async def answering(listening: socket.socket, vitals: Vitals, url: str) -> AsyncGenerator[None]:
    """Answer requests for as long as the block lasts; `url` is that of the store, which only `/metrics` asks."""
    config = uvicorn.Config(
        _app(vitals, url),
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        with anyio.CancelScope(shield=True):
            await serving


class _Server(uvicorn.Server):
    """Leaves signals to the worker."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Connection:
    """A connection of its own, so that nobody who asks for metrics holds up the writing of runs."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def query(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(statement.encode(), values).fetchall()


def _app(vitals: Vitals, url: str) -> Starlette:
    one_at_a_time = anyio.Lock()

    async def is_alive(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def is_ready(request: Request) -> PlainTextResponse:
        why = vitals.unreadiness
        return PlainTextResponse("ready\n") if why is None else PlainTextResponse(f"not ready: {why}\n", 503)

    async def metrics(request: Request) -> PlainTextResponse:
        async with one_at_a_time:
            queues = await anyio.to_thread.run_sync(_ask, url)
        return PlainTextResponse(text_of(metrics_of(vitals, queues)), media_type=_FORMAT)

    return Starlette(routes=[Route("/healthz", is_alive), Route("/readyz", is_ready), Route("/metrics", metrics)])


def _ask(url: str) -> Sequence[QueueStatus] | None:
    """The queues; None where the store does not answer in time."""
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT, autocommit=True) as connection:
            connection.execute(_ANSWER)
            asked = _Connection(connection)
            return queues_of(asked, workers_of(asked))
    except psycopg.Error:
        return None
