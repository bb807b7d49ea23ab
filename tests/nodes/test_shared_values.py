"""Values that could be changed in place (models, dataclasses, sets): what one node does to its own reaches no other."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from flowengine.core.context import Context, LLMResult, NodeResult
from flowengine.engine.events import NodeFinished
from flowengine.engine.merging import StateKey
from flowengine.errors import InputError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import RetryPolicy

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    tags: list[str] = []


@dataclass
class Box:
    things: list[str] = field(default_factory=list[str])


Change = Callable[[Any], None]


def spoil(value: Any) -> None:
    """Changes the first object in a value that can be changed."""
    if isinstance(value, Order):
        value.tags = [*value.tags, "spoilt"]
    elif isinstance(value, Box):
        value.things.append("spoilt")
    elif isinstance(value, set):
        value.add("spoilt")  # pyright: ignore[reportUnknownMemberType]
    elif isinstance(value, dict):
        spoil(next(iter(value.values())))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    else:
        spoil(value[0])


VALUES = [
    Order(tags=["a"]),
    Box(["a"]),
    {"a"},
    [Order(tags=["a"])],
    {"x": [Box(["a"])]},
    ({"a"}, 1),
    [{"deep": (Order(tags=["a"]),)}],
]
each_value = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)

READERS: dict[str, Callable[[Context], Any]] = {
    "prev_outputs": lambda context: context.prev_outputs["make"],
    "nodes": lambda context: context.nodes["make"].output,
    "result": lambda context: context.result,
    "nodes' result": lambda context: context.nodes["make"].result,
    "state": lambda context: context.shared_state["key"],
    "inputs": lambda context: context.inputs["given"],
}


@each_value
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
async def test_a_node_does_not_see_what_another_did_to_its_copy(read: Callable[[Context], Any], value: Any):
    async def make(context: Context) -> NodeResult:
        return NodeResult(value, state={"key": value})

    async def first(context: Context) -> Any:
        spoil(read(context))
        return read(context)

    async def second(context: Context) -> Any:
        return read(context)

    nodes = {
        "make": FunctionNode(make),
        "first": FunctionNode(first, needs=["make"]),
        "second": FunctionNode(second, needs=["make"]),
    }
    before, store = deepcopy(value), MemoryStore()
    flow = Flow("f", nodes, shared_state={"key": StateKey()})
    run = await flow.run({"given": value}, store=store)
    assert run.nodes["first"].output == run.nodes["second"].output == before
    journaled = [event.result.output for event in store.events(run.id) if isinstance(event, NodeFinished)]
    assert journaled == [before] * 3
    assert (await flow.resume(run.id, store=store)).nodes["second"].output == before


@each_value
async def test_what_a_node_does_to_a_value_after_it_returned_it_reaches_no_other(value: Any):
    mine = deepcopy(value)

    async def make(context: Context) -> Any:
        return mine

    async def read(context: Context) -> Any:
        spoil(mine)
        return context.prev_outputs["make"]

    flow = Flow("f", {"make": FunctionNode(make), "read": FunctionNode(read, needs=["make"])})
    assert (await flow.run()).nodes["read"].output == value


@each_value
async def test_what_a_caller_does_to_its_inputs_later_reaches_no_node(value: Any):
    mine = deepcopy(value)

    async def spoiling(context: Context) -> None:
        spoil(mine)

    async def read(context: Context) -> Any:
        return context.inputs["x"]

    flow = Flow("f", {"spoil": FunctionNode(spoiling), "read": FunctionNode(read, needs=["spoil"])})
    assert (await flow.run({"x": mine})).nodes["read"].output == value


async def test_contributions_to_state_are_copies_as_well():
    async def write(context: Context) -> NodeResult:
        return NodeResult(None, state={"all": [Box(["w"])], "by_name": {"w": Box(["w"])}})

    async def first(context: Context) -> None:
        spoil(context.shared_state["all"])
        spoil(context.shared_state["by_name"])

    async def second(context: Context) -> Any:
        return [context.shared_state["all"], context.shared_state["by_name"]]

    nodes = {
        "write": FunctionNode(write),
        "first": FunctionNode(first, needs=["write"]),
        "second": FunctionNode(second, needs=["first"]),
    }
    keys = {"all": StateKey([Box(["d"])], "append"), "by_name": StateKey({}, "update")}
    run = await Flow("f", nodes, shared_state=keys).run()
    assert run.nodes["second"].output == [[Box(["d"]), Box(["w"])], {"w": Box(["w"])}]


async def test_items_of_a_map_over_a_list_from_python_are_each_nodes_own():
    literal = [Box(["a"]), [1]]

    async def first(context: Context) -> None:
        item = context.variables["item"]
        if isinstance(item, Box):
            spoil(item)
            spoil(context.result)
        else:
            with pytest.raises(TypeError, match="shared with other nodes"):
                item.append(2)
        with pytest.raises(TypeError, match="shared with other nodes"):
            context.variables["each"]["index"] = 7

    async def second(context: Context) -> Any:
        return [context.variables["item"], context.variables["each"]["index"]]

    body = {"first": FunctionNode(first), "second": FunctionNode(second, needs=["first"])}
    run = await Flow("f", {"m": MapNode(body, over=lambda context: literal)}).run()
    assert run.nodes["m"].output == [[Box(["a"]), 0], [[1], 1]]
    assert literal == [Box(["a"]), [1]]


async def test_variables_of_a_loop_are_each_nodes_own():
    async def first(context: Context) -> None:
        spoil(context.variables["round"]["box"])

    async def second(context: Context) -> Any:
        return context.variables["round"]["box"]

    loop = LoopNode(
        {"first": FunctionNode(first), "second": FunctionNode(second, needs=["first"])},
        max_iterations=2,
        initial={"box": lambda context: Box(["a"])},
        carry={"box": lambda seen: spoil(seen.prev_outputs["second"]) or seen.prev_outputs["second"]},
    )
    assert (await Flow("f", {"loop": loop}).run()).nodes["loop"].output["box"] == Box(["a"])


async def test_what_an_agent_tells_about_its_answer_is_each_readers_own():
    async def make(context: Context) -> NodeResult:
        return NodeResult("text", result=LLMResult(content="text", metadata={"calls": 1}))

    async def first(context: Context) -> None:
        context.result.metadata["calls"] = 99

    async def second(context: Context) -> Any:
        return context.nodes["make"].result.metadata["calls"]

    nodes = {
        "make": FunctionNode(make),
        "first": FunctionNode(first, needs=["make"]),
        "second": FunctionNode(second, needs=["make", "first"]),
    }
    assert (await Flow("f", nodes).run()).nodes["second"].output == 1


async def test_another_attempt_sees_what_the_first_one_saw():
    async def make(context: Context) -> Box:
        return Box(["a"])

    async def read(context: Context) -> Any:
        box = context.result
        box.things.append("tried")
        tried.append(box)
        if len(tried) == 1:
            raise ValueError("again")
        return box

    tried: list[Box] = []
    retry = RetryPolicy(attempts=2, initial=0.001)
    flow = Flow("f", {"make": FunctionNode(make), "read": FunctionNode(read, needs=["make"], retry=retry)})
    assert (await flow.run()).nodes["read"].output == Box(["a", "tried"])


async def test_who_follows_a_run_changes_nothing_that_its_nodes_see():
    async def make(context: Context) -> Box:
        return Box(["a"])

    async def read(context: Context) -> Any:
        await spoilt.wait()
        return context.result

    spoilt = anyio.Event()
    flow = Flow("f", {"make": FunctionNode(make), "read": FunctionNode(read, needs=["make"])})
    async with flow.stream() as events:
        async for event in events:
            if isinstance(event, NodeFinished) and event.node == "make":
                spoil(event.result.output)
                spoilt.set()
    assert events.run is not None
    assert events.run.nodes["read"].output == Box(["a"])


async def test_arguments_from_templates_are_each_functions_own(tmp_path: Path):
    (tmp_path / "boxes.py").write_text(
        """
