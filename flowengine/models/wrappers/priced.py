"""Adds costs to a model's answers, by a price that the user gave."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Protocol, cast, runtime_checkable

from flowengine.models.model import Model, Reply, Request
from flowengine.models.pricing import Price, listed_price
from flowengine.models.wrappers.pass_through import PassThroughModel
from flowengine.models.wrappers.retrying import RetryingModel

__all__ = ["PricedModel", "find_user_price", "has_own_price", "price_of", "with_price"]


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

    async def complete(self, request: Request) -> Reply:
        return self._add_cost(await self._model.complete(request))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            async for piece in stream:
                yield self._add_cost(piece) if isinstance(piece, Reply) else piece

        async with self._model.stream(request) as stream:
            yield pieces()

    def own_price(self) -> Price:
        """What its calls cost, whatever a list says."""
        return self._price

    def _add_cost(self, reply: Reply) -> Reply:
        prompt, answer, read, written = reply.usage[:4]
        if prompt is None:
            return reply
        return reply._replace(cost_usd=self._price.of(prompt, answer or 0, read=read or 0, written=written or 0))


@runtime_checkable
class _SaysItsPrice(Protocol):
    def own_price(self) -> Price: ...


@cache
def has_own_price(kind: type[Model]) -> bool:
    """Whether models of a class say what they cost. Looked up once a class, since asking a protocol takes long."""
    return issubclass(kind, _SaysItsPrice)


def price_of(model: Model, *, prompt_tokens: int = 0, extra: Mapping[str, Any] | None = None) -> Price | None:
    """What the model says that it costs, else what its vendor's list says; None where nobody knows."""
    if has_own_price(type(model)):
        return cast(_SaysItsPrice, model).own_price().dearest()
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
