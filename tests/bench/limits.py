"""Rows of limits: what two hundred branches at once spend beyond a limit, and what a reservation costs."""

from __future__ import annotations

import random

from flowengine import Agent, Flow
from flowengine.core.budget import Budget
from flowengine.models.model import Reply, Request, TokenUsage
from flowengine.models.pricing import Price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.priced import PricedModel
from flowengine.nodes.node import RunLimits
from tests.bench.engine import done
from tests.bench.measure import Row, ratio

__all__ = ["ROWS"]

BRANCHES, LIMIT = 200, 0.05
PRICE = Price(input=1.0, output=10.0)


def branches(model: PricedModel, number: int) -> Flow:
    agent = Agent("writer", "Answer in one sentence.", model=model, max_tokens=200)
    return Flow("bench", {f"n{each}": agent for each in range(number)})


async def limit_overshoot() -> Row:
    """The worst of 20 runs; each call may take up to what it reserved, and takes anything up to that."""
    beyond: list[float] = []
    for seed in range(20):
        chance, spent = random.Random(seed), 0.0

        def answer(request: Request, chance: random.Random = chance) -> Reply:
            nonlocal spent
            written = chance.randint(1, request.max_tokens or 0)
            spent += PRICE.of(40, written)
            return Reply("x", usage=TokenUsage(40, written))

        model = PricedModel(ScriptedModel(answer, latency=0.001), PRICE)
        run = await branches(model, BRANCHES).run(limits=RunLimits(bounds=Budget(cost_usd=LIMIT), on_limit="pause"))
        assert run.status == "paused"
        assert spent > 0.9 * LIMIT, "the limit was hardly used"
        beyond.append(max(0.0, spent - LIMIT))
    return Row("200 branches under cost_usd, overshoot", max(beyond), 0.0, "USD", (min(beyond), max(beyond)))


async def limit_reservation() -> Row:
    """Agents with a limit on cost that is never reached, against the same agents without one."""
    model = PricedModel(ScriptedModel(lambda request: Reply("x", usage=TokenUsage(40, 20))), PRICE)
    flow, limits = branches(model, 500), RunLimits(bounds=Budget(cost_usd=1000.0))

    async def bounded() -> None:
        run = await flow.run(limits=limits)
        assert run.status == "succeeded"

    return await ratio("500 agents under cost_usd, against none", 2.0, bounded, lambda: done(flow))


ROWS = (limit_overshoot, limit_reservation)
