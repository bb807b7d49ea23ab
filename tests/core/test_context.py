"""A context shows the author of a function what a node may read, and the engine's own parts behind `runtime`."""

from __future__ import annotations

import pytest

from flowengine.core.context import Context, GivenRuntime
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
    runtime.explain(Notice("nor this"))
    assert runtime == GivenRuntime()


def test_a_context_with_changes_keeps_its_runtime():
    given = GivenRuntime(recorded=["a call"])
    assert Context("draft", runtime=given).with_(result="better").runtime is given
