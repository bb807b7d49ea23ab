"""Items that failed and were collected or left out: `resume` repeats them where asked, `reuse` always; nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flowengine.core.context import Context
from flowengine.engine.events import Event, RunResumed
from flowengine.engine.merging import StateKey
from flowengine.errors import RunError
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.runtime.run import Run

pytestmark = pytest.mark.anyio


class Desk:
    """Flows whose functions say where they ran, and fail where they are to."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.bad: set[str] = set()

    async def work(self, context: Context) -> Any:
        path = str(context.current_node)
        self.ran.append(path)
        if path in self.bad:
            raise ValueError(path)
        return path

    async def look(self, context: Context) -> Any:
        self.ran.append(str(context.current_node))
        return context.prev_outputs["m"]

    def mapped(self, on_item_error: Any = "collect", needs: Sequence[str] = ()) -> MapNode:
        body = {"a": FunctionNode(self.work), "b": FunctionNode(self.work, needs=["a"])}
        return MapNode(body, over=lambda context: [1, 2, 3], on_item_error=on_item_error, needs=needs)

    def flow(self, on_item_error: Any = "collect") -> Flow:
        nodes = {
            "before": FunctionNode(self.work),
            "m": self.mapped(on_item_error, ["before"]),
            "after": FunctionNode(self.look, needs=["m"]),
            "beside": FunctionNode(self.work, needs=["before"]),
        }
        return Flow("f", nodes, outputs={"m": lambda context: context.prev_outputs["after"]})

    def mend(self) -> None:
        self.bad.clear()
        self.ran.clear()


@pytest.fixture
def desk() -> Desk:
    return Desk()


WHOLE = ["m[0].b", "m[1].b", "m[2].b"]


@pytest.mark.parametrize("on_item_error", ["collect", "skip"])
async def test_resume_repeats_the_failed_items_of_a_run_that_succeeded(desk: Desk, on_item_error: Any):
    store, flow = MemoryStore(), desk.flow(on_item_error)
    desk.bad = {"m[1].b"}
    first = await flow.run(run_id="r", store=store)
    assert first.status == "succeeded"
    assert first.outputs["m"] != WHOLE
    desk.mend()
    again = await flow.resume("r", store=store, repeat_failed_items=True)
    assert sorted(desk.ran) == ["after", "m[1].b"]
    assert (again.status, again.outputs["m"]) == ("succeeded", WHOLE)


async def test_a_stream_of_the_resumed_run_repeats_failed_items_too(desk: Desk):
    store, flow = MemoryStore(), desk.flow()
    desk.bad = {"m[1].b"}
    await flow.run(run_id="r", store=store)
    desk.mend()
    async with flow.stream_resume("r", store=store, repeat_failed_items=True) as events:
        assert [event async for event in events]
    assert events.run is not None
    assert events.run.outputs["m"] == WHOLE


async def test_without_being_asked_resume_reads_a_run_that_succeeded_as_it_is(desk: Desk):
    store, flow = MemoryStore(), desk.flow()
    desk.bad = {"m[1].b"}
    first = await flow.run(run_id="r", store=store)
    desk.mend()
    again = await flow.resume("r", store=store)
    assert (desk.ran, again.outputs) == ([], first.outputs)
    whole = await flow.run(run_id="w", store=store)
    desk.mend()
    assert (await flow.resume("w", store=store, repeat_failed_items=True)).outputs == whole.outputs
    assert desk.ran == []  # No item had failed.


async def test_reuse_repeats_the_failed_items(desk: Desk):
    store, flow = MemoryStore(), desk.flow()
    desk.bad = {"m[1].b"}
    first = await flow.run(run_id="r", store=store)
    desk.mend()
    again = await flow.run(run_id="s", store=store, reuse=first.id)
    assert again.outputs["m"] == WHOLE
    assert "m[1].b" in desk.ran
    assert "before" not in desk.ran


async def test_an_item_that_fails_again_is_told_again_and_can_be_repeated_again(desk: Desk):
    store, flow = MemoryStore(), desk.flow()
    desk.bad = {"m[0].a", "m[1].b"}
    await flow.run(run_id="r", store=store)
    desk.mend()
    desk.bad = {"m[1].b"}
    half = await flow.resume("r", store=store, repeat_failed_items=True)
    assert sorted(desk.ran) == ["after", "m[0].a", "m[0].b", "m[1].b"]
    assert half.outputs["m"][1]["index"] == 1
    desk.mend()
    whole = await flow.resume("r", store=store, repeat_failed_items=True)
    assert sorted(desk.ran) == ["after", "m[1].b"]
    assert whole.outputs["m"] == WHOLE


