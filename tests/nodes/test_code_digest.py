"""Digests of what nodes see: equal only where a node could not tell the one from the other."""

from __future__ import annotations

from flowengine.engine.graph import Edge, Graph, Vertex
from flowengine.nodes.code_digest import ViewDigests


def seen(kind: str) -> str:
    graph = Graph([Vertex("a", kind), Vertex("b", "function")], [Edge("a", "b")])
    return ViewDigests(graph, "level", lambda number: "left", {}).digest_view(1)


def test_an_equal_result_of_a_node_of_another_kind_is_another_view():
    assert seen("function") == seen("function")
    assert seen("function") != seen("condition")  # It passes on another `result`.
