"""Runs of agents that are stopped at random: none says that it succeeded while a node of it was not settled."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.agents.agent import Agent
from flowengine.core.context import Context
from flowengine.engine.events import NodeFinished, NodeStarted, RunFinished
from flowengine.flow import Flow
from flowengine.journal.stores import open_store
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from tests.support.model_server import ModelServer

STOPS, AT_ONCE = 200, 10
LENGTH = 4


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as running:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


async def rest(context: Context) -> str:
    await anyio.sleep(0.02)
    return "rested"


def flow_of(number: int) -> Flow:
    """A chain of agents, beside a function and another agent, and one node behind all of them."""
    names = [f"a{at}" for at in range(LENGTH)]
    chain: dict[str, Any] = {
        name: AgentNode(
            Agent(name, "Say.", model="openai/gpt-4o-mini"),
            prompt=lambda _, name=name: f"{number} {name}",
            needs=names[at - 1 : at] if at else [],
        )
        for at, name in enumerate(names)
    }
    beside = AgentNode(Agent("b", "Say.", model="openai/gpt-4o-mini"), prompt=lambda _: f"{number} b")
    behind = FunctionNode(lambda context: sorted(context.prev_outputs), needs=[names[-1], "b", "rest"])
    return Flow("f", {**chain, "b": beside, "rest": FunctionNode(rest), "z": behind})


@pytest.mark.long
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_run_that_was_stopped_succeeds_with_a_node_that_is_not_settled(
    server: ModelServer, tmp_path: Path, request: pytest.FixtureRequest
):
    store = open_store(f"sqlite:///{tmp_path}/runs.db", "process")
    chance, stops = random.Random(1), STOPS * (request.config.getoption("--explore") or 1)
    moments = [chance.random() * 0.25 for _ in range(stops)]
    statuses, lacking = Counter[str](), list[str]()

    async def stop_and_go_on(number: int) -> None:
        flow, run_id = flow_of(number), f"r{number}"
        with anyio.move_on_after(moments[number]):
            await flow.run(store=store, run_id=run_id)
        events = store.events(run_id)
        ends = [each.status for each in events if isinstance(each, RunFinished)]
        statuses.update(ends)
        finished = {each.node for each in events if isinstance(each, NodeFinished)}
        begun = {each.node for each in events if isinstance(each, NodeStarted)}
        if len(ends) != 1 or (ends[0] == "succeeded" and finished != flow.plan.all_nodes.keys()):
            lacking.append(f"{run_id}: {ends}, begun {sorted(begun)}, finished {sorted(finished)}")
        elif not number % 10:
            run = await flow.resume(run_id, store=store)
            assert run.status == "succeeded", run.error

    async def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            await stop_and_go_on(number)

    numbers = iter(range(stops))
    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(work, numbers)
    store.close()
    print(f"{stops} stops: {dict(statuses)}, {len(lacking)} that say something else")
    assert lacking == []
    assert statuses["cancelled"] > stops / 10
