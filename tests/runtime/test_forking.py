"""A new run that shares the past of another one up to a node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flowengine.agents.agent import Agent
from flowengine.core.budget import Budget
from flowengine.core.context import Context, NodeResult
from flowengine.core.records import Reused, ToolCall
from flowengine.engine.events import Event
from flowengine.engine.merging import StateKey
from flowengine.errors import EffectPendingError, InputError, RunError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Request
from flowengine.models.scripted import Answer, ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import RunLimits
from visualize.progress import fold_events

pytestmark = pytest.mark.anyio


def flow(ran: list[str]) -> Flow:
    async def work(context: Context) -> NodeResult:
        name = str(context.current_node)
        ran.append(name)
        state = {"log": [name], "mood": name} if name != "d" else {"log": [name]}
        return NodeResult(f"{name} in {context.shared_state['mood']}", state)

    return Flow(
        "f",
        {
            "a": FunctionNode(work),
            "b": FunctionNode(work, needs=["a"]),
            "c": FunctionNode(work, needs=["b"]),
            "d": FunctionNode(work, needs=["a"]),
        },
        shared_state={"mood": StateKey("calm"), "log": StateKey([], "append")},
    )


async def test_only_the_node_and_what_is_behind_it_run_again_and_the_old_run_stays():
    ran: list[str] = []
    store = MemoryStore()
    old = await flow(ran).run(store=store, run_id="old")
    ran.clear()
    new = await flow(ran).fork("old", "b", store=store)
    assert ran == ["b", "c"]
    assert new.id != "old"
    assert new.outputs == old.outputs
    assert list(new.shared_state["log"]) == ["a", "b", "c", "d"]
    assert store.events("old") == old.events
    shared = [event.node for event in new.events if type(getattr(event, "record", None)) is Reused]
    assert shared == ["a", "d"]


async def test_what_is_shared_happens_when_the_new_run_begins():
    store = MemoryStore()
    await flow([]).run(store=store, run_id="old")
    new = await flow([]).fork("old", "b", store=store)
    begun = new.events[0].at
    assert all(event.at >= begun for event in new.events)
    row = fold_events(new.events).nodes["a"]
    assert (row.started, row.ended) == (begun, begun)


async def test_the_node_finds_shared_state_as_it_was_set():
    ran: list[str] = []
    store = MemoryStore()
    await flow(ran).run(store=store, run_id="old")
    new = await flow(ran).fork("old", "b", store=store, state={"mood": "storm", "log": ["set"]})
    assert new.nodes["b"].output == "b in storm"
    assert new.nodes["c"].output == "c in b"
    assert new.nodes["d"].output == "d in a"
    assert list(new.shared_state["log"]) == ["a", "set", "b", "c", "d"]


async def test_a_forked_run_that_breaks_off_keeps_what_was_set():
    ran: list[str] = []
    store = MemoryStore()
    await flow(ran).run(store=store, run_id="old")
    new = await flow(ran).fork("old", "b", store=store, state={"mood": "storm"})
    events = new.events
    for cut in range(6, len(events)):
        again = MemoryStore()
        journal = again.create(new.id)
        for event in events[:cut]:
            journal.append(event)
        await journal.close()
        done = await flow(ran).resume(new.id, store=again)
        assert (done.status, done.outputs) == ("succeeded", new.outputs), cut


async def test_an_unknown_node_or_key_is_named_and_nothing_is_made():
    ran: list[str] = []
    store = MemoryStore()
    await flow(ran).run(store=store, run_id="old")
    with pytest.raises(InputError, match="no node 'bb'; did you mean 'b'"):
        await flow(ran).fork("old", "bb", store=store)
    with pytest.raises(InputError, match="no key 'moood'; did you mean 'mood'"):
        await flow(ran).fork("old", "b", store=store, state={"moood": 1})
    assert [run.run_id for run in store.list()] == ["old"]


async def test_a_run_of_another_flow_is_refused():
    ran: list[str] = []
    store = MemoryStore()
    await flow(ran).run(store=store, run_id="old")
    other = Flow("g", {"b": FunctionNode(print)})
    with pytest.raises(InputError, match="is one of flow 'f', not of 'g'"):
        await other.fork("old", "b", store=store)


# --- What a fork takes over of what was set, paid and done


async def cut(store: MemoryStore, run_id: str, events: Sequence[Event]) -> MemoryStore:
    """A store in which a run broke off."""
    journal = store.create(run_id)
    for event in events:
        journal.append(event)
    await journal.close()
    return store


async def test_a_fork_of_a_fork_keeps_what_the_first_one_set():
    async def look(context: Context) -> int:
        return context.shared_state["x"]

    nodes = {"a": FunctionNode(look), "b": FunctionNode(look, needs=["a"]), "c": FunctionNode(look, needs=["b"])}
    flow = Flow("f", nodes, shared_state={"x": StateKey(20), "y": StateKey(1)})
    store = MemoryStore()
    await flow.run(store=store, run_id="r")
    first = await flow.fork("r", "b", store=store, state={"x": 99})
    second = await flow.fork(first.id, "c", store=store, state={"y": 2})
    assert [second.nodes[name].output for name in "abc"] == [20, 99, 99]
    assert (second.shared_state["x"], second.shared_state["y"]) == (99, 2)
    third = await flow.fork(second.id, "b", store=store)
    assert [third.nodes[name].output for name in "abc"] == [20, 99, 99]
    assert third.shared_state["y"] == 2
    again = await flow.run(store=store, reuse=second.id)
    assert [again.nodes[name].output for name in "abc"] == [20, 20, 20]


def mailing(sent: list[str], *, items: Sequence[str] = (), dies_at: str = "") -> Flow:
    """Sends a mail, or one for each item, beside a node from which a fork can begin."""

    async def send(context: Context) -> str:
        to = str(context.variables["item"]) if items else "ann"
        sent.append(to)
        if to == dies_at:
            raise KeyboardInterrupt
        return to

    async def quick(context: Context) -> str:
        return "quick"

    mail = FunctionNode(send, effect="external")
    first = MapNode({"m": mail}, over=lambda context: list(items), concurrency=1) if items else mail
    return Flow("mail", {"t": FunctionNode(quick), "first": first})


async def test_a_fork_asks_about_a_deed_of_unknown_end_that_is_not_behind_it():
    sent: list[str] = []
    store = MemoryStore()
    run = await mailing(sent).run(store=store, run_id="r")
    begun = next(at for at, each in enumerate(run.events) if isinstance(getattr(each, "record", None), ToolCall))
    old = await cut(MemoryStore(), "r", run.events[: begun + 1])
    with pytest.raises(EffectPendingError, match="first"):
        await mailing(sent).fork("r", "t", store=old)
    assert sent == ["ann"]
    done = await mailing(sent).fork("r", "t", store=old, retry_effects=["first"])
    assert (done.status, sent) == ("succeeded", ["ann", "ann"])
    known = await mailing(sent).fork("r", "t", store=old, assume_done=["first"])
    assert (known.status, sent) == ("succeeded", ["ann", "ann"])


async def test_a_fork_repeats_nothing_that_was_done_in_an_unfinished_map_beside_it():
    sent: list[str] = []
    items = ("p1", "p2", "p3")
    whole = await mailing(sent, items=items).run(store=MemoryStore(), run_id="r")
    third = next(at for at, each in enumerate(whole.events) if getattr(each, "node", "").startswith("first[2]"))
    old = await cut(MemoryStore(), "r", whole.events[:third])
    before = list(old.events("r"))
    sent.clear()
    new = await mailing(sent, items=items).fork("r", "t", store=old)
    assert (new.status, sent) == ("succeeded", ["p3"])
    assert list(new.outputs["first"]) == list(items)
    assert old.events("r") == before


async def test_a_fork_buys_nothing_again_that_an_unfinished_node_beside_it_was_answered():
    def look() -> str:
        """Look it up."""
        return "seen"

    def flow(model: ScriptedModel) -> Flow:
        ask = AgentNode(Agent("ask", "Say it.", model=model), prompt=lambda context: str(context.variables["item"]))
        each = MapNode({"ask": ask}, over=lambda context: list(range(6)), concurrency=1)
        twice = AgentNode(Agent("b", "Look.", model=model, tools=[look]), prompt=lambda context: "b")
        return Flow("paid", {"each": each, "twice": twice, "fin": FunctionNode(lambda context: "fin")})

    def answer(request: Request) -> Answer:
        last = request.messages[-1]
        asks = last.role == "user" and last.content.endswith("b")
        return ToolRequest("1", "look", "{}") if asks else f"said {last.content[-1]}"

    store, fresh = MemoryStore(), await flow(ScriptedModel(answer)).run()
    for most in range(1, 9):
        model = ScriptedModel(answer)
        limits = RunLimits(bounds=Budget(model_calls=most), on_limit="pause", concurrency=1)
        old = await flow(model).run(store=store, run_id=f"r{most}", limits=limits)
        new = await flow(model).fork(old.id, "fin", store=store, limits=RunLimits(bounds=Budget(model_calls=8 - most)))
        assert (new.status, new.outputs) == ("succeeded", fresh.outputs), new.error
        assert len(model.requests) == 8
        assert fold_events(new.events).usage.calls == 8 - most
    again = ScriptedModel(answer)
    reused = await flow(again).run(store=store, reuse=new.id)
    assert (reused.status, len(again.requests)) == ("succeeded", 0)


async def test_failed_items_of_a_shared_map_can_be_repeated_in_a_fork_and_in_what_re_uses_it():
    ran: list[int] = []
    broken = {1}

    async def work(context: Context) -> int:
        item = context.variables["item"]
        ran.append(item)
        if item in broken:
            raise ValueError("not yet")
        return item

    flow = Flow(
        "items",
        {
            "each": MapNode({"w": FunctionNode(work)}, over=lambda context: [0, 1, 2], on_item_error="collect"),
            "end": FunctionNode(lambda context: len(context.prev_outputs), needs=["each"]),
        },
    )
    store = MemoryStore()
    await flow.run(store=store, run_id="r")
    new = await flow.fork("r", "end", store=store)
    second = await flow.fork(new.id, "end", store=store)
    broken.clear()
    ran.clear()
    for run_id in (new.id, second.id):
        mended = await flow.resume(run_id, store=store, repeat_failed_items=True)
        assert (mended.status, list(mended.nodes["each"].output), ran) == ("succeeded", [0, 1, 2], [1])
        ran.clear()


async def test_a_fork_of_a_run_that_re_used_another_one_begins_at_its_node():
    ran: list[str] = []
    store = MemoryStore()
    await flow(ran).run(store=store, run_id="r")
    again = await flow(ran).run(store=store, reuse="r")
    ran.clear()
    await flow(ran).fork(again.id, "b", store=store)
    assert ran == ["b", "c"]


async def test_failed_items_of_a_fork_are_not_repeated_past_a_deed_that_it_shares():
    broken = {1}

    async def work(context: Context) -> int:
        if context.variables["item"] in broken:
            raise ValueError("not yet")
        return context.variables["item"]

    async def send(context: Context) -> str:
        sent.append("mail")
        return "sent"

    sent: list[str] = []
    items = MapNode({"w": FunctionNode(work)}, over=lambda context: [0, 1], on_item_error="collect")
    mail = FunctionNode(send, effect="external", needs=["each"])
    flow = Flow("items", {"each": items, "mail": mail, "t": FunctionNode(lambda context: 1)})
    store = MemoryStore()
    await flow.run(store=store, run_id="r")
    new = await flow.fork("r", "t", store=store)
    broken.clear()
    with pytest.raises(RunError, match="'mail' would act"):
        await flow.resume(new.id, store=store, repeat_failed_items=True)
    assert sent == ["mail"]
