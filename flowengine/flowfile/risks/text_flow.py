"""Builds the graph of the paths on which untrusted text can go through a flow: from value to value.

Theory of operation:

1. Vertices are values (`value_reads`), the keys of nodes that texts are rendered for ("port"), what a node reads all
   together ("reads"), the places where a text comes in ("source"), and those that act on the outside ("effect").
2. An edge says that the words of the one may be in the other. A template makes one for each value that it prints;
   what it only compares, counts or tests makes none, and neither does a value that is closed: an attacker may choose
   it, and cannot word it. Which branch a flow takes (routes, `when`, `until`) is such a choice.
3. What a node gives may have the words of all that it reads: a model answers with what it was told, a function returns
   what it was handed. Calls of tools are made of what the model reads.
4. What a person saw, or code checked, goes no further where that holds for the reader (`closings`).
5. Where the file does not say what is read, all that could be read is: a function that is given the context reads what
   its node can see, one that may return a `NodeResult` writes every key of state.
6. Another file that runs as a node is looked into once for each node: what is given to its inputs is its source there,
   and its outputs come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from flowengine.core import TRAITS
from flowengine.flowfile.analysis import (
    NodePath,
    Use,
    flows_in,
    is_agent,
    is_asking,
    is_function,
    is_judging,
    is_loop,
    is_map_node,
    is_subflow,
    key_path,
    last_of,
    level_of,
    levels_of,
    nodes_of,
    reads_of,
    runs_of,
    settings_of,
)
from flowengine.flowfile.project import Project
from flowengine.flowfile.risks.outside_effects import (
    ANY,
    RiskSpot,
    can_act,
    can_bring,
    effects_in,
    provider_of,
    sources_in,
    untrusted_inputs,
)
from flowengine.flowfile.risks.sanitizers import Sanitizers
from flowengine.flowfile.risks.value_reads import ReadValue, ValueReads
from flowengine.flowfile.schema import BodyKeys, FlowSpec, NodeSpec
from flowengine.flowfile.yaml import KeyPath


class TextVertex(NamedTuple):
    """A value, or a place of a node."""

    kind: str
    path: NodePath
    """The node, by its own id and those of the containers and subflows round it; of an input the subflow's."""
    key: str = ""


class TextPlace(NamedTuple):
    """A place in one of the files."""

    spec: FlowSpec
    at: Use | KeyPath

    def position(self) -> tuple[str | None, int, int]:
        """File, line and column."""
        source = self.spec.source
        if isinstance(self.at, Use):
            text, reference = self.at.text, self.at.reference
            file = source.file_of(text.path)
            place = source.inside(text.path, text.text, reference.line, reference.column)
        else:
            file, place = source.path, source.key_position(self.at)
        return (None if file is None else str(file), *place)


class Enters(NamedTuple):
    """A source, or an effect."""

    spot: RiskSpot
    place: TextPlace


Edges: TypeAlias = "dict[TextVertex, dict[TextVertex, TextPlace | None]]"

_MOST_INSTANCES: Final = 200
"""Nodes whose subflows are each looked into by themselves; beyond it one file is one place for all of them."""
_DECIDING: Final = ("approval", "condition")
"""Kinds whose texts only decide, or are shown to a person."""
_CONTEXTS: Final = TextVertex("context", ())
_SESSION: Final = TextVertex("exchanges", ())


class TextGraph:
    """The graph of a flow with the flows that it runs."""

    def __init__(self) -> None:
        self.edges: Edges = {}
        self.sources: dict[TextVertex, Enters] = {}
        self.effects: dict[TextVertex, Enters] = {}
        self.nodes: dict[NodePath, tuple[FlowSpec, NodeSpec]] = {}
        """Every node by its path, those of subflows included."""
        self.files: dict[NodePath, FlowSpec] = {}
        """Path of a subflow's node (of the flow itself: empty) → the file."""

    def vertices(self) -> set[TextVertex]:
        return {*self.edges, *(each for targets in self.edges.values() for each in targets)}

    def link(self, one: TextVertex, other: TextVertex, place: TextPlace | None = None) -> None:
        """The words of the one may be in the other."""
        self.edges.setdefault(one, {}).setdefault(other, place)


