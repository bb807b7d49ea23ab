"""Finds the paths on which untrusted text reaches an effect: from each source to each place that acts on the outside.

Reachability in the graph of `text_flow`, by networkx. A path is *meant* where every one between its ends passes a place
that `trust` names; what such a place is:

- `trust: {key: reason}` is that key of the node: what is rendered for it, what comes in by it, what it does. `output`
  is what the node gives.
- `trust: reason` is what the node does on the outside where untrusted text gets that far; else what it gives.
- `trust: reason` at a key of `shared_state` is what is written to it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import networkx as nx

from flowengine.flowfile.analysis import NodePath, key_path
from flowengine.flowfile.project import Project
from flowengine.flowfile.risks.outside_effects import RiskSpot
from flowengine.flowfile.risks.text_flow import TextGraph, TextPlace, TextVertex, graph_of
from flowengine.flowfile.schema import FlowSpec


class Step(NamedTuple):
    """One value or node that a path passes."""

    name: str
    """The name in messages: `inputs.message`, `draft`, `shared_state.notes`."""
    kind: str
    """The type of the node; `input` or `state` for these."""
    keys: tuple[str, ...] = ()
    """The keys of the node that the text comes in by."""
    node: NodePath = ()


class RiskPath(NamedTuple):
    """A path from a source to an effect."""

    source: RiskSpot
    source_node: NodePath
    source_place: TextPlace
    effect: RiskSpot
    effect_node: NodePath
    effect_place: TextPlace
    """The place where the effect reads the text; for an agent's tools, the place of their list."""
    steps: tuple[Step, ...]
    """The shortest path, its ends included."""
    meant: str | None = None
    """Why it is meant."""


class UnneededTrust(NamedTuple):
    """A `trust` that no path needs."""

    place: TextPlace
    node: NodePath
    key: str


class _Trust(NamedTuple):
    place: TextPlace
    node: NodePath
    key: str
    reason: str
    vertices: frozenset[TextVertex]


class RiskPaths(NamedTuple):
    """The paths found in a flow."""

    open: list[RiskPath]
    """The paths that nothing closes and no `trust` accepts, by the places of their effects."""
    meant: list[RiskPath]
    unneeded: list[UnneededTrust]


def find_risk_paths(spec: FlowSpec, project: Project, *, most_sources: int | None = None) -> RiskPaths:
    """The paths of a flow. `most_sources`: of each effect so many sources, the nearest; None: all."""
    text = graph_of(spec, project)
    graph = _digraph(text)
    reachable = _find_reachable(graph, text.sources)
    effects = [each for each in text.effects if each in reachable]
    between = reachable & _find_reachable(graph.reverse(copy=False), effects)
    trusts = list(_trusts(text, between))
    cut = {vertex: each for each in trusts for vertex in each.vertices}
    uncut_graph = graph.subgraph([each for each in between if each not in cut]).copy()
    whole = graph.subgraph(between)
    finder = _Finder(text, cut)
    open_risks = [risk for effect in effects for risk in finder.risks(uncut_graph, effect, most_sources)]
    open_ends = set(map(_ends_of, open_risks))
    accepted_paths: list[RiskPath] = []
    if trusts:
        every = (risk for effect in effects for risk in finder.risks(whole, effect, most_sources))
        accepted_paths = [risk for risk in every if risk.meant is not None and _ends_of(risk) not in open_ends]
    own = (each for each in trusts if each.place.spec is spec and not each.vertices & between)
    unneeded = [UnneededTrust(each.place, each.node, each.key) for each in own]
    return RiskPaths(_sort_paths(open_risks), _sort_paths(accepted_paths), unneeded)


def _digraph(text: TextGraph) -> Any:
    make_graph: Any = nx.DiGraph
    graph = make_graph()
    graph.add_nodes_from([*text.sources, *text.effects])
    graph.add_edges_from((one, other) for one, targets in text.edges.items() for other in targets)
    return graph


def _find_reachable(graph: Any, starts: Iterable[TextVertex]) -> set[TextVertex]:
    """The starts, and all that can be reached from one of them."""
    return {each for layer in nx.bfs_layers(graph, list(starts)) for each in layer}


