"""Holds the shape of a flow: which nodes follow which, and by which routes. Frozen once built.

Nodes are numbered in a topological order that depends on the declaration alone, so that every fold
over ancestors gives the same value in every run. What a node does is not known here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal, NamedTuple

from flowengine.errors import Diagnostic, FlowError, did_you_mean

# --- Topological order and cycles


def sort_topologically(declared: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[str, ...] | None:
    """The order that keeps to the declared one wherever the edges allow, or None where there is a cycle.

    >>> sort_topologically(["c", "b", "a"], [("a", "b")])
    ('c', 'a', 'b')
    """
    position = {name: number for number, name in enumerate(declared)}
    after: list[list[int]] = [[] for _ in declared]
    waiting = [0] * len(declared)
    for source, target in set(edges):
        after[position[source]].append(position[target])
        waiting[position[target]] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[str] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(declared[at])
        for each in after[at]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, each)
    return tuple(order) if len(order) == len(declared) else None


def find_cycles(declared: Sequence[str], edges: Iterable[tuple[str, str]], most: int = 10) -> list[list[str]]:
    """Cycles, one after the other, each broken where it was found; the first node is repeated at the end.

    >>> find_cycles(["a", "b"], [("a", "b"), ("b", "a")])
    [['a', 'b', 'a']]
    """
    order = {name: position for position, name in enumerate(declared)}
    remaining = dict.fromkeys(edges)
    cycles: list[list[str]] = []
    while len(cycles) < most:
        above: dict[str, list[str]] = {}
        for source, target in remaining:
            above.setdefault(target, []).append(source)
        try:
            TopologicalSorter(above).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]
            first = min(range(len(cycle)), key=lambda at: order[cycle[at]])
            cycle = [*cycle[first:], *cycle[:first], cycle[first]]
            cycles.append(cycle)
            del remaining[cycle[-2], cycle[-1]]
        else:
            break
    return cycles


# --- Ancestors of a node


class Ancestry:
    """The index over one graph's parents (numbers, ascending).

    >>> diamond = Ancestry([(), (0,), (0,), (1, 2), (0,)])
    >>> diamond.holds(0, 3), diamond.holds(1, 2), diamond.holds(3, 4)
    (True, False, False)
    """

    def __init__(self, parents: Sequence[tuple[int, ...]]) -> None:
        self._parents = parents
        self._head = list(range(len(parents)))
        """Node → the first node of its line."""
        continued = bytearray(len(parents))
        for node, above in enumerate(parents):
            if len(above) == 1 and not continued[above[0]]:
                continued[above[0]] = 1
                self._head[node] = self._head[above[0]]

    def holds(self, ancestor: int, node: int) -> bool:
        """Tells whether `ancestor` comes before `node` on some path (a node is no ancestor of itself)."""
        head = self._head
        line = head[ancestor]
        stack = [each for each in self._parents[node] if each >= ancestor]
        visited: set[int] = set()
        while stack:
            first = head[stack.pop()]
            if first == line:
                return True  # Same line and not below the target's number: the target is on the way.
            if first > ancestor and first not in visited:
                visited.add(first)
                stack.extend(each for each in self._parents[first] if each >= ancestor)
        return False

    def of(self, node: int) -> Iterator[int]:
        """All ancestors of a node, ascending."""
        ancestors: set[int] = set()
        stack = list(self._parents[node])
        while stack:
            each = stack.pop()
            if each not in ancestors:
                ancestors.add(each)
                stack.extend(self._parents[each])
        return iter(sorted(ancestors))


Join = Literal["some", "all", "always"]
OnError = Literal["fail", "skip", "then"]

FALLBACK: Final = "fallback"
"""Label of the edge to a routing node's fallback, where that is a node and not a label."""
ON_ERROR: Final = "on_error"
"""Label of the edge to the node that handles a failure (`on_error: {then: id}`)."""


class Vertex(NamedTuple):
    """Everything that deciding needs to know of one node."""

    id: str
    kind: str = "function"
    """For pictures and messages; deciding never looks at it."""
    join: Join = "some"
    on_error: OnError = "fail"
    transparent: bool = False
    """Passes on the `result` that it received (routing, condition, evaluation, approval)."""
    container: bool = False
    """Runs a level of its own inside (map, loop, subflow)."""
    evaluates: bool = False
    """Sets the engine's `evaluation_result`: an evaluation, an agent that is judged, a loop with one of them inside."""
    chooses: bool = False
    """Sets the engine's `routing_result`: a routing, an agent with routes, a loop with one of them inside."""


class Edge(NamedTuple):
    """`target` waits for `source`; with a route, it is also gated by it."""

    source: str
    target: str
    route: str | None = None