from dataclasses import dataclass, field

@dataclass
class Box:
    things: list[str] = field(default_factory=list)

def make(): return [Box(["a"])]
def spoil(boxes): boxes[0].things.append("spoilt")
def read(boxes): return list(boxes[0].things)
"""
    )
    file = tmp_path / "f.yaml"
    file.write_text(
        """
flowengine: v1
name: t
shared_state: {kept: {default: []}}
nodes:
  make: {type: function, call: "boxes:make", set: {kept: "{{ output }}"}}
  spoil: {type: function, call: "boxes:spoil", with: {boxes: "{{ nodes.make.output }}"}}
  state: {type: function, call: "boxes:spoil", with: {boxes: "{{ shared_state.kept }}"}, needs: [make]}
  read: {type: function, call: "boxes:read", with: {boxes: "{{ nodes.make.output }}"}, needs: [spoil, state]}
  kept: {type: function, call: "boxes:read", with: {boxes: "{{ shared_state.kept }}"}, needs: [read]}
  each:
    type: map
    over: nodes.make.output
    as: box
    needs: [read]
    nodes:
      change: {type: function, call: "boxes:spoil", with: {boxes: ["{{ box }}"]}}
      look: {type: function, call: "boxes:read", with: {boxes: ["{{ box }}"]}, needs: [change]}
    result: "{{ nodes.look.output }}"
outputs:
  all: ["{{ nodes.read.output }}", "{{ nodes.kept.output }}", "{{ nodes.each.output }}"]
"""
    )
    run = await Flow.from_yaml(file).run()
    assert run.status == "succeeded", run.error
    assert run.outputs["all"] == [["a"], ["a"], [["a"]]]


def test_an_output_that_contains_itself_fails_its_node_with_the_reason():
    def make(context: Context) -> list[Any]:
        endless: list[Any] = []
        endless.append(endless)
        return endless

    run = Flow("endless", {"make": FunctionNode(make)}).run_sync()
    assert run.error is not None
    assert (run.status, run.error.type) == ("failed", "NotJournalableError")
    assert run.error.message == "the output contains itself, or is nested too deep"


async def test_a_value_that_contains_itself_is_reported_wherever_it_is_taken(anyio_backend: str) -> None:
    endless: list[object] = []
    endless.append(endless)
    told = "contains itself, or is nested too deep"

    def count(context: Context) -> int:
        return 1

    one = FunctionNode(count)
    run = await Flow("f", {"a": one}, outputs={"fine": lambda context: 1, "odd": lambda context: endless}).run()
    assert run.error is not None
    assert run.error.message == f"output 'odd' {told}"
    loop = LoopNode({"a": one}, max_iterations=2, carry={"v": lambda context: endless})
    run = await Flow("f", {"again": loop}).run()
    assert f"a value {told}" in str(run.nodes["again"].error)
    with pytest.raises(InputError, match="the inputs are nested too deep"):
        await Flow("f", {"a": one}).run({"x": endless})


def test_an_output_of_a_flow_is_copied_once() -> None:
    copies: list[object] = []

    class Noted:
        def __deepcopy__(self, memo: object) -> Noted:
            copies.append(memo)
            return self

    flow = Flow("f", {"a": FunctionNode(lambda: 1)}, outputs={"noted": lambda context: Noted()})
    flow.run_sync(store=MemoryStore())
    assert len(copies) == 1
