"""A new run that shares the past of another one up to a node."""

from __future__ import annotations

import pytest

from flowengine.core.context import Context, NodeResult
from flowengine.core.records import Reused
from flowengine.engine.merging import StateKey
from flowengine.errors import InputError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.function import FunctionNode
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
