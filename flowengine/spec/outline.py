"""The graph as the checks need it: the same numbering, without networkx, which costs half a second to load."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from flowengine.engine.graph import Edge, Graph, Vertex

__all__ = ["Outline", "cycles_of"]


class Outline(Graph):
    """A graph without its `digraph`. The edges are known to be between declared nodes, and without a cycle."""

    def __init__(self, vertices: Iterable[Vertex], edges: Iterable[Edge]) -> None:
        declared = {vertex.id: vertex for vertex in vertices}
        self.edges = tuple(dict.fromkeys(edges))
        self.digraph = None
        self.ids = _topological(list(declared), self.edges)
        self.index = {name: number for number, name in enumerate(self.ids)}
        self.vertices = tuple(declared[name] for name in self.ids)
        self._number_edges()
        self._ancestry = None


def _topological(declared: Sequence[str], edges: Iterable[Edge]) -> tuple[str, ...]:
    """The topological order that keeps to the declared one wherever the edges allow, as `Graph` has it."""
    order = {name: position for position, name in enumerate(declared)}
    after: list[list[int]] = [[] for _ in declared]
    waiting = [0] * len(declared)
    for source, target in {(edge.source, edge.target) for edge in edges}:
        after[order[source]].append(order[target])
        waiting[order[target]] += 1
    ready = [position for position, count in enumerate(waiting) if not count]
    found: list[str] = []
    while ready:
        at = heapq.heappop(ready)
        found.append(declared[at])
        for each in after[at]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, each)
    return tuple(found)


def cycles_of(declared: Sequence[str], edges: Iterable[tuple[str, str]], most: int = 10) -> list[list[str]]:
    """Cycles, one after the other, each broken where it was found; the first node is repeated at the end.

    >>> cycles_of(["a", "b"], [("a", "b"), ("b", "a")])
    [['a', 'b', 'a']]
    """
    order = {name: position for position, name in enumerate(declared)}
    left = dict.fromkeys(edges)
    found: list[list[str]] = []
    while len(found) < most:
        above: dict[str, list[str]] = {}
        for source, target in left:
            above.setdefault(target, []).append(source)
        try:
            TopologicalSorter(above).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]
            first = min(range(len(cycle)), key=lambda at: order[cycle[at]])
            cycle = [*cycle[first:], *cycle[:first], cycle[first]]
            found.append(cycle)
            del left[cycle[-2], cycle[-1]]
        else:
            break
    return found
