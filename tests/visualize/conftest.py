"""Pictures that the tests share."""

from __future__ import annotations

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import ModelCall, Retry
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunStarted,
)

SKELETON = {
    "nodes": [["write", "agent"], ["pick", "routing"], ["left", "agent"], ["right", "function"], ["end", "agent"]],
    "edges": [
        ["write", "pick", []],
        ["pick", "left", ["l"]],
        ["pick", "right", ["r"]],
        ["left", "end", []],
        ["right", "end", []],
    ],
}


def call(tokens: int, cost: float | None) -> ModelCall:
    return ModelCall("m", "p", "generation", [], "text", (), tokens, tokens, None, cost, 0.1)


@pytest.fixture
def events() -> list[Event]:
    """A run that took the left way, tried twice, and failed at its end."""
    return [
        RunStarted("r1", "story", 100.0, {}, {}, {}, graph=SKELETON),
        NodeStarted("write", 100.0),
        NodeRecorded("write", 100.5, call(10, 0.01)),
        NodeFinished("write", 101.0, NodeResult("text")),
        NodeStarted("pick", 101.0),
        NodeFinished("pick", 101.5, NodeResult("l", route="l")),
        NodeSkipped("right", 101.5, "not_selected"),
        NodeStarted("left", 101.5),
        NodeRecorded("left", 102.0, Retry(1, "no", 0.1)),
        NodeRecorded("left", 103.0, call(5, None)),
        NodeFinished("left", 104.0, NodeResult("x")),
        NodeStarted("end", 104.0),
        NodeFailed("end", 105.0, ErrorInfo("ValueError", 'ValueError: <b>"broken"</b> & \\N')),
        RunFinished(105.0, "failed", None, ErrorInfo("ValueError", "broken"), "end"),
    ]
