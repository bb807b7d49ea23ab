"""The levels of a flow: its own nodes, and the nodes inside each map and each loop.

A level is known by the ids of the containers round it, from the outside; the flow's own level is `()`.
What is inside a subflow belongs to another file and is no level of this one.

Source of the rules: rule 10 of the flow format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from flowengine.spec.positions import KeyPath
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import LoopNodeSpec, MapNodeSpec, NodeSpec

__all__ = ["Level", "NodePath", "home_of", "key_path", "level_of", "levels_of", "node_at", "nodes_of", "places_of"]

NodePath: TypeAlias = tuple[str, ...]
"""A node (or the container that a level is inside), by its own id and those of the containers round it."""


class Level(NamedTuple):
    """Nodes that are ordered among themselves."""

    path: NodePath
    nodes: Mapping[str, NodeSpec]
    holder: MapNodeSpec | LoopNodeSpec | None = None
    """The container whose body this is."""


def levels_of(spec: FlowSpec) -> Mapping[NodePath, Level]:
    """Every level, a container's before those inside it."""
    return spec.remembered("levels", lambda each: {level.path: level for level in _levels(Level((), each.nodes))})


def _levels(level: Level) -> Iterator[Level]:
    yield level
    for name, node in level.nodes.items():
        if isinstance(node, MapNodeSpec | LoopNodeSpec):
            yield from _levels(Level((*level.path, name), node.nodes, node))


def level_of(spec: FlowSpec, path: NodePath = ()) -> Mapping[str, NodeSpec]:
    """The nodes of one level, by id."""
    return levels_of(spec)[path].nodes


def nodes_of(spec: FlowSpec) -> Iterator[tuple[NodePath, NodeSpec]]:
    """Every node of every level."""
    for level in levels_of(spec).values():
        for name, node in level.nodes.items():
            yield (*level.path, name), node


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
    """Where a node stands in the file.

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
