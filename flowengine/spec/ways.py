"""Ways through a graph: the longest; and what the nodes take together, where of ways that exclude each other
only the dearest counts.

Theory of operation: a node runs only if one of its parents ran; a route's target only if the route was
taken, whatever else comes before it. Where every such way to a node leads through another one, that one
*dominates* it, and it runs only if the other does. So of the targets of one node, which takes one route,
only the dearest counts, with all that it dominates. All else adds up: the end for failures (`on_error`)
comes on top of what failed, and what runs whatever happens is never left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter

from flowengine.engine.graph import ON_ERROR, Edge
from flowengine.spec.most import NONE, Most

__all__ = ["dearest_way", "longest_way"]

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
    """What the nodes take together, at most. `always`: those that run whatever happens."""
    parents = _needed(most, edges)
    above = _dominators(parents)
    below: dict[str | None, list[str]] = {node: [] for node in (None, *most)}
    for node, dominator in above.items():
        below[dominator].append(node)
    chosen = _chosen(edges)
    whole: dict[str, Most] = {}
    unconditional = set[str]()
    for node in reversed(above):
        inside = below[node]
        if node in always or not unconditional.isdisjoint(inside):
            unconditional.add(node)
        either = [each for each in inside if chosen.get(each) == node and each not in unconditional]
        whole[node] = most[node].and_(_together(whole[each] for each in inside if each not in either))
        whole[node] = whole[node].and_(_dearest(whole[each] for each in either))
    return _together(whole[each] for each in below[None])


def _together(parts: Iterable[Most]) -> Most:
    total = NONE
    for each in parts:
        total = total.and_(each)
    return total


def _dearest(parts: Iterable[Most]) -> Most:
    total = NONE
    for each in parts:
        total = total.or_(each)
    return total


def _needed(nodes: Iterable[str], edges: Iterable[Edge]) -> _Parents:
    """Node → those of which one has to have run: with routes to it, only these count."""
    routes: dict[str, dict[str, None]] = {}
    plain: dict[str, dict[str, None]] = {}
    for source, target, route in edges:
        (plain if route is None else routes).setdefault(target, {})[source] = None
    return {node: tuple(routes.get(node) or plain.get(node, ())) for node in nodes}


def _chosen(edges: Collection[Edge]) -> dict[str, str]:
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


def _dominators(parents: _Parents) -> dict[str, str | None]:
    """Node → the nearest one that dominates it, or None; in an order in which that one comes first."""
    depth: dict[str | None, int] = {None: 0}
    above: dict[str | None, str | None] = {}
    for node in TopologicalSorter(parents).static_order():
        nearest: str | None = None
        for number, parent in enumerate(parents[node]):
            nearest = parent if number == 0 else _common(nearest, parent, above, depth)
        above[node] = nearest
        depth[node] = depth[nearest] + 1
    return {node: dominator for node, dominator in above.items() if node is not None}


def _common(
    one: str | None, other: str | None, above: Mapping[str | None, str | None], depth: Mapping[str | None, int]
) -> str | None:
    while one != other:
        if depth[one] >= depth[other]:
            one = above[one]
        else:
            other = above[other]
    return one
