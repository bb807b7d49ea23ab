"""Lists the labels that a node can take, and where each of them leads. Whether the targets exist is for the checks.

Source of the rules: rule 2 of the flow format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from flowengine.flowfile.analysis.node_settings import agent_path, setting_of
from flowengine.flowfile.schema.agent_settings import AgentRouting, ModelSettings
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.keys import OwnRoute, routes_to
from flowengine.flowfile.schema.node_guards import is_agent
from flowengine.flowfile.schema.node_kinds import BodyKeys, NodeSpec
from flowengine.flowfile.yaml.positions import KeyPath

__all__ = [
    "Leads",
    "NodePath",
    "SpecLevel",
    "home_of",
    "key_path",
    "labels_of",
    "level_of",
    "levels_of",
    "node_at",
    "nodes_of",
    "places_of",
    "routes_of",
    "settings_in",
]

# --- The levels of a flow

NodePath: TypeAlias = tuple[str, ...]
"""A node (or the container that a level is inside), by its own id and those of the containers round it."""


class SpecLevel(NamedTuple):
    """Nodes that are ordered among themselves."""

    path: NodePath
    nodes: Mapping[str, NodeSpec]
    holder: BodyKeys | None = None
    """The container whose body this is."""


def levels_of(spec: FlowSpec) -> Mapping[NodePath, SpecLevel]:
    """Every level, a container's before those inside it."""
    return spec.remembered("levels", lambda each: {level.path: level for level in _levels(SpecLevel((), each.nodes))})


def _levels(level: SpecLevel) -> Iterator[SpecLevel]:
    yield level
    for name, node in level.nodes.items():
        if isinstance(node, BodyKeys):
            yield from _levels(SpecLevel((*level.path, name), node.nodes, node))


def level_of(spec: FlowSpec, path: NodePath = ()) -> Mapping[str, NodeSpec]:
    """The nodes of one level, by id."""
    return levels_of(spec)[path].nodes


def nodes_of(spec: FlowSpec) -> Iterator[tuple[NodePath, NodeSpec]]:
    """Every node of every level."""
    for level in levels_of(spec).values():
        for name, node in level.nodes.items():
            yield (*level.path, name), node


def settings_in(spec: FlowSpec) -> Iterator[tuple[KeyPath, ModelSettings]]:
    """All settings of models and agents with their places: the default, shared agents, nodes, agents in nodes."""
    if isinstance(spec.defaults.agent, ModelSettings):
        yield ("defaults", "agent"), spec.defaults.agent
    for name, shared in spec.agents.items():
        yield ("agents", name), shared
    for node_path, node in nodes_of(spec):
        path = key_path(node_path)
        if isinstance(node, ModelSettings):
            yield path, node
        agent = getattr(node, "agent", None)
        if isinstance(agent, ModelSettings):
            yield (*path, "agent"), agent


def home_of(spec: FlowSpec, path: NodePath, name: str) -> NodePath | None:
    """The level of the node that a name means inside a level: its own, or the nearest one round it."""
    levels = levels_of(spec)
    for depth in range(len(path), -1, -1):
        if name in levels[path[:depth]].nodes:
            return path[:depth]
    return None


def places_of(spec: FlowSpec) -> Mapping[str, list[NodePath]]:
    """Node's id → the levels that have such a node."""

    def places(spec: FlowSpec) -> dict[str, list[NodePath]]:
        found: dict[str, list[NodePath]] = {}
        for path, _ in nodes_of(spec):
            found.setdefault(path[-1], []).append(path[:-1])
        return found

    return spec.remembered("places", places)


def key_path(node: NodePath) -> KeyPath:
    """Returns a node's key path in the file.

    >>> key_path(("polish", "judge"))
    ('nodes', 'polish', 'nodes', 'judge')
    """
    return tuple(part for name in node for part in ("nodes", name))


def node_at(path: KeyPath) -> NodePath:
    """The innermost node that a value of the file belongs to; empty where it belongs to none.

    >>> node_at(("nodes", "polish", "nodes", "judge", "routes", "fail"))
    ('polish', 'judge')
    """
    found: list[str] = []
    for key, name in zip(path[::2], path[1::2], strict=False):
        if key != "nodes":
            break
        found.append(str(name))
    return tuple(found)


class Leads(NamedTuple):
    """One label of a node, and where it leads."""

    label: str
    target: str | None
    path: KeyPath


def routes_of(spec: FlowSpec, name: str, level: NodePath = ()) -> list[Leads]:
    """A node's labels, those that lead nowhere included, with their targets; failures go aside."""
    node = level_of(spec, level)[name]
    path = key_path((*level, name))
    if is_agent(node):
        routing: AgentRouting | None = setting_of(spec, node, "routing")
        if routing is not None:
            own = node.routing is not None
            start = (*(path if own else agent_path(spec, path, node) or path), "routing")
            return _place_routes(routes_to(routing.routes, routing.fallback), start)
    return _place_routes(node.own_routes(), path)


def _place_routes(routes: Iterable[OwnRoute], path: KeyPath) -> list[Leads]:
    return [Leads(each.label, each.target, (*path, *each.at)) for each in routes]


def labels_of(spec: FlowSpec, name: str, level: NodePath = ()) -> frozenset[str]:
    """Every label that a node can take; none where it has no routes."""
    return frozenset(each.label for each in routes_of(spec, name, level))
