"""Claims about a run: what holds passes, and what does not says what came instead and why."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.flow import Flow
from flowengine.nodes.condition import ConditionNode
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.run import Run
from flowengine.testing.path import assert_path, assert_skipped
from flowengine.testing.scripted_answers import scripted


@pytest.fixture
def run(tea: Flow, answers: dict[str, Any]) -> Run:
    return scripted(tea, answers).run_sync()


def message_of(claim: Any, *arguments: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        claim(*arguments)
    return str(caught.value)


def test_the_path_is_the_order_in_which_nodes_finish(run: Run) -> None:
    assert_path(run, ["ask", "pick", "cool"])


@pytest.mark.parametrize("path", [[], ["ask", "pick"], ["pick", "ask", "cool"], ["ask", "pick", "cool", "hot"]])
def test_another_path_is_told(run: Run, path: list[str]) -> None:
    assert "ran: ask → pick → cool" in message_of(assert_path, run, path)


def test_a_node_that_was_not_chosen_is_told_with_the_choice(run: Run) -> None:
    told = message_of(assert_path, run, ["ask", "pick", "hot"])
    assert told.splitlines() == [
        "the run took another path",
        "expected: ask → pick → hot",
        "     ran: ask → pick → cool",
        "  - hot",
        "  + cool",
        "'hot' was skipped (not_selected): 'pick' chose 'green'",
    ]


def test_a_failure_on_the_way_is_told(tea: Flow) -> None:
    run = scripted(tea, {"ask": ["", ""]}).run_sync()
    told = message_of(assert_path, run, ["ask", "pick"])
    assert "'ask' failed: agent 'ask': model 'scripted' gave an empty answer" in told
    assert "'pick' was skipped (upstream_failed)" in told
    assert "ran: (nothing)" in message_of(assert_path, run, ["brew"])
    assert "the run failed in 'ask': agent 'ask'" in message_of(assert_path, run, ["brew"])


def test_a_misspelt_node_is_told(run: Run) -> None:
    assert "'colo' is no node of the flow; did you mean 'cool'?" in message_of(
        assert_path, run, ["ask", "pick", "colo"]
    )


def test_a_set_stands_for_nodes_in_any_order() -> None:
    parts = {name: FunctionNode(lambda context: 1, needs=["start"]) for name in "ba"}
    nodes = {
        "start": FunctionNode(lambda context: 0),
        **parts,
        "end": FunctionNode(lambda context: 2, needs=["a", "b"]),
    }
    run = Flow("f", nodes).run_sync()
    assert_path(run, ["start", {"a", "b"}, "end"])
    told = message_of(assert_path, run, [{"start", "end"}, {"a", "b"}])
    assert "expected: {end, start} → {a, b}" in told


def test_skips_are_claimed_with_or_without_a_cause(run: Run) -> None:
    assert_skipped(run, "hot")
    assert_skipped(run, "hot", cause="not_selected")
    told = message_of(assert_skipped, run, "hot", "condition_false")
    assert told == "'hot' was to be skipped (condition_false); it was skipped (not_selected): 'pick' chose 'green'"
    assert message_of(assert_skipped, run, "cool") == "'cool' was to be skipped; it ran"
    assert "is no node of the flow; did you mean 'hot'?" in message_of(assert_skipped, run, "ht")


def test_the_choice_of_a_condition_is_told() -> None:
    flow = Flow(
        "f",
        {
            "check": ConditionNode(lambda context: False, "yes", "no"),
            "yes": FunctionNode(lambda context: 1),
            "no": FunctionNode(lambda context: 0),
        },
    )
    assert "'check' chose 'else'" in message_of(assert_path, flow.run_sync(), ["check", "yes"])
