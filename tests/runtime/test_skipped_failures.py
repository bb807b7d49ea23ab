"""A node whose failure its `on_error: skip` takes is a skipped one, wherever its run is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flowengine.core.budget import Budget
from flowengine.engine.events import ErrorInfo, NodeFailed
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import RunLimits
from flowengine.runtime.telemetry import conventions as names
from flowengine.runtime.telemetry.spans import spans_of
from tests.runtime.test_limits import call
from visualize.progress import fold_events

pytestmark = pytest.mark.anyio


def fail() -> None:
    raise ValueError("no such order")


def alone() -> tuple[Flow, str]:
    return Flow("t", {"bad": FunctionNode(fail, on_error="skip")}), "bad"


def in_a_map() -> tuple[Flow, str]:
    return Flow("t", {"m": MapNode({"bad": FunctionNode(fail, on_error="skip")}, over=lambda context: [1])}), "m[0].bad"


@pytest.mark.parametrize("made", [alone, in_a_map])
async def test_every_reader_of_a_run_tells_a_skip_by_error_in_the_same_way(made: Callable[[], tuple[Flow, str]]):
    flow, node = made()
    run = await flow.run()
    told = run.nodes[node]
    row = fold_events(run.events).nodes[node]
    assert (told.status, told.cause) == (row.status, row.cause) == ("skipped", "error")
    assert told.error == "ValueError: no such order"
    assert row.error is not None
    assert row.error.message == told.error
    (span,) = [each for each in spans_of(run.events) if each.attributes.get(names.NODE) == node]
    assert (span.attributes[names.NODE_STATUS], span.attributes[names.NODE_CAUSE]) == ("skipped", "error")
    assert span.error == told.error


async def test_a_failure_that_nothing_handles_and_one_that_a_node_handles_are_failures():
    nodes = {"handled": FunctionNode(fail, on_error="mend"), "mend": FunctionNode(lambda: 1), "bad": FunctionNode(fail)}
    run = await Flow("t", nodes).run()
    rows = fold_events(run.events).nodes
    assert [(rows[each].status, rows[each].cause) for each in ("handled", "bad")] == [("failed", None)] * 2


async def test_the_runs_own_limit_is_no_skip_of_the_node_that_met_it():
    flow = Flow("t", {f"n{i}": FunctionNode(call, on_error="skip") for i in range(2)})
    run = await flow.run(limits=RunLimits(bounds=Budget(model_calls=1), on_limit="fail"))
    rows = fold_events(run.events).nodes
    assert sorted(row.status for row in rows.values()) == sorted(run.nodes[each].status for each in rows)
    assert "failed" in {row.status for row in rows.values()}


async def test_a_node_that_was_skipped_by_error_has_run():
    flow, node = alone()
    row = fold_events((await flow.run()).events).nodes[node]
    assert row.has_run
    assert row.seconds() is not None


def test_a_journal_that_does_not_say_whether_a_failure_was_a_skip_is_read():
    event = NodeFailed("bad", 1.5, ErrorInfo("ValueError", "no"), skipped=True)
    assert decode(encode(event)) == event
    before = event._replace(skipped=False)
    assert "false" not in encode(before)
    assert decode(encode(before)) == before
