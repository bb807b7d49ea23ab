"""Limits kept by whole runs: by branches at once, by parts, across a resume, and over HTTP."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.ledger import Bounds
from flowengine.llm.model import Reply, Request, Usage
from flowengine.llm.priced import PricedModel
from flowengine.llm.pricing import Price
from flowengine.llm.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.limits import FlowLimits, PartLimits
from flowengine.nodes.map import MapNode
from flowengine.records import ModelCall
from flowengine.runners.run import Run
from tests.support.model_server import Completion, ModelServer

PRICE = Price(input=1.0, output=10.0)
MOST = PRICE.of(0, 200)
"""What the answer of one call costs at most."""


class Meter:
    """A model that writes anything up to what it may, and adds up what that costs."""

    def __init__(self) -> None:
        self.cost = 0.0
        self.calls = 0
        self._chance = random.Random(3)
        self.model = PricedModel(ScriptedModel(self._answer, latency=0.001), PRICE)

    def _answer(self, request: Request) -> Reply:
        assert request.max_tokens is not None
        written = self._chance.choice([10, 40, request.max_tokens])
        self.cost += PRICE.of(20, written)
        self.calls += 1
        return Reply("x", usage=Usage(20, written))

    def agent(self, name: str) -> Agent:
        return Agent(name, "Answer.", model=self.model, max_tokens=200)


def branches(meter: Meter, number: int = 200, **settings: Any) -> Flow:
    return Flow("wide", {f"n{each}": meter.agent(f"n{each}") for each in range(number)}, **settings)


def calls_of(run: Run) -> Sequence[ModelCall]:
    records = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    return [record for record in records if type(record) is ModelCall]


@pytest.mark.parametrize("on_failure", ["drain", "cancel"])
async def test_two_hundred_branches_at_once_do_not_overshoot(on_failure: Any) -> None:
    meter = Meter()
    run = await branches(meter).run(limits=FlowLimits(on_failure=on_failure, bounds=Bounds(cost_usd=0.05)))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.message.startswith("agent 'n")
    assert "the run has a limit of 0.05 USD" in run.error.message
    assert 0.05 - 2 * MOST < meter.cost <= 0.05


async def test_a_run_that_has_enough_never_notices_its_limits() -> None:
    meter = Meter()
    run = await branches(meter, 50).run(limits=FlowLimits(bounds=Bounds(cost_usd=5.0, tokens=10**6, model_calls=50)))
    assert run.status == "succeeded"
    assert meter.calls == 50


async def test_what_a_paused_run_has_spent_counts_when_it_goes_on() -> None:
    meter, store = Meter(), MemoryStore()
    flow = branches(meter, 60)
    limits = FlowLimits(concurrency=4, bounds=Bounds(model_calls=25), on_limit="pause")
    run = await flow.run(store=store, limits=limits)
    assert (run.status, meter.calls) == ("paused", 25)
    run = await flow.resume(run.id, store=store, limits=limits)
    assert (run.status, meter.calls) == ("paused", 25)
    more = FlowLimits(concurrency=4, bounds=Bounds(model_calls=60), on_limit="pause")
    run = await flow.resume(run.id, store=store, limits=more)
    assert (run.status, meter.calls) == ("succeeded", 60)
    assert len(calls_of(run)) == 60


async def test_items_of_a_map_share_its_limit_and_the_rest_of_the_run_has_its_own() -> None:
    meter, other = Meter(), Meter()
    items = MapNode(
        {"ask": AgentNode(meter.agent("ask"), prompt=lambda context: str(context.variables["item"]))},
        over=lambda context: list(range(100)),
        limits=PartLimits(Bounds(cost_usd=0.02), on_limit="partial"),
    )
    flow = Flow("f", {"m": items, "after": FunctionNode(lambda context: "done", needs=["m"]), "o": other.agent("o")})
    run = await flow.run(limits=FlowLimits(bounds=Bounds(cost_usd=1.0)))
    assert run.status == "succeeded"
    assert 0 < len(run.nodes["m"].output) < 100
    assert meter.cost <= 0.02
    assert other.calls == 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "FLOWENGINE_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "test")

    def answer(body: dict[str, Any]) -> Completion:
        written = body["max_tokens"] if len(body["messages"][-1]["content"]) % 2 else 30
        return Completion("x", usage={"prompt_tokens": 20, "completion_tokens": written, "total_tokens": 20 + written})

    with ModelServer(answer) as running:
        yield running


def test_a_flow_file_a_price_of_the_project_and_a_server_that_counts(tmp_path: Path, server: ModelServer) -> None:
    (tmp_path / "flowengine.toml").write_text(
        f"[providers.openai]\nbase_url = '{server.url}'\n[prices.\"openai/our-model\"]\ninput = 1.0\noutput = 10.0\n"
    )
    nodes = "".join(
        f"  n{n}: {{prompt: '{'x' * n}', model: openai/our-model, max_tokens: 200}}\n" for n in range(1, 61)
    )
    (tmp_path / "flow.yaml").write_text(
        f"flowengine: v1\nname: wide\nlimits: {{cost_usd: 0.03, on_limit: pause}}\nnodes:\n{nodes}"
    )
    run = Flow.from_yaml(tmp_path / "flow.yaml").run_sync()
    assert run.status == "paused"
    calls = calls_of(run)
    billed = sum(PRICE.of(20, each.completion_tokens or 0) for each in calls)
    assert len(calls) == len(server.requests) > 15
    assert 0.02 < billed <= 0.03
    assert sum(each.cost_usd or 0.0 for each in calls) == pytest.approx(billed)
