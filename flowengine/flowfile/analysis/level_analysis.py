"""Analyses the runs of each level before any run: its graph, which nodes can be live together, and
who could have set the engine's own values last.

A body sees what its container saw, so a question that its own nodes do not answer goes to the level outside.
What the rounds of a loop set is seen after the loop; of a map's items and of a subflow nothing is.

Source of the rules: rules 6, 8, 10 and 11 of the flow format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from flowengine.engine import ON_ERROR, Edge, Graph, sort_topologically
from flowengine.flowfile.analysis.branch_exclusion import BranchExclusion
from flowengine.flowfile.analysis.flow_nodes import (
    NodePath,
    SpecLevel,
    is_agent,
    is_evaluation,
    is_loop,
    is_routing,
    key_path,
    labels_of,
    levels_of,
    setting_of,
)
from flowengine.flowfile.analysis.gaps import gaps_of
from flowengine.flowfile.analysis.references import edges_of, vertices_of
from flowengine.flowfile.schema import BodyKeys, FlowSpec, NodeSpec
from flowengine.flowfile.yaml import KeyPath

# --- Who could have set a value last, before each node; and which of two writers have no order

_KEPT: Final = 32
"""Candidates kept for the last setter: the last ones."""


def masks_of(graph: Graph, members: Collection[int]) -> dict[int, int]:
    """Marked node → which nodes are marked and come before it, one bit a node's number."""
    masks: list[int] = []
    for parents in graph.parents:
        mask = 0
        for parent in parents:
            mask |= masks[parent]
            if parent in members:
                mask |= 1 << parent
        masks.append(mask)
    return {number: masks[number] for number in members}


class ReachingDefinitions:
    """The candidates of each kind of value before each node, that is the setters that no certain later one covers.

    `setters`: what is set → the nodes that can set it, each with whether it does so whenever it succeeds.
    """

    def __init__(self, graph: Graph, live: BranchExclusion, setters: Mapping[str, Mapping[int, bool]]) -> None:
        self._graph = graph
        self._live = live
        self._setters = setters
        self._before: dict[str, list[tuple[int, ...]]] = {}

    def before(self, number: int | None, what: str) -> tuple[int, ...]:
        """Nodes that could have set a value last, as seen by a node, or (None) at the end of a run."""
        if what not in self._before:
            self._before[what] = []
            for each, parents in enumerate(self._graph.parents):
                self._before[what].append(self._candidates(each, parents, what))
        if number is not None:
            return self._before[what][number]
        graph = self._graph
        ends = [each for each in range(len(graph)) if not graph.children[each] and each not in graph.routes]
        return self._candidates(None, ends, what)

    def two_before(self, number: int | None, what: str) -> tuple[int, int] | None:
        """Two candidates that can both be live and have no order, or None."""
        candidates = self.before(number, what)
        for at, other in enumerate(candidates):
            for one in candidates[:at]:
                if not self._live.exclude(one, other) and not self._graph.ancestry.holds(one, other):
                    return one, other
        return None

    def surely_before(self, number: int | None, what: str) -> bool:
        """Tells whether somebody has set a value whenever a node runs, or (None) whenever a run succeeds."""
        return any(self._sets(number, each, what) for each in self.before(number, what))

    def _sets(self, reader: int | None, node: int, what: str) -> bool:
        """Tells whether a node has surely set a value where a reader runs."""
        return self._setters[what].get(node, False) and self._live.certain(reader, node)

    def _candidates(self, reader: int | None, parents: Iterable[int], what: str) -> tuple[int, ...]:
        before, setters = self._before[what], self._setters[what]
        candidates: set[int] = set()
        for parent in parents:
            if parent in setters:
                candidates.add(parent)
            if not self._sets(reader, parent, what):
                candidates.update(before[parent])
        if len(candidates) < 2:
            return tuple(candidates)
        last = sorted(candidates)[-_KEPT:]
        covering = [each for each in last if self._sets(reader, each, what)]
        holds = self._graph.ancestry.holds
        return tuple(each for each in last if not any(each < later and holds(each, later) for later in covering))


LAST: Final = "the last generation"
ROUTING: Final = "`routing_result`"
EVALUATION: Final = "`evaluation_result`"

AllRuns: TypeAlias = "Mapping[NodePath, LevelAnalysis]"


def runs_of(spec: FlowSpec) -> AllRuns:
    """Returns the facts about the runs of each level; unknown ends and edges of cycles are left out."""
    levels: dict[NodePath, LevelAnalysis] = {}
    for level in reversed(tuple(levels_of(spec).values())):
        levels[level.path] = LevelAnalysis(spec, level, levels)
    return dict(reversed(levels.items()))


def without_cycles(nodes: Iterable[str], edges: list[Edge]) -> tuple[list[Edge], frozenset[str]]:
    """The edges but for those among nodes that wait for each other, and these nodes."""
    pairs = {(edge.source, edge.target) for edge in edges}
    if sort_topologically(list(nodes), pairs) is not None:
        return edges, frozenset()
    circling = _core(pairs) & _core({(target, source) for source, target in pairs})
    acyclic = [edge for edge in edges if not (edge.source in circling and edge.target in circling)]
    return acyclic, frozenset(circling)


def _core(edges: Collection[tuple[str, str]]) -> set[str]:
    """Removes nodes without predecessors repeatedly, and returns the rest of the graph."""
    waiting, after = Counter(target for _, target in edges), dict[str, list[str]]()
    for source, target in edges:
        after.setdefault(source, []).append(target)
    core = {*waiting, *after}
    todo = [name for name in core if not waiting[name]]
    while todo:
        removal = todo.pop()
        core.discard(removal)
        for target in after.get(removal, ()):
            waiting[target] -= 1
            if not waiting[target]:
                todo.append(target)
    return core


