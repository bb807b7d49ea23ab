"""Agents on the offline stand-in: everything goes through without a key and without the network."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent


class City(BaseModel):
    name: str
    people: int


@pytest.mark.parametrize("locale", ["en", "ja", "zh"])
async def test_generation_judging_improving_and_routing(locale: str) -> None:
    agent = Agent(
        "a",
        "Answer in one line.",
        model="offline",
        orchestration_mode=True,
        evaluation_instructions="Be fair.",
        routing_instruction="Which team?",
        routes={"tea": "Tea and its friends", "coffee": "Coffee"},
        locale=locale,
    )
    after = await agent.run_async("What is tea?")
    assert str(after.result).strip()
    assert after.evaluation_result is not None
    assert set(after.evaluation_result.criteria_scores) == {"accuracy", "relevance", "completeness"}
    assert after.routing_result is not None
    assert after.routing_result.next_route in {"tea", "coffee"}


async def test_a_declared_shape_is_filled() -> None:
    after = await Agent("a", "Name a city.", model="offline", output_model=City).run_async("in Japan")
    assert isinstance(after.result.content, City)


async def test_a_stream_ends_in_the_context() -> None:
    async with Agent("a", "Answer.", model="offline").stream("What is tea?") as pieces:
        *texts, after = [piece async for piece in pieces]
    assert "".join(texts) == str(after.result)


def test_three_agents_in_a_row_by_hand() -> None:
    context = Agent("a", "Say what they need.", model="offline").run("My invoice is wrong")
    context = EvaluationAgent("b", model="offline").run(context=context)
    context = RoutingAgent("c", "Which team?", {"billing": "Invoices"}, model="offline").run(context=context)
    assert context.routing_result is not None
    assert context.routing_result.next_route == "billing"
    assert context.routing_result.content == context.shared_state["_last_generation"]
