"""Counts what a server does, for Prometheus. Its labels are names of flows and keys, and statuses.

A registry of its own, so that two apps of one process do not count together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from flowengine.runtime import DrivenRun
from flowengine.runtime.queue import SPENT_METRICS
from flowengine.version import __version__
from flowengine.web.service import FlowService

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class ServingMetrics:
    """The metrics of one server."""

    media_type: Final = CONTENT_TYPE_LATEST

    def __init__(self, service: FlowService) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=True)
        self._requests = Counter(
            "flowengine_requests", "Requests, by route and status.", ["route", "method", "status"], registry=registry
        )
        self._seconds = Histogram(
            "flowengine_request_seconds",
            "Until it is answered.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._runs = Counter(
            "flowengine_runs", "Runs that stopped here.", ["flow", "caller", "status"], registry=registry
        )
        self._spent = [
            Counter(name, description, ["flow", "caller"], registry=registry) for name, description, _ in SPENT_METRICS
        ]
        Info("flowengine_server", "The server.", registry=registry).info({"version": __version__})
        driver = service.driver
        gauges = {
            "flowengine_runs_running": ("Runs that go on here.", lambda: driver.running),
            "flowengine_runs_waiting": ("Runs that wait for their turn here.", lambda: driver.waiting),
            "flowengine_server_ready": ("Whether it takes runs.", lambda: not driver.is_stopping),
        }
        for name, (help_text, ask) in gauges.items():
            Gauge(name, help_text, registry=registry).set_function(ask)
        self._queue = Gauge(
            "flowengine_queue_runs", "Runs of a queue of the store, by state.", ["queue", "state"], registry=registry
        )
        self._workers = Gauge("flowengine_queue_workers", "Live workers of a queue.", ["queue"], registry=registry)
        service.driver.tell(self._count_run)

    def _count_run(self, driven: DrivenRun) -> None:
        status = "interrupted" if driven.status == "running" else driven.status
        self._runs.labels(driven.flow, driven.caller, status or "failed").inc()
        for counter, (_, _, place) in zip(self._spent, SPENT_METRICS, strict=True):
            counter.labels(driven.flow, driven.caller).inc(driven.spent[place])

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def note_queues(self, counts: Iterable[tuple[str, str, int]], workers: Iterable[tuple[str, int]]) -> None:
        """Stores the number of runs by queue and state, and of workers by queue; of other queues nothing is known."""
        self._queue.clear()
        self._workers.clear()
        for queue, state, count in counts:
            self._queue.labels(queue, state).set(count)
        for queue, count in workers:
            self._workers.labels(queue).set(count)

    def text(self) -> bytes:
        return generate_latest(self._registry)