class Graph:
    """A DAG of vertices, numbered 0…n-1 in topological order (`ids[number]`, `index[id]`).

    >>> graph = Graph([Vertex("a"), Vertex("b")], [Edge("a", "b")])
    >>> graph.ids, graph.parents[1]
    (('a', 'b'), (0,))
    """

    __slots__ = (
        "_ancestry",
        "children",
        "degrees",
        "edges",
        "gates",
        "ids",
        "index",
        "leaves",
        "parents",
        "roots",
        "routes",
        "vertices",
    )

    ids: tuple[str, ...]
    index: Mapping[str, int]
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    """The declared edges, without repetitions."""
    children: Sequence[tuple[int, ...]]
    """Node → children that it leads to without a route, ascending."""
    routes: Mapping[int, tuple[tuple[int, frozenset[str]], ...]]
    """Node → (child, the labels that open it), for nodes that have routes."""
    parents: Sequence[tuple[int, ...]]
    """Node → all its parents, ascending."""
    degrees: Sequence[int]
    """Node → how many parents it waits for."""
    roots: Sequence[int]
    """Nodes without parents."""
    leaves: Sequence[int]
    """Nodes that lead nowhere."""
    gates: Mapping[int, tuple[tuple[int, frozenset[str]], ...]]
    """Node → (parent, labels) of the routes that lead to it; it runs only if one was taken."""

    def __init__(self, vertices: Iterable[Vertex], edges: Iterable[Edge] = ()) -> None:
        declared = {vertex.id: vertex for vertex in vertices}
        self.edges = tuple(dict.fromkeys(edges))
        self.ids = _number_nodes(declared, self.edges)
        self.index = {name: number for number, name in enumerate(self.ids)}
        self.vertices = tuple(declared[name] for name in self.ids)
        self._number_edges()
        self._ancestry: Ancestry | None = None

    @property
    def ancestry(self) -> Ancestry:
        """Built at the first question about a node that is not a parent."""
        if self._ancestry is None:
            self._ancestry = Ancestry(self.parents)
        return self._ancestry

    def is_ancestor(self, ancestor: int, node: int) -> bool:
        """Tells whether one node comes before another on some path; a question about a parent costs nothing."""
        return ancestor in self.parents[node] or self.ancestry.holds(ancestor, node)

    def _number_edges(self) -> None:
        index = self.index
        labels: dict[tuple[int, int], set[str]] = {}
        for source, target, route in self.edges:
            edge_routes = labels.setdefault((index[source], index[target]), set())
            if route is not None:
                edge_routes.add(route)
        children: list[list[int]] = [[] for _ in self.ids]
        parents: list[list[int]] = [[] for _ in self.ids]
        routes: dict[int, list[tuple[int, frozenset[str]]]] = {}
        gates: dict[int, list[tuple[int, frozenset[str]]]] = {}
        for (source, target), edge_routes in sorted(labels.items()):
            parents[target].append(source)
            if edge_routes:
                routes.setdefault(source, []).append((target, frozenset(edge_routes)))
                gates.setdefault(target, []).append((source, frozenset(edge_routes)))
            else:
                children[source].append(target)
        # Tuples of numbers: the garbage collector stops tracking them at its first visit.
        self.children = [tuple(each) for each in children]
        self.parents = [tuple(each) for each in parents]
        self.routes = {node: tuple(each) for node, each in routes.items()}
        self.gates = {node: tuple(each) for node, each in gates.items()}
        # What every walk begins with, worked out once.
        self.degrees = [len(each) for each in parents]
        self.roots = [node for node, each in enumerate(parents) if not each]
        self.leaves = [node for node, each in enumerate(children) if not each and node not in routes]

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, node: str) -> bool:
        return node in self.index

    def __repr__(self) -> str:
        return f"<Graph of {len(self.ids)} nodes and {len(self.edges)} edges>"


def _number_nodes(declared: Mapping[str, Vertex], edges: Sequence[Edge]) -> tuple[str, ...]:
    """The topological order; unknown nodes and cycles are `FlowError`s."""
    for source, target, _ in edges:
        for name, other in ((source, target), (target, source)):
            if name not in declared:
                hint = did_you_mean(name, declared)
                raise FlowError([Diagnostic("FE203", f"unknown node '{name}'", node=other, hint=hint)])
    names, pairs = list(declared), [(edge.source, edge.target) for edge in edges]
    order = sort_topologically(names, pairs)
    if order is None:
        cycles = find_cycles(names, pairs)
        spelled = [(cycle[0], " → ".join(cycle)) for cycle in cycles]
        raise FlowError([Diagnostic("FE210", f"the nodes form a cycle: {text}", node=node) for node, text in spelled])
    return order
