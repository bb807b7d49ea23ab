"""Runs that an earlier version wrote: they are read, shown and gone on with, whatever classes are called now."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.core.budget import Budget
from flowengine.core.records import ModelCall, UsageTotals
from flowengine.engine.events import NodeFinished, NodeRecorded, RunFinished
from flowengine.engine.restoring import History
from flowengine.flow import Flow
from flowengine.journal.approvals import answer
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import pack_run, store_run, unpack_run
from flowengine.nodes.node import RunLimits
from visualize.progress import fold_events
from visualize.viewer.panel import node_panel
from visualize.viewer.reading import Reading

EARLIER = Path(__file__).parent / "earlier_runs"
FLOWS = Path(__file__).parents[2] / "flows"
NAMES = sorted(path.stem for path in EARLIER.glob("*.jsonl"))


def lines(name: str) -> list[str]:
    return (EARLIER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_an_earlier_version_is_read_and_written_as_it_was(name: str):
    events = unpack_run(lines(name), name)
    assert list(pack_run(events)) == lines(name)
    assert fold_events(events).status == ("waiting" if name == "release_approval" else "succeeded")
    assert any(isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) for event in events)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_whose_end_names_no_unrecorded_dollars_goes_on_with_none():
    """A line of before has no such field: it is read, shown, and gone on with within its limits."""
    events, store = unpack_run(lines("release_approval"), "release_approval"), MemoryStore()
    assert '"waiting"]' in lines("release_approval")[-1]
    stopped = [*events[:-1], events[-1]._replace(status="cancelled")]
    older = [*pack_run(stopped)]
    assert older[-1].endswith('"cancelled"]')
    read = unpack_run(older, "release_approval")
    assert History(read).unrecorded_usd == 0.0
    assert fold_events(read).status == "cancelled"
    run_id = await store_run(store, read)
    flow = Flow.from_yaml(FLOWS / "release_approval.yaml")
    run = await flow.resume(run_id, store=store, limits=RunLimits(bounds=Budget(cost_usd=1.0)))
    assert run.status in ("waiting", "succeeded"), run.error  # What it asked expires, so it may be over by now.
    ends = [each for each in store.events(run_id) if isinstance(each, RunFinished)]
    assert [each.unrecorded_usd for each in ends] == [0.0, 0.0]
    billed = ends[-1]._replace(unrecorded_usd=0.25)
    assert History([*read[:-1], billed]).unrecorded_usd == 0.25
    assert unpack_run([*pack_run([*read[:-1], billed])], "r")[-1] == billed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_waiting_run_of_an_earlier_version_goes_on_and_pays_nothing_twice():
    events, store = unpack_run(lines("release_approval"), "release_approval"), MemoryStore()
    run_id = await store_run(store, events)
    asked = max(event.at for event in events)
    await answer(store, run_id, "sign_off", "hold", form={"ticket": "REL-1"}, now=asked + 60)
    run = await Flow.from_yaml(FLOWS / "release_approval.yaml").resume(run_id, store=store)
    assert run.status == "succeeded", run.error
    finished = [event.node for event in store.events(run_id) if isinstance(event, NodeFinished)]
    assert finished.count("notes") == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_calls_from_before_there_was_anything_that_may_be_billed_are_counted_and_shown():
    assert not any("may_be_billed" in line or "unanswered" in line for line in lines("tool_agent"))
    events, store = unpack_run(lines("tool_agent"), "tool_agent"), MemoryStore()
    run_id = await store_run(store, events)
    calls = [each.record for each in store.events(run_id) if isinstance(each, NodeRecorded)]
    calls = [each for each in calls if isinstance(each, ModelCall)]
    assert {(each.unanswered, each.may_be_billed_tokens, each.may_be_billed_usd) for each in calls} == {(0, 0, 0.0)}
    totals = UsageTotals()
    for each in calls:
        totals.add(each)
    assert (totals.calls, totals.may_be_billed_usd) == (len(calls), 0.0)
    for node in {each.node for each in events if isinstance(each, NodeRecorded)}:
        assert "billed" not in node_panel(Reading(events), node)
