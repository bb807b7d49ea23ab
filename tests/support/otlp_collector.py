"""A collector of OTLP over HTTP on loopback, which keeps what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

__all__ = ["Collector"]


class Collector:
    """What was sent, by path. `status`: path → its status, where not 200; beside it `reason`, `headers`, `answer`."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.status: dict[str, int] = {}
        self.on_request: Callable[[], None] = lambda: None
        self.answer = b""
        self.reason: str | None = None
        self.headers = {"Content-Type": "application/x-protobuf"}
        collected, collector = self.bodies, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collected.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(collector.status.get(self.path, 200), collector.reason)
                for name, value in collector.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(collector.answer)))
                self.end_headers()
                self.wfile.write(collector.answer)
                collector.on_request()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found: list[Any] = []
        for path, body in self.bodies:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    found += [span for scope in resource.scope_spans for span in scope.spans]
        return found

    def metrics(self) -> set[str]:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        return {
            metric.name
            for path, body in self.bodies
            if path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
