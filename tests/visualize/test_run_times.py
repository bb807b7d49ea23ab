"""Where the time of a run went: the parts add up to the whole, and each moment has one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.core.context import NodeResult
from flowengine.core.records import Answered, ApprovalRequested, MapBegan, ModelCall, Retry, Waited
from flowengine.engine.events import (
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
)
from tests.support.sample_run import GRAPH, research_run
from visualize.run_times import PARTS, Stretch, times_of

ITEMS = {"nodes": [["leaf", "function"]], "edges": []}
SMALL = {
    "nodes": [["a", "agent"], ["ask", "approval"], ["each", "map", ITEMS], ["b", "function"]],
    "edges": [["a", "ask", []], ["ask", "b", []]],
}
DONE = NodeResult("ok")
DAY = 86_400.0


def began(graph: dict[str, Any] = SMALL) -> RunStarted:
    return RunStarted("r", "f", 0.0, {}, {}, {}, graph=graph)


def note(node: str, at: float, record: Any) -> NodeRecorded:
    return NodeRecorded(node, at, record)


def told(events: Sequence[Event], path: str, now: float | None = None) -> list[tuple[Any, ...]]:
    """A node's bars: how each ended, and its spans."""
    return [(bar.status, *[(*span[:3],) for span in bar.spans]) for bar in times_of(events, now).rows[path]]


def test_an_approval_of_two_days_is_waited_for_and_what_came_between_answer_and_resumption_is_queued() -> None:
    events = [
        began(),
        NodeStarted("a", 0.0),
        NodeFinished("a", 4.0, DONE),
        NodeStarted("ask", 4.0),
        note("ask", 4.0, ApprovalRequested("Ship?", ["yes", "no"])),
        RunFinished(5.0, "waiting"),
        note("ask", 2 * DAY, Answered("yes")),
        RunResumed(2 * DAY + 30),
        NodeStarted("ask", 2 * DAY + 30),
        NodeFinished("ask", 2 * DAY + 31, DONE),
        NodeStarted("b", 2 * DAY + 31),
        NodeFinished("b", 2 * DAY + 33, DONE),
        RunFinished(2 * DAY + 33, "succeeded"),
    ]
    times = times_of(events)
    assert told(events, "ask") == [
        (
            "succeeded",
            ("waited", 4.0, 2 * DAY),
            ("queued", 2 * DAY, 2 * DAY + 30),
            ("worked", 2 * DAY + 30, 2 * DAY + 31),
        )
    ]
    assert {part: seconds for part, seconds in times.parts.items() if seconds} == {
        "worked": 7.0, "queued": 30.0, "waited": 2 * DAY - 4,
    }  # fmt: skip
    assert [(each.part, each.start, each.end) for each in times.breaks] == [("waited", 4.0, 2 * DAY + 30)]
    waiting = times_of(events[:6], now=DAY)
    assert (waiting.rows["ask"][0].status, waiting.parts["waited"]) == ("waiting", DAY - 4)


def test_attempts_and_resumptions_are_bars_of_their_own() -> None:
    events = [
        began(),
        NodeStarted("a", 0.0),
        note("a", 2.0, Retry(1, "no JSON", 1.0)),
        note("a", 4.0, Retry(2, "no JSON", 2.0)),
        RunResumed(10.0),
        NodeStarted("a", 10.0),
        NodeFailed("a", 11.0, ErrorInfo("E", "bad")),
        RunFinished(11.0, "failed"),
        RunResumed(20.0),
        NodeStarted("a", 20.5),
        NodeFinished("a", 23.0, DONE),
        RunFinished(23.0, "succeeded"),
    ]
    assert told(events, "a") == [
        ("failed", ("retried", 0.0, 2.0)),
        ("failed", ("retried", 2.0, 3.0), ("retried", 3.0, 4.0)),
        ("interrupted", ("worked", 4.0, 4.0)),
        ("failed", ("worked", 10.0, 11.0)),
        ("succeeded", ("worked", 20.5, 23.0)),
    ]
    parts = times_of(events).parts_of("a")
    assert (parts["stopped"], parts["queued"], parts["retried"]) == (15.0, 0.5, 4.0)


def test_a_429_and_its_wait_a_turn_and_loading_are_told_apart_inside_a_call() -> None:
    timeline = [
        {"what": "loading", "ago": 9.0, "seconds": 2.0},
        {"what": "queued", "ago": 7.0, "seconds": 1.0},
        {"what": "attempt", "ago": 6.0, "seconds": 0.5, "error": "429"},
        {"what": "rate_limit", "ago": 5.5, "seconds": 3.5, "error": "slow down"},
        {"what": "nobody knows", "ago": 2.0, "seconds": 1.0},
        {"what": "queued", "ago": "x", "seconds": None},
    ]
    call = ModelCall("m", "p", "generation", (), "text", seconds=2.0, timeline=timeline)
    events = [began(), NodeStarted("a", 1.0), note("a", 11.0, call), NodeFinished("a", 11.0, DONE)]
    times = times_of(events)
    assert [(each.part, each.end - each.start) for each in times.rows["a"][-1].spans] == [
        ("worked", 1.0), ("loading", 2.0), ("queued", 1.0), ("retried", 0.5), ("retried", 3.5), ("worked", 2.0),
    ]  # fmt: skip
    assert times.rows["a"][-1].spans[4].note == "429: slow down"
    assert times.parts["queued"] == 2.0, "it was not begun for a second"


