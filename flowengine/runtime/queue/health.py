"""Answers `/healthz`, `/readyz` and `/metrics` on a worker's port.

It is answered by the worker's own event loop, so a loop that is stuck does not answer. It reads and changes nothing.
What it says holds nothing of any run, so there is no token.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal, NamedTuple

import anyio
import anyio.to_thread
import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from flowengine.core import EMPTY
from flowengine.errors import FlowEngineError
from flowengine.runtime.queue.heartbeat import WorkerHeartbeat
from flowengine.runtime.queue.run_totals import SPENT_METRICS
from flowengine.runtime.queue.status import QueueStatus, queues_of, workers_of
from flowengine.version import __version__

# --- Metrics in the text format of Prometheus (version 0.0.4)


class Metric(NamedTuple):
    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    """Labels and value of each."""


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def text_of(metrics: Iterable[Metric]) -> str:
    r"""The metrics as text.

    >>> print(text_of([Metric("a", "gauge", "How many.", [({"queue": 'x"'}, 2), ({}, 0.5)])]), end="")
    # HELP a How many.
    # TYPE a gauge
    a{queue="x\""} 2
    a 0.5
    """
    return "".join(f"{line}\n" for metric in metrics for line in _format_metric(metric))


def _format_metric(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.samples:
        inside = ",".join(f'{name}="{each.translate(_ESCAPES)}"' for name, each in labels.items())
        yield f"{metric.name}{f'{{{inside}}}' if inside else ''} {value:.12g}"


def metrics_of(vitals: WorkerHeartbeat, queues: Sequence[QueueStatus] | None) -> Iterator[Metric]:
    """The numbers of a worker; and those of the store's queues, None where the store did not answer."""
    info = {"version": __version__, "queue": vitals.queue}
    yield Metric("flowengine_worker_info", "gauge", "The worker's version and queue.", [(info, 1)])
    is_ready = vitals.unreadiness is None
    yield Metric("flowengine_worker_ready", "gauge", "Whether it takes runs.", [(EMPTY, is_ready)])
    yield Metric("flowengine_worker_runs", "gauge", "Runs that it holds.", [(EMPTY, len(vitals.in_hand))])
    yield Metric("flowengine_worker_concurrency", "gauge", "Runs that it may hold.", [(EMPTY, vitals.concurrency)])
    samples_of_events = [({"event": event}, count) for event, count in sorted(vitals.counts.items())]
    yield Metric(
        "flowengine_worker_events_total", "counter", "What happened to runs in it, by event.", samples_of_events
    )
    totals = vitals.totals
    ended = [
        ({"flow": flow, "caller": caller, "status": status}, count)
        for (flow, caller, status), count in sorted(totals.runs.items())
    ]
    yield Metric("flowengine_runs_total", "counter", "Runs that stopped here, by flow, caller and status.", ended)
    spent = [({"flow": flow, "caller": caller}, each) for (flow, caller), each in sorted(totals.spent.items())]
    for name, samples_of_events, place in SPENT_METRICS:
        samples = [(labels, float(each[place])) for labels, each in spent]
        yield Metric(f"{name}_total", "counter", samples_of_events, samples)
    yield Metric("flowengine_store_up", "gauge", "Whether the store answered just now.", [(EMPTY, queues is not None)])
    if queues is None:
        return
    yield Metric("flowengine_orphaned_runs", "gauge", "Runs of the store without a job.", [(EMPTY, vitals.orphans)])
    runs = [({"queue": each.queue, "state": state}, count) for each in queues for state, count in _count_states(each)]
    yield Metric("flowengine_queue_runs", "gauge", "Runs of a queue, by how they stand.", runs)
    ages = [({"queue": each.queue}, each.oldest or 0.0) for each in queues]
    yield Metric("flowengine_queue_oldest_seconds", "gauge", "For how long its first run has been due.", ages)
    workers = [({"queue": each.queue}, each.workers) for each in queues]
    yield Metric("flowengine_queue_workers", "gauge", "Workers that are alive and take from it.", workers)


def _count_states(queue: QueueStatus) -> Iterator[tuple[str, int]]:
    """Each run is in one state."""
    yield "due", queue.due
    yield "later", queue.later
    yield "asking", queue.asking
    yield "lacking", queue.lacking
    yield "taken", queue.taken - queue.lost
    yield "lost", queue.lost


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
async def answering(listening: socket.socket, vitals: WorkerHeartbeat, url: str) -> AsyncGenerator[None]:
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
    """A connection of its own, so that a request for metrics does not hold up the writing of runs."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def query(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(statement.encode(), values).fetchall()


def _app(vitals: WorkerHeartbeat, url: str) -> Starlette:
    one_at_a_time = anyio.Lock()

    async def is_alive(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def is_ready(request: Request) -> PlainTextResponse:
        why = vitals.unreadiness
        return PlainTextResponse("ready\n") if why is None else PlainTextResponse(f"not ready: {why}\n", 503)

    async def metrics(request: Request) -> PlainTextResponse:
        async with one_at_a_time:
            queues = await anyio.to_thread.run_sync(_ask_queues, url)
        return PlainTextResponse(text_of(metrics_of(vitals, queues)), media_type=_FORMAT)

    return Starlette(routes=[Route("/healthz", is_alive), Route("/readyz", is_ready), Route("/metrics", metrics)])


def _ask_queues(url: str) -> Sequence[QueueStatus] | None:
    """The queues; None where the store does not answer in time."""
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT, autocommit=True) as connection:
            connection.execute(_ANSWER)
            queue_connection = _Connection(connection)
            return queues_of(queue_connection, workers_of(queue_connection))
    except psycopg.Error:
        return None
