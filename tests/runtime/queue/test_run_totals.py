"""What runs spent is counted by flow and caller, once for each time that they stop."""

from __future__ import annotations

from flowengine.core.budget import Spending
from flowengine.core.records import ModelCall
from flowengine.engine.events import Event, NodeRecorded, RunFinished, RunStarted
from flowengine.runtime.queue.run_totals import RunTotals, spent_since_stop


def call(cost: float | None) -> Event:
    return NodeRecorded(
        "a", 1.0, ModelCall("m", "p", "generation", (), "", prompt_tokens=10, completion_tokens=5, cost_usd=cost)
    )


def test_a_run_that_goes_on_is_counted_with_what_it_spent_since() -> None:
    labels = {"labels": {"caller": "ann"}}
    started = RunStarted("r", "triage", 0.0, {}, {}, {}, settings=labels)
    first = [started, call(0.5), call(None), RunFinished(1.0, "waiting")]
    second = [*first, call(0.25), RunFinished(2.0, "succeeded")]
    assert spent_since_stop(first) == Spending(2, 30, 0.5, 1)
    assert spent_since_stop(second) == Spending(1, 15, 0.25, 0)
    totals = RunTotals()
    for events in (first, second):
        totals.count(events)
    assert totals.runs == {("triage", "ann", "waiting"): 1, ("triage", "ann", "succeeded"): 1}
    assert totals.spent == {("triage", "ann"): Spending(3, 45, 0.75, 1)}
