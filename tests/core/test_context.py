"""A context shows the author of a function what a node may read, and the engine's own parts behind `runtime`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flowengine import Flow, FunctionNode
from flowengine.core.context import Context, EvaluationResult, GivenRuntime
from flowengine.core.records import Notice
from flowengine.engine.view import FinalContext, NodeContext

READ = {
    "current_node",
    "env",
    "error",
    "evaluation_result",
    "has_result",
    "inputs",
    "messages",
    "nodes",
    "prev_outputs",
    "result",
    "routing_result",
    "run_id",
    "shared_state",
    "variables",
}
BESIDES = {"runtime", "shared", "with_"}


@pytest.mark.parametrize("kind", [Context, NodeContext, FinalContext])
def test_a_context_shows_what_a_node_may_read_and_one_runtime(kind: type[Context]):
    assert {name for name in dir(kind) if not name.startswith("_")} == READ | BESIDES


async def test_outside_a_run_the_runtime_takes_records_and_has_nothing():
    runtime = Context("draft").runtime
    await runtime.note(Notice("told to no journal"))
    runtime.note_with_next(Notice("nor this"))
    assert runtime == GivenRuntime()


def test_a_context_with_changes_keeps_its_runtime():
    given = GivenRuntime(recorded=["a call"])
    assert Context("draft", runtime=given).with_(result="better").runtime is given


def test_a_result_is_read_like_a_mapping():
    evaluation = EvaluationResult(score=0.9, passed=True, feedback="fine")
    assert "score" in evaluation
    assert "Score" not in evaluation
    assert {"score", "passed", "content"} <= set(evaluation.keys())
    assert dict(evaluation.items())["feedback"] == dict(evaluation)["feedback"] == "fine"


def test_writing_into_the_state_of_a_context_says_what_to_return():
    contexts = [Context()]

    def write(context: Context) -> None:
        contexts.append(context)

    Flow("f", {"a": FunctionNode(write)}, shared_state={"count": 0}).run_sync()
    for context in contexts:
        with pytest.raises(TypeError, match=r"NodeResult\(state=\{'count': ...\}\)"):
            cast(Any, context.shared_state)["count"] = 1
