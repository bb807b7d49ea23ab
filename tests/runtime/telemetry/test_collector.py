"""What is reported of a request to a collector that failed."""

from __future__ import annotations

import contextlib

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from flowengine.runtime.telemetry.collector import (
    Collector,
    _Session,  # pyright: ignore[reportPrivateUsage] -- what an exporter is given
)


def test_a_try_for_which_no_time_is_left_is_told_as_one():
    session = _Session()
    with contextlib.suppress(OSError):
        session.request("POST", "http://127.0.0.1:9", timeout=0.0)
    assert session.problem() == "the collector did not answer in time"


def test_what_failed_before_the_time_was_used_up_is_what_is_told():
    session = _Session()
    for limit in (5.0, 0.0):
        with contextlib.suppress(OSError):
            session.request("POST", "http://127.0.0.1:9", timeout=limit)
    assert session.problem() == "nothing answers there"


def test_an_exporter_that_lets_the_error_of_a_request_out_has_not_sent(monkeypatch: pytest.MonkeyPatch):
    with Collector("http://127.0.0.1:9") as collector, collector.run("one") as (tracers, _):
        monkeypatch.setattr(OTLPSpanExporter, "export", lambda *_: collector._traces.post("http://127.0.0.1:9"))
        tracers.get_tracer("test").start_span("work").end()
        assert (collector.send_spans(), collector.problem) == (0, "nothing answers there")