def may_have_risks(spec: FlowSpec, project: Project) -> bool:
    """Tells whether there could be a source and an effect, as far as the kinds of the nodes say."""
    brings = any(True for _ in untrusted_inputs(spec, project))
    acts = False
    for each in flows_in(spec):
        if any(state.trust is not None for state in each.shared_state.values()):
            return True
        for _, node in nodes_of(each):
            if node.trust is not None:
                return True
            acts = acts or (can_act(node) and (not is_asking(node) or _has_tools(each, node)))
            brings = brings or (can_bring(node) and (not is_asking(node) or _has_sources(each, node)))
    return acts and brings


def _has_tools(spec: FlowSpec, node: Any) -> bool:
    settings = settings_of(spec, node)
    acting = any(getattr(settings, key) for key in ("tools", "mcp_servers", "contexts", "skills"))
    return acting or node.effect == "external"


def _has_sources(spec: FlowSpec, node: Any) -> bool:
    settings = settings_of(spec, node)
    return any(getattr(settings, key) for key in ("tools", "mcp_servers", "contexts", "context", "memory"))


def graph_of(spec: FlowSpec, project: Project) -> TextGraph:
    """The graph of a flow."""
    graph = TextGraph()
    _File(graph, spec, project, (), {}).build()
    for spot in untrusted_inputs(spec, project):
        source = TextVertex("source", (), spot.key)
        graph.sources[source] = Enters(spot, TextPlace(spec, spot.at))
        graph.link(source, TextVertex("input", (), spot.key))
    return graph


