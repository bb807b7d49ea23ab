"""Loops, maps, subflows and approvals, cut off after any event and resumed: the same end, and nothing done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from flowengine.core.context import Context, NodeResult
from flowengine.engine.events import Event, NodeFinished, RunFinished
from flowengine.engine.merging import StateKey
from flowengine.errors import LimitError
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.run_inputs import InputField
from flowengine.nodes.subflow import SubflowNode
from flowengine.runtime.run import Run

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


Body = Mapping[str, FlowNode]


def as_map(body: Body) -> FlowNode:
    return MapNode(body, over=lambda context: [1], result=lambda seen: last_of(seen.prev_outputs))


def as_loop(body: Body) -> FlowNode:
    return LoopNode(body, max_iterations=1, carry={"v": lambda seen: last_of(seen.prev_outputs)})


def as_subflow(body: Body) -> FlowNode:
    return SubflowNode(Flow("inner", body, outputs={"v": lambda seen: last_of(seen.prev_outputs)}).plan)


def last_of(outputs: Mapping[str, Any]) -> Any:
    return next(reversed([outputs[name] for name in outputs]), "lost")


def counting_loop(began: anyio.Event, goes_on: anyio.Event) -> FlowNode:
    """Four rounds; the second one begins and then waits."""

    async def count(context: Context) -> int:
        if context.variables["round"]["index"] == 1:
            began.set()
            await goes_on.wait()
        return context.variables["round"]["v"] + 1

    return LoopNode(
        {"add": FunctionNode(count)},
        max_iterations=4,
        initial={"v": lambda context: 0},
        carry={"v": lambda seen: seen.prev_outputs["add"]},
    )


PAUSED = LimitError("enough", part="", on_limit="pause")


@pytest.mark.parametrize("outer", [as_map, as_loop, as_subflow])
@pytest.mark.parametrize("middle", [None, as_map, as_loop, as_subflow])
@pytest.mark.parametrize(("trouble", "status"), [(ValueError("first start"), "failed"), (PAUSED, "paused")])
async def test_containers_in_flight_are_unfinished_when_their_run_stops_and_go_on_when_it_is_resumed(
    outer: Callable[[Body], FlowNode],
    middle: Callable[[Body], FlowNode] | None,
    trouble: Exception,
    status: str,
):
    began, goes_on, troubles = anyio.Event(), anyio.Event(), [trouble]

    async def stumble(context: Context) -> str:
        await began.wait()
        goes_on.set()  # The loop goes on once this has failed: nothing is waited for in between.
        if troubles:
            raise troubles.pop()
        return "fine"

    loop = counting_loop(began, goes_on)
    inside = loop if middle is None else middle({"loop": loop})
    flow = Flow("t", {"work": outer({"inside": inside}), "stumble": FunctionNode(stumble)})
    store = MemoryStore()
    stopped = await flow.run(run_id="r", store=store)
    assert stopped.status == status
    finished = [event.node for event in stopped.events if isinstance(event, NodeFinished)]
    assert all(node.endswith(".add") for node in finished), finished
    resumed = await flow.resume("r", store=store)
    whole = await flow.run()
    assert resumed.status == whole.status == "succeeded"
    assert resumed.outputs == whole.outputs


@pytest.mark.parametrize("outer", [None, as_map, as_loop, as_subflow])
@pytest.mark.parametrize(("trouble", "status"), [(ValueError("first start"), "failed"), (PAUSED, "paused")])
async def test_a_run_that_stops_begins_no_node_inside_its_containers_any_more(
    outer: Callable[[Body], FlowNode] | None, trouble: Exception, status: str
):
    both, goes_on, ran = anyio.Event(), anyio.Event(), list[str]()

    async def step(context: Context) -> None:
        ran.append(str(context.current_node))
        if len(ran) == 2:
            both.set()
        await goes_on.wait()

    async def stumble(context: Context) -> None:
        await both.wait()
        goes_on.set()
        raise trouble

    steps = {f"s{n}": FunctionNode(step, needs=[f"s{n - 1}"] if n else []) for n in range(4)}
    items = MapNode(steps, over=lambda context: list(range(10)), concurrency=2)
    work = items if outer is None else outer({"items": items})
    stopped = await Flow("t", {"work": work, "stumble": FunctionNode(stumble)}).run()
    assert stopped.status == status
    assert len(ran) == 2, ran


@pytest.mark.parametrize("kind", ["map", "loop", "subflow"])
@pytest.mark.parametrize("join", ["some", "always"])
async def test_a_container_that_runs_again_runs_its_body_again(kind: str, join: Any):
    seen: list[str] = []
    fails = [True]

    async def fragile(context: Context) -> None:
        if fails:
            raise ValueError(fails.pop())

    async def here(context: Context) -> str:
        return "here"

    async def note(context: Context) -> str:
        seen.append(told := str(context.prev_outputs.get("new")))
        return told

    async def given(context: Context) -> str:
        seen.append(told := str(context.inputs["x"]))
        return told

    def flow(first: Sequence[str]) -> Flow:
        """What is before the container, which goes on to something that fails."""
        inner = Flow("inner", {"note": FunctionNode(given)}, inputs={"x": InputField("string")})
        policies: dict[str, Any] = {"needs": first, "join": join}
        containers: dict[str, Callable[[], FlowNode]] = {
            "map": lambda: MapNode({"note": FunctionNode(note)}, over=lambda context: [1], **policies),
            "loop": lambda: LoopNode({"note": FunctionNode(note)}, max_iterations=1, **policies),
            "subflow": lambda: SubflowNode(
                inner.plan, arguments={"x": lambda context: str(context.prev_outputs.get("new"))}, **policies
            ),
        }
        before = {name: FunctionNode(here) for name in first}
        return Flow("f", {**before, "c": containers[kind](), "fragile": FunctionNode(fragile, needs=["c"])})

    store = MemoryStore()
    assert (await flow(["old"]).run(run_id="r", store=store)).status == "failed"
    assert seen == ["None"]
    edited = flow(["old", "new"])  # So that the container waits for something that has not run yet.
    done = await edited.resume("r", store=store, allow_changed=True)
    assert done.status == "succeeded"
    assert seen == ["None", "here"]
    cut = max(at for at, event in enumerate(done.events) if getattr(event, "node", "") == "new")
    again = await edited.resume("r", store=await store_with(done.events[: cut + 1]))
    assert again.status == "succeeded"
    assert seen == ["None", "here", "here"]
