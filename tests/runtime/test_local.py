"""A journal cut anywhere resumes to the same end, on both event loops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from anyio import lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.context import Context, NodeResult
from flowengine.engine.events import (
    Event,
    NodeCancelled,
    NodeFinished,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from flowengine.engine.merging import StateKey
from flowengine.errors import DefinitionError, StoreCorruptError, StoreUnavailableError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryJournal, MemoryStore
from flowengine.journal.run_export import store_run
from flowengine.nodes.condition import ConditionNode
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.local.local import changed_nodes, read_run, resume
from flowengine.runtime.run import Run, RunOptions


def flow_of(seed: int, ran: list[str]) -> Flow:
    """Twelve nodes with routes, skips, handled failures and merged state; the same for the same seed."""
    shape = random.Random(seed)
    names = [f"n{i:02}" for i in range(12)]

    async def works(context: Context) -> NodeResult:
        name = str(context.current_node)
        ran.append(name)
        for _ in range(int(name[1:]) % 3):
            await lowlevel.checkpoint()
        if int(name[1:]) % 5 == 4:
            raise ValueError(name)
        return NodeResult(f"{name}:{len(context.prev_outputs)}", state={"log": [name]})

    nodes: dict[str, FunctionNode | ConditionNode] = {}
    for at, name in enumerate(names):
        needs = [each for each in names[:at] if shape.random() < 0.25]
        if at % 4 == 1 and at + 2 < len(names):
            ways = {"x": names[at + 1], "y": names[at + 2]}
            nodes[name] = ConditionNode(lambda context, label="xy"[seed % 2]: label, ways, needs=needs)
        else:
            nodes[name] = FunctionNode(works, needs=needs, on_error="skip")
    return Flow("cut", nodes, shared_state={"log": StateKey([], "append")})


def told(run: Run) -> list[object]:
    nodes = [(name, node.status, node.output, node.cause) for name, node in run.nodes.items()]
    return [run.status, nodes, list(run.shared_state["log"]), dict(run.outputs)]


def store_with(events: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    journal = store.create("r")
    for event in events:
        journal.append(event)
    anyio.run(journal.close)
    return store


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 7), cut=st.floats(0, 1))
def test_every_prefix_of_a_journal_resumes_to_the_same_end(backend: str, seed: int, cut: float):
    ran: list[str] = []
    flow = flow_of(seed, ran)
    whole = anyio.run(lambda: flow.run(store=MemoryStore(), run_id="r"), backend=backend)
    events = list(whole.events)
    kept = events[: 1 + int(cut * (len(events) - 1))]
    finished = {event.node for event in kept if isinstance(event, NodeFinished)}
    ran.clear()
    store = store_with(kept)
    again = anyio.run(lambda: flow.resume("r", store=store), backend=backend)
    assert told(again) == told(whole)
    assert not finished & set(ran), "what had finished is not run again"


@pytest.mark.anyio
async def test_a_run_is_read_back_as_it_was():
    flow = flow_of(1, [])
    run = await flow.run(store=MemoryStore())
    assert told(read_run(flow.plan, run.events)) == told(run)


@pytest.mark.anyio
async def test_an_unfinished_run_is_read_back_as_running():
    flow = flow_of(1, [])
    run = await flow.run(store=MemoryStore())
    assert read_run(flow.plan, run.events[:6]).status == "running"


@pytest.mark.anyio
async def test_a_resumption_with_limits_that_are_none_leaves_the_run_free():
    async def fail(context: Context) -> None:
        raise ValueError("no")

    flow, store = Flow("f", {"one": FunctionNode(fail)}), MemoryStore()
    await flow.run(store=store, run_id="r")
    for _ in range(2):
        with pytest.raises(DefinitionError, match="timeout must be a number"):
            await resume(flow.plan, "r", store, RunOptions(settings={"timeout": "soon"}))


class FullStore(MemoryStore):
    """It has no room for the end of a run."""

    def create(self, run_id: str, /) -> MemoryJournal:
        journal = super().create(run_id)
        append = journal.append

        def refuse_end(event: Event, /) -> None:
            if isinstance(event, RunFinished):
                raise StoreUnavailableError("the disk is full")
            append(event)

        journal.append = refuse_end
        return journal


@pytest.mark.anyio
async def test_an_interrupt_is_told_also_where_it_cannot_be_journaled():
    async def interrupt(context: Context) -> None:
        raise KeyboardInterrupt

    store = FullStore()
    with pytest.raises(KeyboardInterrupt):
        await Flow("f", {"one": FunctionNode(interrupt)}).run(store=store, run_id="r")
    await store.open("r").close()  # Nobody holds it.


def test_a_node_inside_another_that_runs_again_is_running():
    went = [NodeStarted("loop", 1.0), NodeStarted("loop.round[0].n00", 1.0), NodeCancelled("loop.round[0].n00", 2.0)]
    events = [RunStarted("r", "cut", 1.0, {}, {}, {}), *went, RunResumed(3.0), *went[:2]]
    plan = flow_of(1, []).plan
    assert read_run(plan, events).nodes["loop.round[0].n00"].status == "running"
    assert read_run(plan, events[:4]).nodes["loop.round[0].n00"].status == "cancelled"


def test_a_journal_without_its_start_is_refused():
    with pytest.raises(StoreCorruptError, match="does not begin with its start"):
        read_run(flow_of(1, []).plan, [RunFinished(0.0, "succeeded")])


@pytest.mark.anyio
@pytest.mark.parametrize("chosen", [{"reuse": 5}, {"from": "n00", "set": 5}])
async def test_a_run_from_elsewhere_with_senseless_settings_is_told_as_such(chosen: dict[str, Any]):
    flow, store = flow_of(1, []), MemoryStore()
    began = (await flow.run(run_id="r")).events[0]
    await store_run(store, [began._replace(settings=chosen)])  # type: ignore[union-attr,call-arg]
    with pytest.raises(StoreCorruptError, match="the record of run r does not fit together"):
        await flow.resume("r", store=store)


@pytest.mark.anyio
async def test_changed_added_and_removed_nodes_are_named():
    async def one(context: Context) -> int:
        return 1

    async def two(context: Context) -> int:
        return 2

    before = Flow("f", {"same": FunctionNode(one), "edited": FunctionNode(one), "gone": FunctionNode(one)})
    after = Flow("f", {"same": FunctionNode(one), "edited": FunctionNode(two), "new": FunctionNode(one)})
    run = await before.run(store=MemoryStore())
    assert isinstance(run.events[0], RunStarted)
    assert changed_nodes(after.plan, run.events) == ["edited", "new", "gone"]
    assert changed_nodes(before.plan, run.events) == []
