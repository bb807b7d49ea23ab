"""Maps: order, concurrency, failures of items, and what items may write."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from flowengine.core.context import Context, NodeResult
from flowengine.engine.events import NodeFailed, NodeStarted, RunFinished
from flowengine.engine.merging import StateKey
from flowengine.errors import DefinitionError, JournalError, StoreUnavailableError, SupersededError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryJournal, MemoryStore
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode, RunLimits
from flowengine.nodes.subflow import SubflowNode
from flowengine.runtime.local.local import start
from flowengine.runtime.run import Run, RunOptions

pytestmark = pytest.mark.anyio

STATE = {
    "log": StateKey([], "append"),
    "total": StateKey(0, "sum"),
    "last": StateKey(None),
    "any": StateKey(None, "replace"),
}


async def run(node: FlowNode, limits: RunLimits | None = None, **more: FlowNode) -> Run:
    return await Flow("f", {"m": node, **more}, shared_state=STATE, limits=limits).run()


def mapping(body: Any, items: Any = (3, 1, 2), **settings: Any) -> MapNode:
    return MapNode({"body": FunctionNode(body)}, over=lambda context: items, **settings)


async def square(context: Context) -> int:
    item = context.variables["item"]
    await anyio.sleep(0.001 * item)
    return item * item


async def test_results_are_in_the_order_of_the_items_whatever_finishes_first():
    assert (await run(mapping(square))).nodes["m"].output == [9, 1, 4]


async def test_an_empty_list_gives_an_empty_list():
    assert (await run(mapping(square, []))).nodes["m"].output == []


async def test_the_item_is_the_result_of_the_first_nodes_and_each_tells_its_place():
    async def tell(context: Context) -> list[Any]:
        return [context.result, context.variables["each"]["index"], context.variables["each"]["total"]]

    assert (await run(mapping(tell, ["x", "y"]))).nodes["m"].output == [["x", 0, 2], ["y", 1, 2]]


class FailingJournal(MemoryJournal):
    """Its third commit fails, and no other."""

    __slots__ = ("_error", "_left")

    def __init__(self, error: JournalError) -> None:
        super().__init__()
        self._error = error
        self._left = 3

    def commit(self, alone: bool = True, /) -> None:
        self._left -= 1
        if self._left == 0:
            raise self._error


@pytest.mark.parametrize("kind", [StoreUnavailableError, SupersededError])
@pytest.mark.parametrize("depth", [1, 2])
async def test_a_record_that_cannot_be_kept_during_an_item_ends_the_run_and_fails_no_map(
    kind: type[JournalError], depth: int
):
    node = mapping(square, on_error="skip")
    if depth == 2:
        node = MapNode({"inner": mapping(square)}, over=lambda context: [1, 2], on_error="skip")
    journal = FailingJournal(kind("away"))
    with pytest.raises(kind, match="away"):
        await start(Flow("f", {"m": node}).plan, {}, MemoryStore(), RunOptions(journal=journal))
    assert not any(isinstance(each, NodeFailed | RunFinished) for each in journal.read())


async def test_a_flow_that_an_item_runs_sees_nothing_of_the_item():
    async def names(context: Context) -> list[str]:
        return list(context.variables)

    inner = SubflowNode(Flow("inner", {"names": FunctionNode(names)}).plan)
    done = await run(MapNode({"inner": inner}, over=lambda context: [1]))
    assert done.nodes["m"].output == [{"names": []}]


async def test_all_items_run_at_once_where_nothing_bounds_them():
    inside, most = 0, 0

    all_inside = anyio.Event()

    async def count(context: Context) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 40:
            all_inside.set()
        with anyio.fail_after(60):
            await all_inside.wait()
        inside -= 1

    await run(mapping(count, list(range(40))))
    assert most == 40


@pytest.mark.parametrize("bounds", [{"concurrency": 3}, {"limits": RunLimits(concurrency=3)}])
async def test_concurrency_of_the_map_and_of_the_run_bound_the_items_in_work(bounds: dict[str, Any]):
    inside, most = 0, 0

    async def count(context: Context) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.wait_all_tasks_blocked()
        inside -= 1

    own = {key: value for key, value in bounds.items() if key == "concurrency"}
    done = await run(mapping(count, list(range(12)), **own), bounds.get("limits"))
    assert done.status == "succeeded"
    assert most == 3


async def test_a_container_holds_no_slot_so_one_slot_is_enough_for_maps_in_maps():
    inner = mapping(square, [1, 2])
    outer = MapNode({"inner": inner}, over=lambda context: [1, 2, 3])
    done = await run(outer, RunLimits(concurrency=1))
    assert done.nodes["m"].output == [[1, 4]] * 3


async def fails_on_two(context: Context) -> int:
    if context.variables["item"] == 2:
        raise ValueError("two")
    return context.variables["item"]


async def test_a_failed_item_fails_the_map_and_names_the_node_inside():
    done = await run(mapping(fails_on_two, [1, 2, 3]))
    assert done.status == "failed"
    assert done.failed_node == "m[1].body"
    assert done.nodes["m"].error == "ValueError: two"


async def test_after_a_failed_item_no_other_begins():
    done = await run(mapping(fails_on_two, [1, 2, 3, 4, 5], concurrency=1))
    started = [event.node for event in done.events if isinstance(event, NodeStarted)]
    assert started == ["m", "m[0].body", "m[1].body"]


async def test_failed_items_may_be_dropped():
    assert (await run(mapping(fails_on_two, [1, 2, 3], on_item_error="skip"))).nodes["m"].output == [1, 3]


async def test_failed_items_may_keep_their_place():
    done = await run(mapping(fails_on_two, [1, 2, 3], on_item_error="collect"))
    assert done.nodes["m"].output == [1, {"error": "m[1].body: ValueError: two", "index": 1}, 3]


async def test_what_items_contribute_is_folded_in_their_order():
    async def add(context: Context) -> NodeResult:
        item = context.variables["item"]
        await anyio.sleep(0.001 * (5 - item))
        return NodeResult(state={"log": [item], "total": item})

    done = await run(mapping(add, [1, 2, 3]))
    assert list(done.shared_state["log"]) == [1, 2, 3]
    assert done.shared_state["total"] == 6


async def test_what_a_failed_item_wrote_does_not_count():
    async def write(context: Context) -> NodeResult:
        return NodeResult(state={"log": [context.variables["item"]]})

    node = MapNode(
        {"write": FunctionNode(write), "then": FunctionNode(fails_on_two, needs=["write"])},
        over=lambda context: [1, 2, 3],
        on_item_error="skip",
    )
    assert list((await run(node)).shared_state["log"]) == [1, 3]


async def test_two_items_that_write_a_key_without_a_merge_rule_are_an_error_that_says_so():
    async def write(context: Context) -> NodeResult:
        return NodeResult(state={"last": context.variables["item"]})

    done = await run(mapping(write, [1, 2]))
    assert done.error is not None
    assert "2 items wrote the shared state key 'last', which has no merge rule" in done.error.message


async def test_one_item_that_writes_such_a_key_is_fine():
    async def write(context: Context) -> NodeResult:
        return NodeResult(state={"last": context.variables["item"]} if context.variables["item"] == 1 else None)

    assert (await run(mapping(write, [1, 2]))).shared_state["last"] == 1


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("abc", "must give a list, found"),
        ({"a": 1}, "must give a list, found"),
        (None, "must give a list"),
        (list(range(100_001)), "100,001 items; a map takes at most 100,000"),
    ],
)
async def test_over_must_give_a_list_of_bearable_length(items: Any, said: str):
    done = await run(mapping(square, items))
    assert done.error is not None
    assert said in done.error.message


async def test_result_may_be_worked_out_from_the_body():
    node = MapNode(
        {"a": FunctionNode(_square_of_x), "b": FunctionNode(_square_of_x)},
        over=lambda context: [1, 2],
        name="x",
        result=lambda seen: seen.prev_outputs["a"] + seen.prev_outputs["b"],
    )
    assert (await run(node)).nodes["m"].output == [2, 8]


async def _square_of_x(context: Context) -> int:
    return context.variables["x"] ** 2


def test_a_body_with_several_ends_needs_a_result():
    with pytest.raises(DefinitionError, match=r"ends in several nodes \(a, b\) needs `result`"):
        MapNode({"a": FunctionNode(square), "b": FunctionNode(square)}, over=lambda context: [])


async def test_an_unhandled_failure_beside_a_map_begins_no_further_item():
    async def slow(context: Context) -> None:
        await anyio.sleep(0.005)

    async def fail(context: Context) -> None:
        await anyio.sleep(0.002)
        raise ValueError("beside")

    done = await run(mapping(slow, list(range(100)), concurrency=1), bad=FunctionNode(fail))
    assert done.status == "failed"
    assert done.failed_node == "bad"
    assert done.nodes["m"].status == "cancelled"
    assert len([event for event in done.events if isinstance(event, NodeStarted)]) < 10


@pytest.mark.long
async def test_an_item_that_fails_late_among_very_many_loses_nothing_of_the_others():
    async def last_fails(context: Context) -> int:
        if context.variables["item"] == 9_999:
            raise ValueError("the last")
        return 1

    done = await run(mapping(last_fails, list(range(10_000)), on_item_error="collect"))
    output = done.nodes["m"].output
    assert len(output) == 10_000
    assert output[:-1] == [1] * 9_999
    assert output[-1] == {"error": "m[9999].body: ValueError: the last", "index": 9_999}


@pytest.mark.parametrize("name", ["result", "until"])
async def test_a_function_of_the_map_that_raises_is_told_as_itself(name: str) -> None:
    def fail(_: Context) -> Any:
        raise ValueError("no such key")

    functions = {name: fail}
    node = MapNode({"one": FunctionNode(lambda _: 1)}, over=lambda _: [1, 2], **functions)
    run = await Flow("f", {"each": node}).run({})
    assert run.error is not None
    assert f"`{name}` failed: ValueError: no such key" in run.error.message
