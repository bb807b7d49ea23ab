"""Why nodes ran, did not, and where they led: in words, by what was recorded when it was decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import Decided
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunStarted,
)
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from visualize.progress import fold_events
from visualize.why import explain_edges, explain_node, format_words

FLOW = """
flowengine: v1
name: letters
inputs:
  amount: {type: number, default: 120}
  vip: {type: boolean, default: false}
  note: {type: string, default: ""}
nodes:
  size:
    type: condition
    cases:
      - {if: "inputs.amount > 1000 and inputs.vip", then: big, label: large}
      - {if: "inputs.amount > 100", then: middle, label: medium}
    else: small
  big: {type: agent, model: offline, prompt: big}
  middle: {type: agent, model: offline, prompt: middle}
  small: {type: agent, model: offline, prompt: small}
  asked: {type: condition, needs: [middle], if: "inputs.note | length > 3 or not inputs.vip", then: extra}
  extra: {type: agent, model: offline, prompt: extra, when: "inputs.vip"}
  end: {type: agent, model: offline, prompt: end, needs: [big, middle, small, extra]}
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """The events of a run of `FLOW`, as a store gives them back."""
    path = tmp_path_factory.mktemp("flow") / "letters.yaml"
    path.write_text(FLOW)
    store = MemoryStore()
    run = Flow.from_yaml(Path(path)).run_sync(store=store)
    return list(store.events(run.id))


def why(events: list[Event], node: str) -> list[str]:
    progress = fold_events(events)
    return [format_words(each) for each in explain_node(progress, progress.nodes[node])]


def ways(events: list[Event], node: str) -> list[str]:
    progress = fold_events(events)
    return [format_words(each) for each in explain_edges(progress, progress.nodes[node])]


def test_cases_are_told_in_order_with_the_values_that_each_of_them_saw(recorded: list[Event]):
    assert why(recorded, "size") == [
        "It runs first in the flow",
        "case 1 (large) was false: inputs.amount > 1000 and inputs.vip, where inputs.amount = 120",
        "case 2 (medium) was true: inputs.amount > 100, where inputs.amount = 120",
        "It took medium",
    ]


def test_an_if_tells_what_its_filters_gave_and_what_it_looked_at_only(recorded: list[Event]):
    told = 'where inputs.note = "", inputs.note | length = 0, inputs.vip = false, so it took then'
    assert why(recorded, "asked")[-1] == f"if was true: inputs.note | length > 3 or not inputs.vip, {told}"


def test_a_when_that_is_false_tells_its_values_and_a_join_what_became_of_the_nodes_before(recorded: list[Event]):
    assert why(recorded, "extra") == [
        "It was reached, since asked took then",
        "when was false: inputs.vip, where inputs.vip = false, so it does not run",
    ]
    assert why(recorded, "big") == [
        "It does not run: no route that leads here was taken. join: some of size (took medium, not large)"
    ]
    assert why(recorded, "end")[0].startswith("It runs. join: some of big (skipped: not selected), small (")


def test_each_edge_says_why_it_was_taken_or_not(recorded: list[Event]):
    assert ways(recorded, "size") == [
        "To big by large: not taken: the route is medium",
        "To middle by medium: taken: the route is medium",
        "To small by else: not taken: the route is medium",
    ]
    assert ways(recorded, "extra") == ["To end: not taken, since the node was skipped (condition false)"]


def test_what_a_node_decided_is_recorded_once_and_only_where_something_was_to_be_decided(recorded: list[Event]):
    found = [(event.node, event.record.what) for event in recorded if isinstance(event, NodeRecorded)
             and isinstance(event.record, Decided)]  # fmt: skip
    assert found == [("size", "cases"), ("asked", "if"), ("end", "join")]


def test_a_long_value_is_cut_where_it_is_recorded(tmp_path: Path):
    text = "\ud800" + "x" * 100_000
    (tmp_path / "f.yaml").write_text(FLOW)
    store = MemoryStore()
    run = Flow.from_yaml(tmp_path / "f.yaml").run_sync({"note": text}, store=store)
    told = [each for event in store.events(run.id) if isinstance(event, NodeRecorded) and event.node == "asked"
            for each in event.record.tests]  # fmt: skip
    assert len(told[0]["values"]["inputs.note"]) < 400
    assert told[0]["values"]["inputs.note | length"] == "100001"


GRAPH = {"nodes": [["a", "function"], ["b", "function"], ["c", "function"]], "edges": [["a", "b", []], ["b", "c", []]]}


def old_run(*events: Event) -> list[Event]:
    return [RunStarted("r", "f", 1.0, {}, {}, {}, graph=GRAPH), *events]


def test_an_earlier_run_tells_the_failure_that_a_node_was_skipped_for_through_all_between():
    failed = NodeFailed("a", 2.0, ErrorInfo("ValueError", "no bees"))
    skipped = [NodeSkipped(each, 2.0, "upstream_failed") for each in ("b", "c")]
    assert why(old_run(NodeStarted("a", 1.0), failed, *skipped), "c") == [
        "It does not run: upstream failed, after b (was skipped (upstream failed))",
        "It began with a, which failed: no bees",
    ]


def test_the_way_for_a_failure_is_not_taken_by_a_node_that_did_not_fail():
    graph = {"nodes": [["a", "function"], ["b", "function"]], "edges": [["a", "b", ["on_error"]]]}
    done = NodeFinished("a", 2.0, NodeResult(1)), NodeSkipped("b", 2.0, "not_selected")
    events = [RunStarted("r", "f", 1.0, {}, {}, {}, graph=graph), NodeStarted("a", 1.0), *done]
    assert ways(events, "a") == ["To b by on_error: not taken, since the node did not fail"]


def test_a_node_that_waits_says_for_which_and_a_node_without_a_graph_says_nothing_wrong():
    begun = old_run(NodeStarted("a", 1.0), NodeFinished("a", 2.0, NodeResult(1)), NodeStarted("b", 2.0))
    assert why(begun, "c") == ["It waits for b (running)"]
    assert why(begun, "b") == ["It runs after a, which succeeded"]
    lost = [RunStarted("r", "f", 1.0, {}, {}, {}), NodeStarted("x", 1.0), NodeFinished("x", 2.0, NodeResult(1))]
    assert why(lost, "x") == ["It runs first in the flow"]
    assert ways(lost, "x") == []
