"""Adds costs to a model's answers, by a price that the user gave, else by the rates of the table."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final, cast

from flowengine.core.batching import CALL
from flowengine.errors import ModelError
from flowengine.models.definitions import SaysItsPrice, has_own_price
from flowengine.models.model import Finish, Model, PassThroughModel, Reply, Request, TokenUsage
from flowengine.models.pricing import Price, listed_entry, listed_price
from flowengine.models.vendors import BATCH_PRICE
from flowengine.models.wrappers.retrying import RetryingModel

__all__ = ["PricedModel", "cost_of", "find_user_price", "price_of", "with_price"]

# --- What an answer cost, by the tokens that its vendor told and the rates of the table
#
# Where a rate or the tokens are unknown, so is the cost. What a call may cost at most, before it is made, is the matter
# of `pricing`.

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def cost_of(provider: str, name: str, usage: TokenUsage, extra: Mapping[str, Any] = _NOTHING) -> float | None:
    """Dollars for one call; None where the table has no price of the model, or the tokens are unknown.

    `extra`: options of the call; a service tier has rates of its own.

    >>> cost_of("openai", "gpt-4o-mini", TokenUsage(1000, 100, 600))
    0.000165
    """
    if usage.prompt_tokens is None:
        return None
    entry = listed_entry(provider, name)
    if entry is None:
        return None
    prompt, answer = usage.prompt_tokens, usage.completion_tokens or 0
    tier = str(extra.get("service_tier") or "")
    into, out = (_rate(entry, f"{kind}_cost_per_token", prompt, tier) for kind in ("input", "output"))
    if into is None or out is None:
        return None
    cached = min(usage.cached_tokens or 0, prompt)
    written = min(usage.cache_write_tokens or 0, prompt - cached)
    thought = min(usage.reasoning_tokens or 0, answer)
    cost = (prompt - cached - written) * into + (answer - thought) * out
    cost += cached * _or(_rate(entry, "cache_read_input_token_cost", prompt, tier), into)
    cost += written * _or(_rate(entry, "cache_creation_input_token_cost", prompt, tier), into)
    cost += thought * _or(_rate(entry, "output_cost_per_reasoning_token", prompt, tier), out)
    fee = entry.get("input_cost_per_request")
    return round(cost + (fee if isinstance(fee, int | float) else 0.0), 12)


def _or(rate: float | None, other: float) -> float:
    return other if rate is None else rate


def _rate(entry: Mapping[str, Any], kind: str, prompt: int, tier: str) -> float | None:
    """Dollars a token, after a prompt of so many: the rate of the highest threshold that it is above."""
    found, highest = entry.get(kind), -1
    if tier and isinstance(special := entry.get(f"{kind}_{tier}"), int | float):
        return special
    for name, value in entry.items():
        if name.startswith(f"{kind}_above_") and name.endswith("k_tokens") and isinstance(value, int | float):
            threshold = int(name.removeprefix(f"{kind}_above_").removesuffix("k_tokens")) * 1000
            if prompt > threshold > highest:
                found, highest = value, threshold
    return found if isinstance(found, int | float) else None


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
        prompt, answer, read, written = reply.usage[:4]
        if prompt is None:
            return reply
        place = CALL.get()
        share = BATCH_PRICE if place is not None and place.is_cheap else 1
        cost = self._price.of(prompt, answer or 0, read=read or 0, written=written or 0)
        return reply._replace(cost_usd=cost * share)


def price_of(model: Model, *, prompt_tokens: int = 0, extra: Mapping[str, Any] | None = None) -> Price | None:
    """Returns the model's own price, else that of its vendor's list, or None."""
    if has_own_price(type(model)):
        return cast(SaysItsPrice, model).own_price().dearest()
    return listed_price(model.provider, model.name, prompt_tokens=prompt_tokens, extra=extra)


def find_user_price(prices: Mapping[str, Price], written: str, provider: str, name: str) -> Price | None:
    """The price said for a model: under the name as it is written, its provider and name, or its name alone."""
    names = (written, f"{provider}/{name}", name)
    return next((prices[name] for name in names if name in prices), None)


def with_price(model: Model, price: Price) -> Model:
    """The model with a price of its own; retries stay outside of that."""
    if isinstance(model, RetryingModel):
        return model.around(lambda each: with_price(each, price))
    return PricedModel(model, price)