class _Finder:
    """Follows the paths back from their effects."""

    def __init__(self, text: TextGraph, cut: Mapping[TextVertex, _Trust]) -> None:
        self._text = text
        self._cut = cut

    def risks(self, graph: Any, effect: TextVertex, most: int | None) -> Iterator[RiskPath]:
        """The shortest path from each source, the nearest first; `most` of them."""
        if effect not in graph:
            return
        following: dict[TextVertex, TextVertex] = {}
        count = 0
        for vertex, after in nx.bfs_predecessors(graph.reverse(copy=False), effect):
            following[vertex] = after
            if vertex in self._text.sources:
                yield self._make_path(vertex, effect, following)
                count += 1
                if count == most:
                    return

    def _make_path(
        self, source: TextVertex, effect: TextVertex, following: Mapping[TextVertex, TextVertex]
    ) -> RiskPath:
        passed = [source]
        while passed[-1] != effect:
            passed.append(following[passed[-1]])
        begins, ends = self._text.sources[source], self._text.effects[effect]
        trust = next((self._cut[each] for each in passed if each in self._cut), None)
        return RiskPath(
            begins.spot,
            source.path,
            begins.place,
            ends.spot,
            effect.path,
            self._reading_place(passed) or ends.place,
            tuple(self._steps(passed)),
            None if trust is None else trust.reason,
        )

    def _reading_place(self, vertices: Sequence[TextVertex]) -> TextPlace | None:
        """Returns the position where the acting node reads the text, if its own key is rendered from it."""
        effect = vertices[-1]
        for before, port in pairwise(vertices):
            if port.kind == "port" and port.path == effect.path and not self._offers_tools(effect):
                return self._text.edges[before][port]
        return None

    def _offers_tools(self, effect: TextVertex) -> bool:
        return self._text.effects[effect].spot.key in ("tools", "mcp_servers", "contexts", "skills")

    def _steps(self, vertices: Sequence[TextVertex]) -> Iterator[Step]:
        steps: list[Step] = []
        for vertex in vertices:
            step = self._step(vertex)
            if steps and steps[-1].name == step.name:
                steps[-1] = steps[-1]._replace(keys=tuple(dict.fromkeys((*steps[-1].keys, *step.keys))))
            else:
                steps.append(step)
        return iter(steps)

    def _step(self, vertex: TextVertex) -> Step:
        kind, path, key = vertex
        if kind == "input" or (kind == "source" and path not in self._text.nodes):
            return Step(".".join((*path, "inputs", key)), "input", node=path)
        if kind in ("set", "state"):
            return Step(f"shared_state.{key}", "state", node=path)
        if kind == "context":
            return Step("the typed contexts", "state")
        if kind == "exchanges":
            return Step("the conversation", "state")
        name = ".".join(path)
        return Step(name or "the flow", self._kind(path), (key,) if kind == "port" else (), path)

    def _kind(self, path: NodePath) -> str:
        entry = self._text.nodes.get(path)
        return "state" if entry is None else entry[1].type


# --- what is meant


def _trusts(text: TextGraph, between: Container[TextVertex]) -> Iterator[_Trust]:
    """Each `trust` with the vertices that it is about; `between`: those on paths."""
    of_node: dict[NodePath, list[TextVertex]] = {}
    by_key: dict[str, list[TextVertex]] = {}
    for vertex in text.vertices():
        of_node.setdefault(vertex.path, []).append(vertex)
        if vertex.kind == "set":
            by_key.setdefault(vertex.key, []).append(vertex)
    for path, (spec, node) in text.nodes.items():
        at = (*key_path(_in_file(text, path)), "trust")
        for key, reason in (node.trust or {}).items():
            if key:
                vertices = [each for each in of_node.get(path, ()) if _is_of_key(text, each, key)]
                yield _Trust(TextPlace(spec, (*at, key)), path, key, reason, frozenset(vertices))
            else:
                deeds = [each for each in text.effects if each.path[: len(path)] == path and each in between]
                gives = [each for each in of_node.get(path, ()) if each.kind in ("out", "judged")]
                yield _Trust(TextPlace(spec, at), path, key, reason, frozenset(deeds or gives))
    for prefix, spec in text.files.items():
        for key, declared in spec.shared_state.items():
            if declared.trust is not None:
                own = [each for each in by_key.get(key, ()) if text.nodes[each.path][0] is spec]
                place = TextPlace(spec, ("shared_state", key, "trust"))
                yield _Trust(place, prefix, key, declared.trust, frozenset(own))


def _in_file(text: TextGraph, path: NodePath) -> NodePath:
    """A node's path in its own file."""
    depth = max(len(prefix) for prefix in text.files if path[: len(prefix)] == prefix and prefix != path)
    return path[depth:]


def _is_of_key(text: TextGraph, vertex: TextVertex, key: str) -> bool:
    """Tells whether a vertex of a node is what `trust: {key: …}` names."""
    entered = text.sources.get(vertex) or text.effects.get(vertex)
    if entered is not None:
        return entered.spot.key == key
    return (vertex.kind == "port" and vertex.key == key) or vertex.kind in _OF_KEY.get(key, ())


_OF_KEY: Final[Mapping[str, tuple[str, ...]]] = {
    "output": ("out",),
    "result": ("out",),
    "with": ("input",),
    "over": ("item",),
    "initial": ("var",),
    "carry": ("var",),
    "set": ("set",),
}
"""Key → the kinds of a node's vertices that it is."""


def _sort_paths(risks: Iterable[RiskPath]) -> list[RiskPath]:
    placed = {_ends_of(risk): risk for risk in risks}
    return [placed[key] for key in sorted(placed)]


def _ends_of(risk: RiskPath) -> tuple[tuple[str, int, int], tuple[str, int, int], str]:
    """Both places: what two paths have in common that are told as one."""
    return _place_key(risk.effect_place.position()), _place_key(risk.source_place.position()), risk.effect.what


def _place_key(place: tuple[str | None, int, int]) -> tuple[str, int, int]:
    return place[0] or "", place[1], place[2]


def risk_paths_of(spec: FlowSpec, project: Project) -> RiskPaths:
    """All paths of a flow; worked out once."""
    return spec.remember("paths of untrusted text", lambda each: find_risk_paths(each, project))


def place_text(place: TextPlace) -> str:
    """`file:line:col`."""
    return ":".join(str(each) for each in place.position() if each is not None)
