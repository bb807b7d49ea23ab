"""Spans and metrics at a collector: a real SDK, and a collector on loopback that reads OTLP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.flow import Flow
from flowengine.llm.scripted import ScriptedModel
from flowengine.telemetry import names
from flowengine.telemetry.otel import emit, otlp
from flowengine.telemetry.spans import spans_of


class Collector:
    """What was sent, by path."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        collected = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collected.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

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


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_a_collector_gets_names_parents_and_metrics_and_nothing_that_was_said(collector: Collector):
    agent = Agent("ask", "My secret instructions.", model=ScriptedModel(["Write to ada@example.jp"]))
    run = Flow("tea", {"ask": agent}).run_sync()
    with otlp(collector.url) as (tracers, meters):
        emit(spans_of(run.events), tracers, meters)
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"invoke_workflow tea", "agent ask", "invoke_agent ask", "chat scripted"}
    assert spans["chat scripted"].parent_span_id == spans["invoke_agent ask"].span_id
    assert spans["invoke_agent ask"].parent_span_id == spans["agent ask"].span_id
    assert spans["agent ask"].parent_span_id == spans["invoke_workflow tea"].span_id
    assert len({span.trace_id for span in spans.values()}) == 1
    attributes = {each.key: each.value for each in spans["chat scripted"].attributes}
    assert attributes[names.OPERATION].string_value == "chat"
    sent = b"".join(body for _, body in collector.bodies)
    assert b"secret instructions" not in sent
    assert b"ada@example.jp" not in sent
    assert {names.DURATION_METRIC, names.NODE_DURATION_METRIC} <= collector.metrics()


def test_with_content_what_was_said_is_masked(collector: Collector):
    agent = Agent("ask", "Be kind.", model=ScriptedModel(["Write to ada@example.jp"]))
    run = Flow("tea", {"ask": agent}).run_sync()
    with otlp(collector.url) as (tracers, meters):
        emit(spans_of(run.events, content=True), tracers, meters)
    sent = b"".join(body for _, body in collector.bodies)
    assert b"Be kind." in sent
    assert b"ada@example.jp" not in sent
