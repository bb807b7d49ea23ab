"""Makes a networkx graph of a picture, for its algorithms and for what reads node-link JSON.

The graph is fresh each time and belongs to the caller. Every attribute is a JSON value.
networkx is imported only here and where a flow's risks are looked for: its import takes a tenth of a second, half
a second without bytecode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from visualize.picture import Picture, PictureEdge, PictureNode

if TYPE_CHECKING:
    import networkx as nx


def make_network(picture: Picture) -> nx.MultiDiGraph[Any]:
    """The picture as a `networkx.MultiDiGraph`.

    A node is named by its path (`polish.judge`). Its attributes: `kind`, `parent` (the path of the loop, map or subflow
    that it is inside; None at the top), `description`, `file`, `line`, `column`, and of a run also `status`, `seconds`,
    `tokens`, `cost_usd`, `critical`. An edge's key is its route (empty for a plain edge), and its attributes are
    `route` (None for a plain edge), `state` and `critical`.

    >>> nodes = PictureNode("a", "agent"), PictureNode("b", "agent")
    >>> graph = make_network(Picture("f", nodes, (PictureEdge("a", "b"),)))
    >>> list(graph.edges(data="state"))
    [('a', 'b', 'declared')]
    """
    import networkx

    graph: nx.MultiDiGraph[Any] = networkx.MultiDiGraph(name=picture.name, **_describe_run(picture))
    for node in picture.nodes:
        graph.add_node(node.id, **_describe_node(node, has_run=picture.run is not None))
    for edge in picture.edges:
        for route in edge.labels or (None,):
            graph.add_edge(edge.source, edge.target, key=route or "", **_describe_edge(edge, route))
    return graph


def _describe_run(picture: Picture) -> Mapping[str, Any]:
    run = picture.run
    return {} if run is None else {"run_id": run.run_id, "status": run.status, "seconds": run.seconds}


def _describe_node(node: PictureNode, *, has_run: bool) -> Mapping[str, Any]:
    file, line, column = node.place or (None, None, None)
    about = {"kind": node.kind, "parent": node.parent, "description": node.description}
    place = {"file": file, "line": line, "column": column}
    if not has_run:
        return about | place
    spent = {"seconds": node.seconds, "tokens": node.tokens, "cost_usd": node.cost_usd}
    return about | place | {"status": node.status, **spent, "critical": node.critical}


def _describe_edge(edge: PictureEdge, route: str | None) -> Mapping[str, Any]:
    return {"route": route, "state": edge.state, "critical": edge.critical}