class LevelAnalysis:
    """The runs of one level."""

    def __init__(self, spec: FlowSpec, level: SpecLevel, every: AllRuns) -> None:
        """`every`: the runs of all levels, those inside this one known already."""
        self.level = level
        edges, circling = without_cycles(level.nodes, edges_of(spec, level.path))
        self.graph = graph = Graph(vertices_of(spec, level.path), edges)
        gaps = gaps_of(spec)
        for name in circling:
            gaps.waits.add((*level.path, name))
        self._unsure = gaps.unsure(level.path, level.nodes, [(edge.source, edge.target) for edge in edges])
        self._may_lead = any(to is None and path[:-1] == level.path for path, to in gaps.leads.items())
        self.nodes = [level.nodes[name] for name in graph.ids]
        self._spec = spec
        self._every = every
        labels = {number: labels_of(spec, name, level.path) for number, name in enumerate(graph.ids)}
        optional = {number for number, node in enumerate(self.nodes) if can_skip(node)}
        self.live = BranchExclusion(graph, labels, optional)
        self._lasts = ReachingDefinitions(
            graph, self.live, {what: self._setters(what) for what in (LAST, ROUTING, EVALUATION)}
        )

    def is_sure(self, number: int) -> bool:
        """Tells whether no mistake of the file could change what comes before a node on its level."""
        return self.graph.ids[number] not in self._unsure

    def is_reached_surely(self, number: int) -> bool:
        """Tells whether no mistake of the file could make another node lead to this one."""
        return self.is_sure(number) and not self._may_lead

    def sees_surely(self, number: int | None) -> bool:
        """Tells whether no mistake of the file could change what comes before a node (or the end), also outside."""
        if self._unsure if number is None else not self.is_sure(number):
            return False
        outside = self._outside()
        return outside is None or outside[0].sees_surely(outside[1])

    def path_of(self, number: int) -> NodePath:
        return (*self.level.path, self.graph.ids[number])

    def predecessors(self, number: int) -> list[int]:
        """Parents that may have succeeded; the failed one that a node handles says nothing."""
        gates = dict(self.graph.gates.get(number, ()))
        return [parent for parent in self.graph.parents[number] if gates.get(parent) != frozenset({ON_ERROR})]

    # --- the engine's own values

    def two_before(self, number: int | None, what: str) -> tuple[str, str] | None:
        """Two nodes without an order of which either could have set a value last, as a node (or the end) sees it."""
        pair = self._lasts.two_before(number, what)
        if pair is not None:
            return self.graph.ids[pair[0]], self.graph.ids[pair[1]]
        if self._lasts.surely_before(number, what):
            return None
        outside = self._outside()
        return None if outside is None else outside[0].two_before(outside[1], what)

    def any_before(self, number: int, what: str) -> bool:
        """Tells whether some node could have set a value before another one runs."""
        if self._lasts.before(number, what):
            return True
        outside = self._outside()
        return outside is not None and outside[0].any_before(outside[1], what)

    def setters_before(self, number: int | None, what: str) -> list[NodePath]:
        """The nodes, those in loops by their own paths, that could have set a value last, as a node (or the end)
        sees it."""
        setters: list[NodePath] = []
        for each in self._lasts.before(number, what):
            inside = self._every.get(self.path_of(each))
            setters += [self.path_of(each)] if inside is None else inside.setters_before(None, what)
        outside = self._outside()
        if outside is not None and not self._lasts.surely_before(number, what):
            setters += outside[0].setters_before(outside[1], what)
        return list(dict.fromkeys(setters))

    def _outside(self) -> tuple[LevelAnalysis, int] | None:
        """The level round this one, and its container's number there."""
        if self.level.holder is None:
            return None
        outer = self._every[self.level.path[:-1]]
        return outer, outer.graph.index[self.level.path[-1]]

    def _setters(self, what: str) -> dict[int, bool]:
        certainty: dict[int, bool] = {}
        for number, node in enumerate(self.nodes):
            if is_loop(node):
                inside = self._every[self.path_of(number)]
                if inside._lasts.before(None, what):
                    certainty[number] = inside._lasts.surely_before(None, what)
            elif _sets(self._spec, node, what):
                certainty[number] = True
        return certainty


def can_skip(node: NodeSpec) -> bool:
    """Tells whether a node may be skipped of its own accord."""
    return node.when is not None or node.on_error.action == "skip"


def _sets(spec: FlowSpec, node: NodeSpec, what: str) -> bool:
    if is_agent(node):
        keys = _OF_AGENTS[what]
        return not keys or any(setting_of(spec, node, each) is not None for each in keys)
    return what != LAST and (is_routing(node) if what == ROUTING else is_evaluation(node))


_OF_AGENTS: Final[Mapping[str, tuple[str, ...]]] = {
    LAST: (),
    ROUTING: ("routing",),
    EVALUATION: ("improve", "evaluate"),
}
"""Kind of value → the settings with which an agent sets it; it always generates."""


def writes_of(node: NodeSpec, path: NodePath) -> dict[str, KeyPath]:
    """The state keys that a node and the nodes inside it write with `set`, each with its first place."""
    writes: dict[str, KeyPath] = {key: (*key_path(path), "set", key) for key in node.set}
    if isinstance(node, BodyKeys):
        for name, inner in node.nodes.items():
            writes = writes_of(inner, (*path, name)) | writes
    return writes
