"""Holds what map, loop and subflow have in common: nodes inside, compiled once.

Which levels a container enters, and what becomes of them, is each one's own matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, ClassVar, Final, TypeVar, Unpack

from flowengine.core.values import freeze
from flowengine.engine.graph import Graph
from flowengine.engine.levels import LevelBody
from flowengine.errors import DefinitionError, Diagnostic, FlowError, refuse_other_kind
from flowengine.nodes.node import FlowNode, NodeSettings
from flowengine.nodes.policy import wrap_node

__all__ = ["ContainerNode", "compile_level", "every_node", "file_path", "skeleton_of"]

C = TypeVar("C", bound="ContainerNode")

_INDEX: Final = re.compile(r"(\.round)?\[\d+\]")


class ContainerNode(FlowNode):
    """A node that runs other nodes. It holds no slot of the run's concurrency, and is not retried: its nodes are."""

    container: ClassVar[bool] = True
    starts_tasks: ClassVar[bool] = False

    def __init__(self, nodes: Mapping[str, FlowNode], **settings: Unpack[NodeSettings]) -> None:
        super().__init__(**settings)
        if self.retry is not None:
            raise DefinitionError(f"a {self.kind} takes no `retry`: put it on the nodes inside")
        refuse_other_kind(
            nodes, Mapping, f"the nodes of a {self.kind} are a mapping, as {{'draft': node}}", DefinitionError
        )
        if not nodes:
            raise DefinitionError(f"a {self.kind} needs at least one node inside")
        self.definitions = dict(nodes)
        self.body = compile_level(self.definitions)

    def with_nodes(self: C, nodes: Mapping[str, FlowNode]) -> C:
        """The same container round other nodes."""
        changed = copy(self)
        changed.definitions = dict(nodes)
        changed.body = compile_level(changed.definitions)
        return changed

    @property
    def inside(self) -> Mapping[str, FlowNode]:
        return self.definitions

    @property
    def most(self) -> int | None:
        """The maximum number of runs of the body, if known in advance."""
        return None


def compile_level(nodes: Mapping[str, FlowNode]) -> LevelBody:
    """The graph of some nodes, and the nodes with their policies; `FlowError` for ids that cannot stand in paths, for
    unknown targets and for cycles."""
    for name in nodes:
        _check_id(name)
    graph = Graph(
        (node.vertex(name) for name, node in nodes.items()),
        (edge for name, node in nodes.items() for edge in node.edges(name)),
    )
    runnable = {name: wrap_node(node) for name, node in nodes.items()}
    return LevelBody(graph, [runnable[name] for name in graph.ids])


_IN_PATHS: Final = re.compile(r"[.\[\]\x00-\x1f\x7f]")
"""What separates a node from the place of it in the paths of a run."""


def _check_id(name: object) -> None:
    """Refuse an id that could be read as the path of another node."""
    if not isinstance(name, str) or not name or _IN_PATHS.search(name):
        text = f"{name!r:.60} is not a valid id of a node: text without '.', '[', ']' and control characters"
        raise FlowError([Diagnostic("FE206", text)])


def every_node(nodes: Mapping[str, FlowNode], prefix: str = "") -> Iterator[tuple[str, FlowNode]]:
    """All nodes with their paths as the file has them (`polish.judge`), those inside others too.

    >>> from flowengine.nodes.function import FunctionNode
    >>> [path for path, _ in every_node({"a": FunctionNode(print)})]
    ['a']
    """
    for name, node in nodes.items():
        yield f"{prefix}{name}", node
        yield from every_node(node.inside, f"{prefix}{name}.")


def file_path(path: str) -> str:
    """A node's path as the file has it.

    >>> file_path("polish.round[2].judge"), file_path("investigate[3].search")
    ('polish.judge', 'investigate.search')
    """
    return _INDEX.sub("", path)


def skeleton_of(graph: Graph, nodes: Mapping[str, FlowNode]) -> Mapping[str, Any]:
    """Nodes with kinds and edges with labels, level by level, so that a run can be drawn without its flow."""
    labels: dict[tuple[str, str], list[str]] = {}
    for source, target, route in graph.edges:
        opened = labels.setdefault((source, target), [])
        if route is not None:
            opened.append(route)
    drawn: list[list[Any]] = []
    for vertex in graph.vertices:
        node = nodes[vertex.id]
        body = [_body_of(node)] if isinstance(node, ContainerNode) else []
        drawn.append([vertex.id, vertex.kind, *body])
    edges = [[source, target, opened] for (source, target), opened in labels.items()]
    models = {name: node.model_name for name, node in nodes.items() if node.model_name}
    return freeze({"nodes": drawn, "edges": edges, **({"models": models} if models else {})})


def _body_of(node: ContainerNode) -> Mapping[str, Any]:
    shape = skeleton_of(node.body.graph, node.inside)
    return shape if node.most is None else freeze({**shape, "most": node.most})
