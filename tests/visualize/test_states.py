"""Shared state round each node, read from events: it is what the engine itself showed to the nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowengine.core.context import Context, NodeResult
from flowengine.engine.events import Event, RunStarted
from flowengine.engine.merging import StateKey
from flowengine.flow import Flow
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from tests.support.sample_run import research_run
from visualize.progress import fold_events
from visualize.states import Change, States, read_declared


@pytest.fixture
def seen() -> dict[str, dict[str, Any]]:
    """Path → the state that the node was shown."""
    return {}


def writer(seen: dict[str, dict[str, Any]], **writes: Any) -> Callable[[Context], Awaitable[NodeResult]]:
    async def write(context: Context) -> NodeResult:
        assert context.current_node is not None
        state = dict(context.shared_state)
        seen[context.current_node] = {key: state[key] for key in ("n", "items", "last")}
        return NodeResult(1, writes or None)

    return write


@pytest.mark.anyio
async def test_the_state_that_is_read_is_the_one_that_the_nodes_saw(seen: dict[str, dict[str, Any]]):
    def node(*needs: str, **writes: Any) -> FunctionNode:
        return FunctionNode(writer(seen, **writes), needs=list(needs))

    flow = Flow(
        "states",
        {
            "a": node(n=1, items=["a"], last="a"),
            "left": node("a", n=2),
            "right": node("a", items=["r", "a"]),
            "many": MapNode(
                {"x": node(n=10), "y": node("x", items=["y"])}, over=lambda context: [1, 2, 3], needs=["left"]
            ),
            "again": LoopNode({"z": node(n=100, last="z")}, max_iterations=2, exhausted_fails=False, needs=["right"]),
            "end": node("many", "again", last="end"),
            "after": node("end"),
        },
        shared_state={"n": StateKey(5, "sum"), "items": StateKey([], "union"), "last": StateKey(None, "replace")},
    )
    run = await flow.run()
    assert run.status == "succeeded"
    states = States(fold_events(run.events))
    assert len(seen) == 4 + 6 + 2 + 1
    assert {path: states.read_seen(path) for path in seen} == seen
    assert states.changes("many")[0] == Change("n", True, 8, 38, "sum")
    assert states.changes("many[1].y") == [Change("items", True, ["a"], ["a", "y"], "union")]
    assert states.changes("after") == []


def with_rules(state: Any) -> list[Event]:
    """The sample run, with other rules of shared state or none."""
    start, *events = research_run()
    assert isinstance(start, RunStarted)
    graph = {"nodes": start.graph["nodes"], "edges": start.graph["edges"]}
    return [start._replace(graph=graph if state is None else {**graph, "state": state}), *events]


def test_a_key_that_is_not_declared_is_what_the_last_writer_said():
    states = States(fold_events(with_rules(None)))
    assert states.changes("polish")[0] == Change("words", True, 17, 5, "")
    assert states.read_seen("draft") == {}


def test_rules_that_make_no_sense_are_none():
    rules = {"a": 1, "b": ["sum"], "c": ["nonsense", 0], "words": ["sum", "text"]}
    states = States(fold_events(with_rules(rules)))
    assert "words" not in states.read_seen("triage")  # A text and a number cannot be added up.
    assert states.read_seen("triage")["title"] == "The way home"


def test_rules_that_no_engine_writes_are_passed_over():
    started = research_run()[0]
    assert isinstance(started, RunStarted)
    graph = {**started.graph, "state": {"odd": [["append"], 1], "kept": ["replace", 2], "short": ["replace"]}}
    assert read_declared(fold_events([started._replace(graph=graph)])) == {"kept": StateKey(2, "replace")}
