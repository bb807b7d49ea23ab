"""`flowengine telemetry`: what arrives at a collector decides the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.quiet_ports import quiet_port

Command = Callable[..., Any]


def test_an_export_that_nothing_takes_is_a_failure(flowengine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    flowengine("run", "shout.yaml", "--run-id", "r1")
    port = quiet_port()
    said = flowengine("telemetry", "r1", "--otlp", f"http://127.0.0.1:{port}")
    assert (said.code, said.out) == (1, "")
    assert said.err == f"error: 0 of 2 spans arrived at http://127.0.0.1:{port}: nothing answers there\n"


def test_an_address_that_is_none_is_a_failure(flowengine: Command) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    said = flowengine("telemetry", "r1", "--otlp", "nowhere")
    assert said.code == 1
    assert "0 of 2 spans arrived at nowhere" in said.err
    assert "Traceback" not in said.err