def test_a_container_works_while_anything_inside_works_and_waits_when_all_wait() -> None:
    events = [
        began(),
        NodeStarted("each", 0.0),
        note("each", 0.0, MapBegan(2)),
        NodeStarted("each[0].leaf", 0.0),
        note("each[0].leaf", 1.0, ApprovalRequested("Go on?", ["yes"])),
        NodeStarted("each[1].leaf", 3.0),
        note("each[1].leaf", 3.5, Waited(0.5)),
        NodeFinished("each[1].leaf", 5.0, DONE),
        note("each[0].leaf", 9.0, Answered("yes")),
        NodeFinished("each[0].leaf", 10.0, DONE),
        NodeFinished("each", 10.0, DONE),
    ]
    assert told(events, "each") == [
        (
            "succeeded",
            ("worked", 0.0, 1.0),
            ("queued", 1.0, 3.0),
            ("queued", 3.0, 3.5),
            ("worked", 3.5, 5.0),
            ("waited", 5.0, 9.0),
            ("worked", 9.0, 10.0),
        )
    ]
    assert told(events, "each[1].leaf")[0] == ("queued", ("queued", 0.0, 3.0))


def test_a_run_without_events_has_no_time() -> None:
    assert times_of([]).to_plain() == {
        "begun": 0.0,
        "end": 0.0,
        "parts": dict.fromkeys(PARTS, 0),
        "breaks": [],
        "rows": {},
    }


_NAMES = st.sampled_from(["a", "ask", "each", "each[0].leaf", "each[1].leaf", "b", "nobody"])
_RECORDS = st.one_of(
    st.floats(0, 3).map(lambda delay: Retry(1, "no", delay)),
    st.sampled_from(["", "x"]).map(lambda name: ApprovalRequested("?", ["y"], name=name)),
    st.sampled_from(["", "x"]).map(lambda name: Answered("y", name=name)),
    st.floats(0, 3).map(Waited),
    st.builds(
        lambda what, ago, seconds, took, error: ModelCall(
            "m", "p", "generation", (), "", seconds=took, error=error,
            timeline=[{"what": what, "ago": ago, "seconds": seconds}],
        ),
        st.sampled_from(["loading", "queued", "attempt", "backoff", "rate_limit"]),
        st.floats(0, 4), st.floats(0, 4), st.floats(0, 4), st.sampled_from([None, "bad"]),
    ),
)  # fmt: skip
_EVENTS = st.one_of(
    st.builds(lambda node: lambda at: NodeStarted(node, at), _NAMES),
    st.builds(lambda node: lambda at: NodeFinished(node, at, DONE), _NAMES),
    st.builds(lambda node: lambda at: NodeFailed(node, at, ErrorInfo("E", "x")), _NAMES),
    st.builds(lambda node: lambda at: NodeSkipped(node, at, "not_selected"), _NAMES),
    st.builds(lambda node: lambda at: NodeCancelled(node, at), _NAMES),
    st.builds(lambda node, record: lambda at: NodeRecorded(node, at, record), _NAMES, _RECORDS),
    st.just(lambda at: RunResumed(at)),
    st.builds(
        lambda status: lambda at: RunFinished(at, status),
        st.sampled_from(["waiting", "failed", "running", "succeeded"]),
    ),
)


def is_whole(spans: Sequence[Stretch], start: float, end: float) -> bool:
    """Whether the spans go from the start to the end without a gap, an overlap or one that runs backwards."""
    moments = [start, *(moment for span in spans for moment in (span.start, span.end)), end]
    return moments == sorted(moments) and all(one.end == other.start for one, other in pairwise(spans)) and (
        (spans[0].start, spans[-1].end) == (start, end)
    )  # fmt: skip


@given(steps=st.lists(st.tuples(_EVENTS, st.floats(-1, 5)), max_size=25), left=st.floats(0, 10))
def test_parts_add_up_to_the_whole_and_nothing_overlaps(steps: list[tuple[Any, float]], left: float) -> None:
    at, events = 0.0, list[Event]([began()])
    for make, step in steps:
        at = max(0.0, at + step)
        events.append(make(at))
    last = max(event.at for event in events)
    for now in (None, last + left):
        times = times_of(events, now)
        assert times.spans[-1].end in (last, last + left)
        assert is_whole(times.spans, 0.0, times.spans[-1].end)
        assert sum(times.parts.values()) == pytest.approx(times.spans[-1].end)
        for path, bars in times.rows.items():
            assert all(is_whole(bar.spans, bar.start, bar.end) for bar in bars)
            assert all(one.end <= other.start for one, other in pairwise(bars)), "one attempt after the other"
            assert is_whole(times.spans_of(path), bars[0].start, bars[-1].end)
            assert sum(times.parts_of(path).values()) == pytest.approx(bars[-1].end - bars[0].start, abs=1e-6)
            assert bars[-1].end <= times.spans[-1].end


def test_the_sample_run_has_bars_for_all_that_ran() -> None:
    events = research_run()
    times = times_of(events)
    assert GRAPH["nodes"]
    assert times.spans[0].start == events[0].at
    assert {"draft", "polish", "polish.round[1].judge", "investigate[2].search"} <= set(times.rows)
