"""Adds up what model calls can take at most, and finds the longest and the dearest way through a graph.

Theory of operation: a node runs only if one of its parents ran; a route's target only if the route was
taken, whatever else comes before it. Where every such way to a node leads through another one, that one
*dominates* it, and it runs only if the other does. So of the targets of one node, which takes one route,
only the dearest counts, with all that it dominates. All else adds up: the end for failures (`on_error`)
comes on top of what failed, and what runs whatever happens is never left out.

It reads no file and knows no kind of node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Final, NamedTuple, TypeVar

from flowengine.engine import ON_ERROR, Edge
from flowengine.flowfile.schema import NodeLimitsSpec
from flowengine.models import KnownModel, Price, listed_cache_price
from flowengine.models.http import cache_minimum

# --- Upper bounds and their sums

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
    """The tokens of the largest call."""
    call_cost: float | None = 0.0
    """The cost of the dearest call."""
    served_usd: float | None = 0.0
    """The cost where caches of vendors serve all of every prompt."""
    first_usd: float | None = 0.0
    """The cost of the first prompts of all nodes beyond that: somebody has to write what caches serve."""

    @property
    def cost_at_best(self) -> float | None:
        """The cost of the same calls with all that caches could serve."""
        served = add(self.served_usd, self.first_usd)
        return None if served is None or self.cost_usd is None else min(served, self.cost_usd)

    def to_data(self) -> dict[str, float | None]:
        """The bound as plain data; None where there is no bound."""
        return {"model_calls": self.calls, "tokens": self.tokens, "cost_usd": self.cost_usd}

    def and_(self, other: Most) -> Most:
        """Both."""
        calls, tokens = add(self.calls, other.calls), add(self.tokens, other.tokens)
        both = self._with(other, calls, tokens, add(self.cost_usd, other.cost_usd))
        served, first = add(self.served_usd, other.served_usd), add(self.first_usd, other.first_usd)
        return both._replace(served_usd=served, first_usd=first)

    def or_(self, other: Most) -> Most:
        """One of both, whichever takes more."""
        calls, tokens = take_greater(self.calls, other.calls), take_greater(self.tokens, other.tokens)
        either = self._with(other, calls, tokens, take_greater(self.cost_usd, other.cost_usd))
        served = take_greater(self.served_usd, other.served_usd)
        return either._replace(served_usd=served, first_usd=take_greater(self.first_usd, other.first_usd))

    def _with(self, other: Most, calls: int | None, tokens: int | None, cost: float | None) -> Most:
        largest = take_greater(self.call_tokens, other.call_tokens)
        dearest = take_greater(self.call_cost, other.call_cost)
        return Most(calls, tokens, cost, self.unpriced | other.unpriced, largest, dearest)

    def times(self, number: int | None) -> Most:
        """Multiplies the bound; `number`: None if it is unknown how often.

        >>> Most(2, 100, None).times(3)[:3], Most(0, 0, 0.0).times(None)[:3]
        ((6, 300, None), (0, 0, 0.0))
        """
        calls, tokens = multiply(self.calls, number), multiply(self.tokens, number)
        factor = None if number is None else float(number)
        cost, served = multiply(self.cost_usd, factor), multiply(self.served_usd, factor)
        first = 0.0 if number == 0 else self.first_usd
        return self._replace(calls=calls, tokens=tokens, cost_usd=cost, served_usd=served, first_usd=first)

    def within(self, limits: NodeLimitsSpec | None) -> Most:
        """Applies limits to a bound; a limit on calls also bounds tokens and cost."""
        if limits is None:
            return self
        calls = _take_least(self.calls, limits.model_calls)
        tokens = _take_least(self.tokens, limits.tokens, multiply(self.call_tokens, calls))
        if self.unpriced:
            return self._replace(calls=calls, tokens=tokens)  # Their cost is not kept by any limit.
        factor = None if calls is None else float(calls)
        cost = _take_least(self.cost_usd, limits.cost_usd, multiply(self.call_cost, factor))
        return self._replace(calls=calls, tokens=tokens, cost_usd=cost)


NONE: Final = Most()


def most_of_calls(
    number: int, question: int | None, answer: int | None, models: Sequence[KnownModel], *, is_cached: bool = True
) -> Most:
    """Equal calls, each to one of some models. `question`: its tokens by our count.

    `is_cached`: caches may serve it.
    """
    sizes = [each.question(question) for each in models]
    longest = max(sizes, key=lambda tokens: float("inf") if tokens is None else tokens)
    prices = [(each, each.price(longest or 0)) for each in models]
    unpriced = frozenset(str(model) for model, price in prices if price is None)
    tokens, cost, served = add(longest, answer), None, None
    if not unpriced:
        costs = [_cost_of_call(price, longest, answer) for _, price in prices if price is not None]
        cost = None if None in costs else max(each for each in costs if each is not None)
    if cost is not None:
        served = max(_cost_if_served(*each, longest or 0, answer or 0, is_cached=is_cached) for each in prices)
    first = None if cost is None or served is None else cost - served
    return Most(1, tokens, cost, unpriced, tokens, cost, served, first).times(number)


def _cost_if_served(model: KnownModel, price: Price | None, question: int, answer: int, *, is_cached: bool) -> float:
    """The cost of one call whose prompt a cache serves, where the provider has one and the prompt is long enough."""
    assert price is not None
    if model.own_price is None:
        price = replace(price, cache_read=listed_cache_price(model.provider, model.name))
    keeps = is_cached and question >= (cache_minimum(model.provider, model.name) or question + 1)
    return price.of(question, answer, read=question if keeps else 0)


def _cost_of_call(price: Price, question: int | None, answer: int | None) -> float | None:
    """The cost of one call; what costs nothing has a bound however long it is."""
    if (question is None and price.input) or (answer is None and price.output):
        return None
    return price.of(question or 0, answer or 0)


def add(one: N | None, other: N | None) -> N | None:
    """The sum of two bounds, each None where there is no bound."""
    return None if one is None or other is None else one + other


def take_greater(one: N | None, other: N | None) -> N | None:
    """The bound of what is one or the other."""
    return None if one is None or other is None else max(one, other)


def multiply(one: N | None, other: N | None) -> N | None:
    """Nothing, however often, is nothing."""
    for nothing in (one, other):
        if nothing == 0:
            return nothing
    return None if one is None or other is None else one * other


def _take_least(*bounds: N | None) -> N | None:
    return min((each for each in bounds if each is not None), default=None)


_Parents = Mapping[str, Collection[str]]


def longest_way(nodes: Sequence[str], edges: Iterable[Edge]) -> list[str]:
    """The longest chain of nodes; of several, the one whose end comes first in the file.

    >>> longest_way(["a", "b", "c", "d"], [Edge("a", "b", None), Edge("b", "d", None), Edge("a", "c", None)])
    ['a', 'b', 'd']
    """
    parents: dict[str, dict[str, None]] = {node: {} for node in nodes}
    for source, target, _ in edges:
        parents[target][source] = None
    chains: dict[str, list[str]] = {}
    for node in TopologicalSorter(parents).static_order():
        chains[node] = [*max((chains[each] for each in parents[node]), key=len, default=list[str]()), node]
    return max((chains[node] for node in nodes), key=len)


def dearest_way(most: Mapping[str, Most], edges: Collection[Edge], always: Collection[str]) -> Most:
    """Returns the maximum usage over all branches. `always`: the nodes that run in any case."""
    parents = _find_needed_parents(most, edges)
    above = _find_dominators(parents)
    below: dict[str | None, list[str]] = {node: [] for node in (None, *most)}
    for node, dominator in above.items():
        below[dominator].append(node)
    choosers = _find_choosers(edges)
    whole: dict[str, Most] = {}
    unconditional = set[str]()
    for node in reversed(above):
        inside = below[node]
        if node in always or not unconditional.isdisjoint(inside):
            unconditional.add(node)
        either = [each for each in inside if choosers.get(each) == node and each not in unconditional]
        whole[node] = most[node].and_(_add_up(whole[each] for each in inside if each not in either))
        whole[node] = whole[node].and_(_take_dearest(whole[each] for each in either))
    return _add_up(whole[each] for each in below[None])


def _add_up(parts: Iterable[Most]) -> Most:
    total = NONE
    for each in parts:
        total = total.and_(each)
    return total


def _take_dearest(parts: Iterable[Most]) -> Most:
    total = NONE
    for each in parts:
        total = total.or_(each)
    return total


def _find_needed_parents(nodes: Iterable[str], edges: Iterable[Edge]) -> _Parents:
    """Node → those of which one has to have run: with routes to it, only these count."""
    routes: dict[str, dict[str, None]] = {}
    plain: dict[str, dict[str, None]] = {}
    for source, target, route in edges:
        (plain if route is None else routes).setdefault(target, {})[source] = None
    return {node: tuple(routes.get(node) or plain.get(node, ())) for node in nodes}


def _find_choosers(edges: Collection[Edge]) -> dict[str, str]:
    """Route's target → the one node that chooses it, and with it no other target; nor is it for a failure."""
    choosers: dict[str, set[str]] = {}
    led_to: dict[tuple[str, str], set[str]] = {}
    for source, target, route in edges:
        if route is not None:
            choosers.setdefault(target, set()).add(source)
            led_to.setdefault((source, route), set()).add(target)
    shared = set[str]()
    for (_, route), targets in led_to.items():
        if route == ON_ERROR or len(targets) > 1:
            shared |= targets
    return {target: min(each) for target, each in choosers.items() if len(each) == 1 and target not in shared}


def _find_dominators(parents: _Parents) -> dict[str, str | None]:
    """Node → the nearest one that dominates it, or None; in an order in which that one comes first."""
    depth: dict[str | None, int] = {None: 0}
    above: dict[str | None, str | None] = {}
    for node in TopologicalSorter(parents).static_order():
        nearest: str | None = None
        for number, parent in enumerate(parents[node]):
            nearest = parent if number == 0 else _find_common(nearest, parent, above, depth)
        above[node] = nearest
        depth[node] = depth[nearest] + 1
    return {node: dominator for node, dominator in above.items() if node is not None}


def _find_common(
    one: str | None, other: str | None, above: Mapping[str | None, str | None], depth: Mapping[str | None, int]
) -> str | None:
    while one != other:
        if depth[one] >= depth[other]:
            one = above[one]
        else:
            other = above[other]
    return one
