"""Events as objects of JSON."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from flowengine import Flow, FunctionNode
from flowengine.core.context import Context, NodeResult
from flowengine.core.records import Notice, ToolCall
from flowengine.engine.events import (
    EVENTS,
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    TokenStreamed,
)
from flowengine.journal.run_export import event_line
from flowengine.web.api.event_lines import to_plain_event


class Told(BaseModel):
    day: date


ONE_OF_EACH: list[Event | TokenStreamed] = [
    RunStarted("r1", "flow", 1.0, {"a": (1, 2)}, {}, {}),
    RunResumed(2.0),
    NodeStarted("a", 3.0),
    NodeRecorded("a", 3.5, Notice("careful")),
    NodeFinished("a", 4.0, NodeResult(Told(day=date(2026, 3, 1)))),
    NodeFailed("a", 4.0, ErrorInfo("ValueError", "broken")),
    NodeSkipped("a", 4.0, "condition_false"),
    NodeCancelled("a", 4.0),
    RunFinished(5.0, "failed", None, ErrorInfo("ValueError", "broken"), "a"),
    TokenStreamed("a", 3.2, "text", True),
]


def test_there_is_one_of_each():
    assert {type(event) for event in ONE_OF_EACH} == {*EVENTS.values(), TokenStreamed}


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_an_event_as_a_dict_has_its_name_and_all_its_fields_and_is_json(event: Any):
    said = event.as_dict()
    assert list(said) == ["type", *event._fields]
    assert said["type"] == type(event).__name__
    assert json.loads(json.dumps(said)) == said


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_an_event_is_the_same_object_wherever_it_is_printed(event: Any):
    assert json.loads(event_line(event)) == event.as_dict()
    assert to_plain_event(event, 7) == {"seq": 7, **event.as_dict()}


def test_what_is_inside_an_event_keeps_its_names():
    failed = NodeFailed("a", 4.0, ErrorInfo("ValueError", "broken")).as_dict()
    assert failed["error"]["message"] == "broken"
    assert NodeRecorded("a", 3.5, Notice("careful")).as_dict()["record"] == {"type": "Notice", "text": "careful"}
    finished = NodeFinished("a", 4.0, NodeResult(Told(day=date(2026, 3, 1)))).as_dict()
    assert finished["result"]["output"] == {"day": "2026-03-01"}
    call = ToolCall("find", {"number": 1}, {"found": (1, 2)})
    assert NodeRecorded("a", 3.5, call).as_dict()["record"]["arguments"] == {"number": 1}


async def test_the_events_of_a_stream_are_told_as_dicts():
    def one(context: Context) -> int:
        return 1

    async with Flow("one", {"one": FunctionNode(one)}).stream() as events:
        said = [event.as_dict()["type"] async for event in events]
    assert said == ["RunStarted", "NodeStarted", "NodeFinished", "RunFinished"]
