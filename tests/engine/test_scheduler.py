"""The scheduler on both event loops: what runs, what is journaled, and how it ends."""

from __future__ import annotations

import contextvars
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from flowengine.core.context import Context, NodeResult
from flowengine.core.records import Notice
from flowengine.engine.events import (
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
)
from flowengine.engine.graph import Edge, Graph, Vertex
from flowengine.engine.levels import LevelBody, Unfinished, enter_level
from flowengine.engine.merging import StateKey
from flowengine.engine.ports import Skip
from flowengine.engine.scheduler import OnFailure, Scheduler
from flowengine.engine.state import StateStore
from flowengine.engine.walk import Walk
from flowengine.errors import StoreUnavailableError
from flowengine.journal.memory import MemoryJournal

pytestmark = pytest.mark.anyio

Work = Callable[[Context], Awaitable[NodeResult | Skip]]


class Running:
    """A node that does what it is told."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def run(self, context: Context, /) -> NodeResult | Skip:
        return await self._work(context)


class Played:
    """A graph that was run to its end."""

    def __init__(self, vertices: list[Vertex], edges: list[tuple[str, ...]], state: dict[str, StateKey]) -> None:
        self.graph = Graph(vertices, [Edge(*edge) for edge in edges])
        self.walk = Walk(self.graph, StateStore(state))
        self.journal = MemoryJournal()

    def scheduler(self, work: Work | dict[str, Work], **settings: Any) -> Scheduler:
        by_name = work if isinstance(work, dict) else dict.fromkeys(self.graph.ids, work)
        nodes = [Running(by_name.get(name, nothing)) for name in self.graph.ids]
        return Scheduler(self.walk, nodes, self.journal, **settings)

    @property
    def events(self) -> list[Event]:
        return list(self.journal.read())

    def named(self, kind: type[Any]) -> list[str]:
        return [event.node for event in self.events if isinstance(event, kind)]


async def nothing(context: Context) -> NodeResult:
    return NodeResult(context.current_node)


async def breaks(context: Context) -> NodeResult:
    raise ValueError("broken")


def flow(nodes: str | list[Vertex], *edges: tuple[str, ...], **state: StateKey) -> Played:
    return Played([Vertex(n) for n in nodes.split()] if isinstance(nodes, str) else nodes, list(edges), state)


async def test_every_node_starts_after_its_parents_have_finished():
    played = flow("a b c", ("a", "c"), ("b", "c"))
    await played.scheduler(nothing).run()
    kinds = [(type(event).__name__, event.node) for event in played.events]  # type: ignore[union-attr]
    assert kinds.index(("NodeStarted", "c")) > kinds.index(("NodeFinished", "b"))
    assert played.walk.done


async def test_independent_nodes_run_at_the_same_time():
    started = 0
    everybody = anyio.Event()

    async def waits_for_all(context: Context) -> NodeResult:
        nonlocal started
        started += 1
        if started == 50:
            everybody.set()
        await everybody.wait()
        return NodeResult()

    played = flow(" ".join(f"n{i}" for i in range(50)))
    with anyio.fail_after(60):
        await played.scheduler(waits_for_all).run()
    assert played.walk.done


async def test_nodes_that_suspend_have_all_begun_after_a_few_turns_of_the_loop():
    turns = started = 0
    everybody = anyio.Event()

    async def count_turns() -> None:
        nonlocal turns
        while not everybody.is_set():
            await lowlevel.checkpoint()
            turns += 1

    async def waits_for_all(context: Context) -> NodeResult:
        nonlocal started
        started += 1
        if started == 1000:
            everybody.set()
        await everybody.wait()
        return NodeResult()

    played = flow(" ".join(f"n{i}" for i in range(1000)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        await played.scheduler(waits_for_all).run()
    assert turns <= 7


async def test_no_more_nodes_run_at_once_than_the_limit():
    running = most = 0

    async def counted(context: Context) -> NodeResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1
        return NodeResult()

    played = flow(" ".join(f"n{i}" for i in range(40)))
    await played.scheduler(counted, concurrency=3).run()
    assert played.walk.done
    assert most == 3


async def test_a_node_that_raises_is_a_failed_node_with_its_cause():
    played = flow("a b", ("a", "b"))
    await played.scheduler({"a": breaks}).run()
    failed = next(event for event in played.events if isinstance(event, NodeFailed))
    assert failed.error.message == "ValueError: broken"
    assert "in breaks" in failed.error.detail
    assert played.named(NodeSkipped) == ["b"]


@pytest.mark.parametrize(("on_failure", "ending"), [("drain", NodeFinished), ("cancel", NodeCancelled)])
async def test_nodes_in_flight_finish_or_are_cancelled_after_a_failure(on_failure: OnFailure, ending: type[Any]):
    begun = anyio.Event()
    cleaned: list[str] = []

    async def slow(context: Context) -> NodeResult:
        begun.set()
        try:
            await anyio.sleep(0.05)
        finally:
            cleaned.append("slow")
        return NodeResult()

    async def fails(context: Context) -> NodeResult:
        await begun.wait()
        raise ValueError

    nodes = [Vertex("slow"), Vertex("bad"), Vertex("clean", join="always")]
    played = flow(nodes, ("slow", "clean"), ("bad", "clean"))
    await played.scheduler({"slow": slow, "bad": fails}, on_failure=on_failure).run()
    assert "slow" in played.named(ending)
    assert cleaned == ["slow"]
    assert "clean" in played.named(NodeFinished)


async def test_a_slot_that_nobody_needs_any_more_is_given_back_so_that_clean_up_runs():
    async def fails(context: Context) -> NodeResult:
        await anyio.wait_all_tasks_blocked()  # The items wait for its slot.
        raise ValueError

    async def item(context: Context) -> NodeResult:
        return NodeResult()

    nodes = [Vertex("bad"), Vertex("a", container=True), Vertex("b", container=True), Vertex("clean", join="always")]
    played = flow(nodes, ("bad", "clean"), ("a", "clean"), ("b", "clean"))
    body = LevelBody(Graph([Vertex("item")], []), [Running(item)])

    async def enter(context: Context) -> Any:
        try:
            await enter_level(context, body, ".").run()
        except Unfinished as end:
            return end.answer
        return NodeResult()

    with anyio.fail_after(60):
        await played.scheduler({"bad": fails, "a": enter, "b": enter}, concurrency=1).run()
    assert played.named(NodeFinished) == ["clean"]


async def test_cancelling_from_outside_cleans_up_journals_it_and_starts_nothing_more():
    cleaned: list[str] = []
    begun = anyio.Event()

    async def hangs(context: Context) -> NodeResult:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(str(context.current_node))
        return NodeResult()

    played = flow([Vertex("a"), Vertex("b"), Vertex("clean", join="always")], ("a", "clean"), ("b", "clean"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(played.scheduler({"a": hangs, "b": hangs}).run)
        await begun.wait()
        await lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert sorted(cleaned) == ["a", "b"]
    assert sorted(played.named(NodeCancelled)) == ["a", "b"]
    assert played.named(NodeStarted) == ["a", "b"]


async def test_a_node_that_says_skip_is_skipped():
    async def not_now(context: Context) -> Skip:
        return Skip()

    played = flow("a b", ("a", "b"))
    await played.scheduler({"a": not_now}).run()
    assert [event[2] for event in played.events if isinstance(event, NodeSkipped)] == [
        "condition_false",
        "upstream_skipped",
    ]


async def test_what_a_node_notes_is_journaled_before_it_goes_on():
    played = flow("a")

    async def notes(context: Context) -> NodeResult:
        await context.runtime.note(Notice("first"))
        assert played.named(NodeRecorded) == ["a"]
        return NodeResult()

    await played.scheduler(notes).run()
    assert [type(event) for event in played.events] == [NodeStarted, NodeRecorded, NodeFinished]
    assert played.named(NodeFailed) == []


async def test_nodes_do_not_see_each_others_context_variables():
    variable = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    async def sets(context: Context) -> NodeResult:
        seen.append(variable.get())
        variable.set(str(context.current_node))
        await lowlevel.checkpoint()
        assert variable.get() == context.current_node
        return NodeResult()

    await flow("a b c", ("a", "b"), ("b", "c")).scheduler(sets).run()
    assert seen == ["unset"] * 3
    assert variable.get() == "unset"


async def test_nodes_may_open_cancel_scopes_and_task_groups():
    async def uses_scopes(context: Context) -> NodeResult:
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep_forever()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 0)
        return NodeResult(scope.cancelled_caught)

    played = flow("a b", ("a", "b"))
    await played.scheduler(uses_scopes).run()
    assert all(played.walk.result_of(number) == NodeResult(True) for number in range(2))


async def test_a_flow_that_never_suspends_lets_others_run():
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await lowlevel.checkpoint()
            ticks += 1

    names = [f"n{i}" for i in range(3000)]
    played = flow(" ".join(names), *pairwise(names))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await lowlevel.checkpoint()
        await played.scheduler(nothing).run()
        tasks.cancel_scope.cancel()
    assert ticks > 3


async def test_a_journal_that_fails_ends_the_run_with_its_error():
    class Full(MemoryJournal):
        def commit(self, alone: bool = True, /) -> None:
            if len(self.read()) > 4:
                raise StoreUnavailableError("disk full")

    played = flow("a b c d", ("a", "b"), ("b", "c"), ("c", "d"))
    played.journal = Full()
    with pytest.raises(StoreUnavailableError, match="disk full"):
        await played.scheduler(nothing).run()
    assert played.named(NodeStarted) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(10))
async def test_random_timings_give_identical_contexts(seed: int):
    """300 timings in all: 15 of one graph on each loop, for each of ten graphs of 50 nodes."""
    shape = random.Random(seed)
    names = [f"n{i:02}" for i in range(50)]
    edges = [(names[s], names[t]) for t in range(1, 50) for s in range(t) if shape.random() < 0.08]
    seen: set[str] = set()
    for timing in range(15):
        delays = random.Random(1000 * seed + timing)
        views: dict[str, Any] = {}

        async def works(context: Context, delays: random.Random = delays, views: dict[str, Any] = views) -> NodeResult:
            for _ in range(delays.randrange(4)):
                await lowlevel.checkpoint()
            name = str(context.current_node)
            views[name] = (sorted(context.prev_outputs.items()), list(context.shared_state["log"]))
            return NodeResult(len(context.prev_outputs), state={"log": [name]})

        await flow(" ".join(names), *edges, log=StateKey([], "append")).scheduler(works).run()
        assert len(views) == 50
        seen.add(repr(sorted(views.items())))
    assert len(seen) == 1