class _File:
    """One file, as the flow itself or as a node of another one."""

    def __init__(
        self, graph: TextGraph, spec: FlowSpec, project: Project, prefix: NodePath, shared: dict[int, NodePath]
    ) -> None:
        """`shared`: file → the path of the node that stands for all that run it, once there are too many."""
        self._graph = graph
        self._spec = spec
        self._project = project
        self._prefix = prefix
        self._shared = shared
        self._values = ValueReads(spec, project)
        self._sanitizers = Sanitizers(spec, lambda node, path: self._values.names(node[:-1], path, node))
        self._is_seen_built = False
        graph.files[prefix] = spec

    def build(self) -> None:
        for path, node in nodes_of(self._spec):
            self._graph.nodes[self._prefix + path] = (self._spec, node)
        for path, node in nodes_of(self._spec):
            self._wire(path, node)
        for level in levels_of(self._spec).values():
            self._end(level.path)

    # --- vertices

    def _at(self, kind: str, path: NodePath, key: str = "") -> TextVertex:
        return TextVertex(kind, self._prefix + path, key)

    def _value(self, read: ReadValue) -> TextVertex:
        """The vertex of a value that is read."""
        kind, owner, *fields = read.name
        if kind == "seen":
            self._build_seen()
            return self._at("seen", owner, fields[0])
        if kind == "state":
            return self._written_key(fields[0])
        if kind in ("input", "set", "var"):
            return self._at(kind, owner, fields[0])
        if kind in ("error", "prompt", "judged", "item"):
            return self._at(kind, owner)
        node = level_of(self._spec, owner[:-1])[owner[-1]]
        return self._at("out", owner, fields[0] if fields and fields[0] in self._fields_of(node) else "")

    def _written_key(self, key: str) -> TextVertex:
        """A key of state as any of its writers leave it."""
        state = self._at("state", (), key)
        if state not in self._graph.edges:
            self._graph.edges[state] = {}
            for writer in self._values.writers[key]:
                self._graph.link(self._at("set", writer, key), state)
        return state

    def _fields_of(self, node: NodeSpec) -> Iterable[str]:
        """The fields of a node's output whose words are known apart."""
        if is_loop(node):
            return (*node.initial, *node.carry)
        if is_subflow(node):
            inner = self._spec.subflows.get(node.flow)
            return () if inner is None else inner.outputs
        return ()

    # --- reads

    def _read(
        self, target: TextVertex, level: NodePath, use: Use, node: NodePath | None, *, is_set: bool = False
    ) -> None:
        """Adds the edges from one name in a text to the place where the text is rendered."""
        if use.reference.carried:
            values = self._values.of(level, use.reference.path, node, is_set=is_set)
            self._add_reads(target, values, level if node is None else node, use)

    def _add_reads(self, target: TextVertex, values: Iterable[ReadValue], reader: NodePath, at: Use | KeyPath) -> None:
        for each in values:
            if not each.is_closed and not self._is_shown(reader, each):
                self._graph.link(self._value(each), target, TextPlace(self._spec, at))

    def _is_shown(self, reader: NodePath, read: ReadValue) -> bool:
        if not self._sanitizers or not reader:
            return False
        is_state = read.name[0] == "set"
        by = self._sanitizers.before(reader, read.name)
        return any(not (is_state and self._is_written_since(each, reader, read.name[2])) for each in by)

    def _is_written_since(self, by: NodePath, reader: NodePath, key: str) -> bool:
        """Tells whether a key of state may be written between the node that shows it and one that reads it."""
        runs = runs_of(self._spec)[by[:-1]]
        holds, index, depth = runs.graph.ancestry.holds, runs.graph.index, len(by) - 1
        closer, read = index[by[-1]], index[reader[depth]]
        for writer in self._values.writers.get(key, ()):
            if writer[:depth] == by[:-1] and len(writer) > depth:
                at = index[writer[depth]]
                if at == read and len(reader) > depth + 1:
                    return True
                if holds(at, read) and at != closer and not holds(at, closer):
                    return True
        return False

    def _port(self, path: NodePath, key: str) -> TextVertex:
        """Returns the vertex for a rendered key, which is part of what the node reads."""
        port = self._at("port", path, key)
        node = level_of(self._spec, path[:-1])[path[-1]]
        if not (key == "prompt" and is_agent(node) and self._guards(node, "input")):
            self._graph.link(port, self._at("reads", path))
        return port

    def _guards(self, node: Any, side: str) -> bool:
        guardrails = settings_of(self._spec, node).guardrails
        return guardrails is not None and bool(getattr(guardrails, side))

    # --- nodes

    def _wire(self, path: NodePath, node: NodeSpec) -> None:
        at = key_path(path)
        for use in reads_of(self._spec).of_node[path]:
            key = _key_of(use, path)
            if use.text.scope == "set":
                self._read(self._at("set", path, str(use.text.path[len(at) + 1])), path[:-1], use, path, is_set=True)
            elif key == "over":
                self._read(self._at("item", path), path[:-1], use, path)
            elif key == "initial":
                self._read(self._at("var", path, str(use.text.path[len(at) + 1])), path[:-1], use, path)
            elif key == "with" and is_subflow(node):
                name = str(use.text.path[len(at) + 1])
                self._read(self._port(path, "with"), path[:-1], use, path)
                self._read(TextVertex("input", self._inside(path, node.flow), name), path[:-1], use, path)
            elif key == "notify" or self._is_read(node, key):
                self._read(self._port(path, key), path[:-1], use, path)
        self._read_unsaid(path, node, at)
        self._give(path, node)
        self._take_in(path, node, at)
        self._act(path, node, at)

    def _is_read(self, node: NodeSpec, key: str) -> bool:
        return key != "when" and node.type not in _DECIDING and not (key == "memory" and is_asking(node))

    def _read_unsaid(self, path: NodePath, node: NodeSpec, at: KeyPath) -> None:
        """Adds what a node reads without naming it in a text."""
        level = path[:-1]
        if is_agent(node) and node.prompt is None:
            values = [*self._values.of(level, ("result",), path), *self._values.of(level, ("inputs",), path)]
            self._add_reads(self._port(path, "prompt"), values, path, at)
        elif is_judging(node) and node.target is None:
            last = self._values.of(level, ("shared_state", "_last_generation"), path)
            values = [*last, *self._values.of(level, ("result",), path)]
            self._add_reads(self._port(path, "target"), values, path, at)
        elif self._takes_context(node):
            self._build_seen()
            self._graph.link(self._at("seen", path), self._port(path, "call"), TextPlace(self._spec, at))

    def _takes_context(self, node: NodeSpec) -> bool:
        if is_function(node):
            definition = self._project.definition_of(node.call)
            parameters = None if definition is None else definition.parameters
            return not node.with_ or parameters is None or "context" in parameters.names or parameters.takes_any
        return node.type not in TRAITS

    def _give(self, path: NodePath, node: NodeSpec) -> None:
        """Adds what a node passes on of what it reads."""
        reads, out = self._at("reads", path), self._at("out", path)
        link = self._graph.link
        link(reads, self._at("error", path))
        link(reads, self._at("judged", path))
        link(reads, self._at("prompt", path))
        if is_map_node(node) or is_loop(node) or is_subflow(node):
            for field in self._fields_of(node):
                if is_loop(node):
                    link(self._at("var", path, field), self._at("out", path, field))
                link(self._at("out", path, field), out)
            if is_subflow(node):
                self._come_back(path, self._inside(path, node.flow))
            return
        if not (is_agent(node) and self._guards(node, "output")):
            link(reads, out)
        if self._values.writes_any(node):
            for key in self._spec.shared_state:
                link(out, self._at("set", path, key))

    def _take_in(self, path: NodePath, node: NodeSpec, at: KeyPath) -> None:
        reads = self._at("reads", path)
        for number, spot in enumerate(sources_in(self._spec, self._project, at, node)):
            source = self._at("source", path, f"{spot.key}#{number}")
            self._graph.sources[source] = Enters(spot, TextPlace(self._spec, spot.at))
            if spot.key == "output":
                self._graph.link(source, self._at("out", path))
                self._graph.link(source, self._at("error", path))
            else:
                self._graph.link(source, reads)
        if is_agent(node):
            settings = settings_of(self._spec, node)
            if settings.contexts:  # Two of them may be one: what is kept goes by the name that each has in its code.
                self._share(reads, _CONTEXTS)
            if settings.history_size or any(provider_of(each) == "conversation" for each in settings.context or ()):
                self._share(reads, _SESSION)

    def _share(self, reads: TextVertex, store: TextVertex) -> None:
        """Shares one node's reads with all nodes that use the same store."""
        self._graph.link(reads, store)
        self._graph.link(store, reads)

    def _act(self, path: NodePath, node: NodeSpec, at: KeyPath) -> None:
        for number, spot in enumerate(effects_in(self._spec, self._project, at, node)):
            effect = self._at("effect", path, f"{spot.key}#{number}")
            self._graph.effects[effect] = Enters(spot, TextPlace(self._spec, spot.at))
            read = self._at("reads", path) if spot.reads == ANY else self._at("port", path, spot.reads)
            self._graph.link(read, effect)
            if isinstance(node, BodyKeys):
                for inner, _ in nodes_of(self._spec):
                    if inner[: len(path)] == path and inner != path:
                        self._graph.link(self._at("reads", inner), effect)

    def _inside(self, path: NodePath, flow: str) -> NodePath:
        """Returns the path of the nodes of another file that runs as a node."""
        inner = self._spec.subflows.get(flow)
        own = self._prefix + path
        if inner is None:
            return own
        shared = self._shared.get(id(inner))
        if shared is None and own not in self._graph.files:
            if len(self._graph.files) >= _MOST_INSTANCES:
                self._shared[id(inner)] = own
            _File(self._graph, inner, self._project, own, self._shared).build()
        return shared or own

    def _come_back(self, path: NodePath, inside: NodePath) -> None:
        """Adds the outputs of a file that another node runs."""
        if inside != self._prefix + path:
            for vertex in [each for each in self._graph.vertices() if each.path == inside and each.kind == "out"]:
                self._graph.link(vertex, self._at("out", path, vertex.key))
            self._graph.link(TextVertex("error", inside), self._at("error", path))

    # --- the end of a level

    def _end(self, level: NodePath) -> None:
        """Adds the outputs of a body or a flow after its nodes."""
        at = key_path(level)
        for use in reads_of(self._spec).at_end.get(level, ()):
            key = str(use.text.path[len(at)])
            if key == "outputs":
                if self._prefix:
                    self._read(TextVertex("out", self._prefix, str(use.text.path[1])), level, use, None)
            elif key == "carry":
                self._read(self._at("var", level, str(use.text.path[len(at) + 1])), level, use, None)
            elif key == "result":
                self._read(self._at("out", level), level, use, None)
        if not level:
            self._end_file()
            return
        holder = level_of(self._spec, level[:-1])[level[-1]]
        for name in level_of(self._spec, level):
            self._graph.link(self._at("error", (*level, name)), self._at("error", level))
        if is_map_node(holder):
            if holder.result is None:
                for name in last_of(self._spec, level):
                    self._add_reads(self._at("out", level), self._values.of_node((*level, name), "output"), level, at)
            if holder.on_item_error == "collect":
                self._graph.link(self._at("error", level), self._at("out", level))
        elif not is_loop(holder):  # A container of another package's: it may give whatever its body gives.
            for name in level_of(self._spec, level):
                self._add_reads(self._at("out", level), self._values.of_node((*level, name), "output"), level, at)

    def _end_file(self) -> None:
        if self._prefix:
            for name in level_of(self._spec):
                self._graph.link(self._at("error", (name,)), TextVertex("error", self._prefix))

    # --- all that a node can see

    def _build_seen(self) -> None:
        """Builds for each node the texts that it can see, from those that its predecessors see and give."""
        if self._is_seen_built:
            return
        self._is_seen_built = True
        link = self._graph.link
        for level in levels_of(self._spec).values():
            base = self._at("seen", level.path, "base")
            for name in self._spec.inputs if not level.path else ():
                self._add_reads(base, self._values.of((), ("inputs", name), None), (), ("inputs", name))
            if level.path:
                link(self._at("seen", level.path), base)
                link(self._at("item", level.path), base)
                for field in self._fields_of(level.holder) if level.holder is not None else ():
                    link(self._at("var", level.path, field), base)
            link(base, self._at("seen", level.path, "end"))
            graph = runs_of(self._spec)[level.path].graph
            for number, name in enumerate(graph.ids):
                vertex = self._at("seen", (*level.path, name))
                link(base, vertex)
                for parent in graph.parents[number]:
                    before = (*level.path, graph.ids[parent])
                    link(self._at("seen", before), vertex)
                    for each in self._given_by(before):
                        link(each, vertex)
                for each in self._given_by((*level.path, name)):
                    link(each, self._at("seen", level.path, "end"))
                    if is_loop(level.holder) and each.kind == "set":
                        link(each, base)

    def _given_by(self, path: NodePath) -> Iterator[TextVertex]:
        """All that a node leaves to be seen, those inside it included."""
        yield from (self._at(kind, path) for kind in ("error", "judged", "prompt"))
        yield from (self._value(each) for each in self._values.of_node(path, "output") if not each.is_closed)
        for key, writers in self._values.writers.items():
            for writer in writers:
                if writer[: len(path)] == path:
                    yield self._at("set", writer, key)


def _key_of(use: Use, path: NodePath) -> str:
    """The key of a node, or of its agent, that a text stands at."""
    text, at = use.text, key_path(path)
    if text.node is None:
        return str(text.path[2])
    own = text.path[len(at) :]
    if own[0] == "agent":
        return str(own[1])
    return str(own[0])
