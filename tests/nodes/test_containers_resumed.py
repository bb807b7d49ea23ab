"""Loops, maps, subflows and approvals, cut off after any event and resumed: the same end, and nothing done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import anyio
import pytest

from flowengine.context import Context, NodeResult
from flowengine.engine.events import Event, NodeFinished, RunFinished
from flowengine.engine.merging import StateKey
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.inputs import InputField
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.subflow import SubflowNode
from flowengine.runners.run import Run

pytestmark = pytest.mark.anyio


def nested_flow(ran: list[str], *, fails: set[str] | None = None) -> Flow:
    """A loop with a map with a subflow inside, and something before and after."""

    async def work(context: Context) -> NodeResult:
        path = str(context.current_node)
        ran.append(path)
        await anyio.lowlevel.checkpoint()
        if fails and path in fails:
            fails.discard(path)
            raise ValueError(path)
        return NodeResult(f"{path}:{context.inputs.get('x')}", state={"log": [path]})

    async def quiet(context: Context) -> int:
        ran.append(str(context.current_node))
        return len(context.prev_outputs)

    inner = Flow(
        "inner",
        {"one": FunctionNode(quiet), "two": FunctionNode(quiet, needs=["one"])},
        inputs={"x": InputField("integer")},
        outputs={"n": lambda context: context.prev_outputs["two"] + context.inputs["x"]},
    )
    mapped = MapNode(
        {
            "work": FunctionNode(work),
            "sub": SubflowNode(inner.plan, arguments={"x": lambda c: c.variables["item"]}, needs=["work"]),
        },
        over=lambda context: [context.variables["round"]["index"], 10],
        on_item_error="collect",
        result=lambda seen: seen.prev_outputs["sub"]["n"],
        needs=["before"],
    )
    loop = LoopNode(
        {"before": FunctionNode(work), "m": mapped},
        max_iterations=3,
        initial={"seen": lambda context: []},
        carry={"seen": lambda seen: [*seen.variables["round"]["seen"], *seen.prev_outputs["m"]]},
        until=lambda seen: seen.variables["round"]["index"] == 1,
        needs=["first"],
    )
    return Flow(
        "nested",
        {"first": FunctionNode(work), "loop": loop, "last": FunctionNode(work, needs=["loop"])},
        shared_state={"log": StateKey([], "append")},
        outputs={"seen": lambda context: context.prev_outputs["loop"]["seen"], "log": lambda c: c.shared_state["log"]},
    )


def told(run: Run) -> list[object]:
    return [run.status, dict(run.outputs), [(name, node.status, node.output) for name, node in run.nodes.items()]]


async def store_with(events: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    journal = store.create("r")
    for event in events:
        journal.append(decode(encode(event)))
    await journal.close()
    return store


async def test_a_nested_flow_cut_anywhere_ends_the_same_and_repeats_nothing_that_had_finished():
    ran: list[str] = []
    flow = nested_flow(ran)
    whole = await flow.run(run_id="r")
    assert whole.status == "succeeded", whole.error
    assert whole.outputs["seen"] == [1, 11]
    everything = Counter(ran)
    events = whole.events
    assert max(everything.values()) == 1
    for cut in range(1, len(events)):
        ran.clear()
        past = events[:cut]
        store = await store_with(past)
        again = await flow.resume("r", store=store)
        assert told(again) == told(whole), cut
        finished = {event.node for event in past if isinstance(event, NodeFinished)}
        assert not finished & set(ran), cut


async def test_a_failed_nested_node_runs_again_on_resume_and_its_neighbours_do_not():
    ran: list[str] = []
    bad = "loop.round[1].before"
    flow = nested_flow(ran, fails={bad})
    store = MemoryStore()
    failed = await flow.run(run_id="r", store=store)
    assert failed.status == "failed"
    assert failed.failed_node == bad
    first = Counter(ran)
    ran.clear()
    done = await flow.resume("r", store=store)
    assert done.status == "succeeded", done.error
    assert ran[0] == bad
    assert not {path for path in first if path != bad} & set(ran)
    assert isinstance(done.events[-1], RunFinished)
