"""Adds costs to a model's answers, by a price that the user gave, else by the rates of the table."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final, cast

from flowengine.core import CALL
from flowengine.errors import ModelError
from flowengine.models.definitions import SaysItsPrice, has_own_price
from flowengine.models.model import Finish, Model, PassThroughModel, Reply, Request, TokenUsage
from flowengine.models.pricing import Price, listed_entry, listed_price
from flowengine.models.table_rates import pick_rate, read_number, read_rates
from flowengine.models.vendors import BATCH_PRICE
from flowengine.models.wrappers.retrying import RetryingModel

# --- What an answer cost, by the tokens that its vendor told and the rates of the table
#
# Where a rate or the tokens are unknown, so is the cost: whatever a table says, it raises nothing, since the answer is
# paid for. What a call may cost at most, before it is made, is the matter of `pricing`.

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def cost_of(
    provider: str, name: str, usage: TokenUsage, extra: Mapping[str, Any] = _NOTHING, *, hour_writes: int = 0
) -> float | None:
    """Dollars for one call; None where the table has no price of the model, or the tokens are unknown.

    `extra`: options of the call; a service tier has rates of its own. `hour_writes`: of the tokens that were written
    to a cache, those that it keeps for an hour.

    >>> cost_of("openai", "gpt-4o-mini", TokenUsage(1000, 100, 600))
    0.000165
    """
    entry = None if usage.prompt_tokens is None else listed_entry(provider, name)
    if entry is None or usage.prompt_tokens is None:
        return None
    prompt, answer = usage.prompt_tokens, usage.completion_tokens or 0
    tier = str(extra.get("service_tier") or "")
    pick = partial(pick_rate, read_rates(entry, datetime.now(UTC)), prompt_tokens=prompt, tier=tier)
    into, out = pick("input_cost_per_token"), pick("output_cost_per_token")
    if into is None or out is None:
        return None
    cached = min(usage.cached_tokens or 0, prompt)
    cache_writes = min(usage.cache_write_tokens or 0, prompt - cached)
    thought = min(usage.reasoning_tokens or 0, answer)
    hours = 12 if extra.get("prompt_cache_retention") == "24h" else 0
    cost = (prompt - cached - cache_writes) * into + (answer - thought) * out
    cost += cached * _or(pick("cache_read_input_token_cost"), into)
    for_an_hour = min(hour_writes, cache_writes)
    cost += for_an_hour * _or(pick("cache_creation_input_token_cost", hours=hours or 1), into)
    cost += (cache_writes - for_an_hour) * _or(pick("cache_creation_input_token_cost", hours=hours), into)
    cost += thought * _or(pick("output_cost_per_reasoning_token"), out)
    return round(cost + _or(read_number(entry.get("input_cost_per_request")), 0.0), 12)


def _or(rate: float | None, other: float) -> float:
    return other if rate is None else rate


class PricedModel(PassThroughModel):
    """Wraps a model: where its answers tell their tokens, their cost is what the price makes of these.

    >>> import anyio
    >>> from flowengine.models.model import TokenUsage
    >>> from flowengine.models.scripted import ScriptedModel
    >>> model = PricedModel(ScriptedModel([Reply("Green.", usage=TokenUsage(1000, 200))]), Price(input=3, output=15))
    >>> anyio.run(model.complete, Request("scripted", ())).cost_usd
    0.006
    """

    def __init__(self, model: Model, price: Price) -> None:
        super().__init__(model)
        self._price = price

    def own_price(self) -> Price:
        """Returns the price of its calls, regardless of price lists."""
        return self._price

    @asynccontextmanager
    async def _around(self, request: Request) -> AsyncGenerator[tuple[Request, Finish]]:
        place = CALL.get()
        if place is not None:
            place.is_cheap = False
        try:
            yield request, self._add_cost
        except ModelError as error:
            error.reply = error.reply and self._add_cost(error.reply)
            raise

    def _add_cost(self, reply: Reply) -> Reply:
        prompt, answer, read, cache_writes = reply.usage[:4]
        if prompt is None:
            return reply
        place = CALL.get()
        share = BATCH_PRICE if place is not None and place.is_cheap else 1
        cost = self._price.of(prompt, answer or 0, read=read or 0, written=cache_writes or 0)
        return reply._replace(cost_usd=cost * share)


def price_of(model: Model, *, prompt_tokens: int = 0, extra: Mapping[str, Any] | None = None) -> Price | None:
    """Returns the model's own price, else that of its vendor's list, or None."""
    if has_own_price(type(model)):
        return cast(SaysItsPrice, model).own_price().dearest()
    return listed_price(model.provider, model.name, prompt_tokens=prompt_tokens, extra=extra)


def find_user_price(prices: Mapping[str, Price], reference: str, provider: str, name: str) -> Price | None:
    """The price said for a model: under the name as it is written, its provider and name, or its name alone."""
    names = (reference, f"{provider}/{name}", name)
    return next((prices[name] for name in names if name in prices), None)


def with_price(model: Model, price: Price) -> Model:
    """The model with a price of its own; retries stay outside of that."""
    if isinstance(model, RetryingModel):
        return model.around(lambda each: with_price(each, price))
    return PricedModel(model, price)