async def cut(events: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    journal = store.create("r")
    for event in events:
        journal.append(decode(encode(event)))
    await journal.close()
    return store


async def ended(flow: Flow, desk: Desk) -> tuple[Run, int]:
    """A run whose failed items were repeated, and where that begins."""
    store = MemoryStore()
    assert (await flow.run(run_id="r", store=store)).status == "succeeded"
    desk.mend()
    whole = await flow.resume("r", store=store, repeat_failed_items=True)
    assert whole.status == "succeeded"
    return whole, next(at for at, event in enumerate(whole.events) if type(event) is RunResumed)


async def test_a_repetition_that_is_cut_off_anywhere_goes_on_with_the_items_that_are_left(desk: Desk):
    desk.bad = {"m[1].b"}
    flow = desk.flow()
    whole, begins = await ended(flow, desk)
    for at in range(begins + 1, len(whole.events)):
        desk.ran.clear()
        again = await flow.resume("r", store=await cut(whole.events[:at]))
        assert again.outputs == whole.outputs, at
        assert set(desk.ran) <= {"m[1].b", "after"}, at


async def test_later_rounds_of_a_loop_begin_anew_and_earlier_ones_stay(desk: Desk):
    async def count(context: Context) -> Any:
        desk.ran.append(str(context.current_node))
        fine = [each for each in context.prev_outputs["m"] if isinstance(each, str)]
        return [*context.variables["round"]["seen"], len(fine)]

    loop = LoopNode(
        {"m": desk.mapped(), "count": FunctionNode(count, needs=["m"])},
        max_iterations=3,
        initial={"seen": lambda context: []},
        carry={"seen": lambda seen: seen.prev_outputs["count"]},
        exhausted_fails=False,
        until=lambda seen: False,
    )
    last = FunctionNode(desk.work, needs=["loop"])
    flow = Flow(
        "f",
        {"loop": loop, "last": last},
        shared_state={"log": StateKey([], "append")},
        outputs={"seen": lambda context: context.prev_outputs["loop"]["seen"]},
    )
    desk.bad = {"loop.round[1].m[2].b"}
    store = MemoryStore()
    first = await flow.run(run_id="r", store=store)
    assert first.outputs["seen"] == [3, 2]  # What the last round was entered with.
    desk.mend()
    again = await flow.resume("r", store=store, repeat_failed_items=True)
    assert again.outputs["seen"] == [3, 3]
    assert not [each for each in desk.ran if each.startswith("loop.round[0]")]
    assert [each for each in desk.ran if each.startswith("loop.round[1].m")] == ["loop.round[1].m[2].b"]
    assert sum(each.startswith("loop.round[2].m") for each in desk.ran) == 6
    assert desk.ran[-1] == "last"
    desk.ran.clear()
    begins = next(at for at, event in enumerate(again.events) if type(event) is RunResumed)
    for at in range(begins + 1, len(again.events)):
        cut_off = await flow.resume("r", store=await cut(again.events[:at]))
        assert cut_off.outputs == again.outputs, at
        assert not [each for each in desk.ran if each.startswith("loop.round[0]")], at


async def test_nested_maps_repeat_the_innermost_items_only(desk: Desk):
    outer = MapNode({"m": desk.mapped()}, over=lambda context: ["x", "y"])
    flow = Flow("f", {"outer": outer})
    desk.bad = {"outer[1].m[0].a"}
    store = MemoryStore()
    await flow.run(run_id="r", store=store)
    desk.mend()
    again = await flow.resume("r", store=store, repeat_failed_items=True)
    assert desk.ran == ["outer[1].m[0].a", "outer[1].m[0].b"]
    assert again.nodes["outer"].output[1] == ["outer[1].m[0].b", "outer[1].m[1].b", "outer[1].m[2].b"]


async def test_an_outer_item_that_failed_because_of_an_inner_one_repeats_the_inner_one_only(desk: Desk):
    outer = MapNode({"m": desk.mapped("fail")}, over=lambda context: ["x", "y"], on_item_error="collect")
    flow = Flow("f", {"outer": outer})
    desk.bad = {"outer[1].m[2].b"}
    store = MemoryStore()
    await flow.run(run_id="r", store=store)
    desk.mend()
    await flow.resume("r", store=store, repeat_failed_items=True)
    assert desk.ran == ["outer[1].m[2].b"]


async def test_what_acts_outside_behind_the_items_is_not_done_twice_unless_allowed(desk: Desk):
    nodes = {"m": desk.mapped(), "send": FunctionNode(desk.work, needs=["m"], effect="external")}
    flow, store = Flow("f", nodes), MemoryStore()
    desk.bad = {"m[1].b"}
    await flow.run(run_id="r", store=store)
    desk.mend()
    with pytest.raises(RunError, match="--retry-effect send"):
        await flow.resume("r", store=store, repeat_failed_items=True)
    assert desk.ran == []
    again = await flow.resume("r", store=store, repeat_failed_items=True, retry_effects=["send"])
    assert (again.status, desk.ran) == ("succeeded", ["m[1].b", "send"])


async def test_a_person_is_not_asked_twice_unless_allowed(desk: Desk):
    nodes = {
        "m": desk.mapped(),
        "ok": ApprovalNode(lambda context: "Ship?", {"yes": "after"}, needs=["m"]),
        "after": FunctionNode(desk.work),
    }
    flow, store = Flow("f", nodes), MemoryStore()
    desk.bad = {"m[1].b"}
    assert (await flow.run(run_id="r", store=store)).status == "waiting"
    assert (await flow.approve("r", "ok", "yes", store=store)).status == "succeeded"
    assert desk.ran.count("m[1].b") == 1  # An answer repeats nothing.
    desk.mend()
    with pytest.raises(RunError, match="--retry-effect ok"):
        await flow.resume("r", store=store, repeat_failed_items=True)
    assert (await flow.resume("r", store=store, repeat_failed_items=True, retry_effects=["ok"])).status == "waiting"
