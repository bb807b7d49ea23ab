"""The most that some model calls can take together, and how such bounds add up. None means no bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from flowengine.llm.facts import KnownModel
from flowengine.llm.pricing import Price
from flowengine.spec.schema_keys import NodeLimits

__all__ = ["NONE", "Most", "most_of_calls"]

N = TypeVar("N", int, float)


class Most(NamedTuple):
    """Calls, tokens and cost, at most."""

    calls: int | None = 0
    tokens: int | None = 0
    cost_usd: float | None = 0.0
    """None also where a price is unknown."""
    unpriced: frozenset[str] = frozenset()
    """Models without a known price among those that may be asked."""
    call_tokens: int | None = 0
    """Of the largest call."""
    call_cost: float | None = 0.0
    """Of the dearest call."""

    def and_(self, other: Most) -> Most:
        """Both."""
        calls, tokens = _sum(self.calls, other.calls), _sum(self.tokens, other.tokens)
        return self._with(other, calls, tokens, _sum(self.cost_usd, other.cost_usd))

    def or_(self, other: Most) -> Most:
        """One of both, whichever takes more."""
        calls, tokens = _greater(self.calls, other.calls), _greater(self.tokens, other.tokens)
        return self._with(other, calls, tokens, _greater(self.cost_usd, other.cost_usd))

    def _with(self, other: Most, calls: int | None, tokens: int | None, cost: float | None) -> Most:
        largest = _greater(self.call_tokens, other.call_tokens)
        dearest = _greater(self.call_cost, other.call_cost)
        return Most(calls, tokens, cost, self.unpriced | other.unpriced, largest, dearest)

    def times(self, number: int | None) -> Most:
        """So many times; None: nobody knows how often.

        >>> Most(2, 100, None).times(3)[:3], Most(0, 0, 0.0).times(None)[:3]
        ((6, 300, None), (0, 0, 0.0))
        """
        calls, tokens = _product(self.calls, number), _product(self.tokens, number)
        factor = None if number is None else float(number)
        return self._replace(calls=calls, tokens=tokens, cost_usd=_product(self.cost_usd, factor))

    def within(self, limits: NodeLimits | None) -> Most:
        """What of it limits allow: a bound on the calls bounds tokens and cost, too."""
        if limits is None:
            return self
        calls = _least(self.calls, limits.model_calls)
        tokens = _least(self.tokens, limits.tokens, _product(self.call_tokens, calls))
        if self.unpriced:
            return self._replace(calls=calls, tokens=tokens)  # Their cost is not kept by any limit.
        factor = None if calls is None else float(calls)
        cost = _least(self.cost_usd, limits.cost_usd, _product(self.call_cost, factor))
        return self._replace(calls=calls, tokens=tokens, cost_usd=cost)


NONE: Final = Most()


def most_of_calls(number: int, question: int | None, answer: int | None, models: Sequence[KnownModel]) -> Most:
    """Equal calls, each to one of some models. `question`: its tokens by our count."""
    asked = [each.question(question) for each in models]
    longest = max(asked, key=lambda tokens: float("inf") if tokens is None else tokens)
    prices = [(each, each.price(longest or 0)) for each in models]
    unpriced = frozenset(str(model) for model, price in prices if price is None)
    tokens, cost = _sum(longest, answer), None
    if not unpriced:
        costs = [_cost(price, longest, answer) for _, price in prices if price is not None]
        cost = None if None in costs else max(each for each in costs if each is not None)
    return Most(1, tokens, cost, unpriced, tokens, cost).times(number)


def _cost(price: Price, question: int | None, answer: int | None) -> float | None:
    """Of one call; what costs nothing has a bound however long it is."""
    if (question is None and price.input) or (answer is None and price.output):
        return None
    return price.of(question or 0, answer or 0)


def _sum(one: N | None, other: N | None) -> N | None:
    return None if one is None or other is None else one + other


def _greater(one: N | None, other: N | None) -> N | None:
    return None if one is None or other is None else max(one, other)


def _product(one: N | None, other: N | None) -> N | None:
    """Nothing, however often, is nothing."""
    for nothing in (one, other):
        if nothing == 0:
            return nothing
    return None if one is None or other is None else one * other


def _least(*bounds: N | None) -> N | None:
    return min((each for each in bounds if each is not None), default=None)
