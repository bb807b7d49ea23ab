"""What a picture shows, as data: a flow's graph, or a run folded from its events.

It knows nothing of DOT, Mermaid or SVG. A run is drawn from its events alone: the first one holds
the skeleton of the graph. Events that make no sense (of unknown nodes, out of order) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from flowengine.context import NodeStatus, RunStatus
from flowengine.engine.events import Event
from flowengine.engine.graph import ON_ERROR, Graph
from visualize.progress import NodeRow, Progress

__all__ = ["EdgeState", "Picture", "PictureEdge", "PictureNode", "RunHead", "picture_of_flow", "picture_of_run"]

EdgeState = Literal["declared", "taken", "not_taken", "undecided"]

RAN = frozenset({"running", "waiting", "succeeded", "failed", "cancelled"})


class PictureNode(NamedTuple):
    """One node; `status` is None in the picture of a flow."""

    id: str
    kind: str
    status: NodeStatus | None = None
    cause: str | None = None
    """Why it was skipped."""
    seconds: float | None = None
    tokens: int = 0
    cost_usd: float | None = None
    """None where nothing was asked, or where a price is unknown."""
    calls: int = 0
    """Model calls."""
    unpriced: int = 0
    """Model calls of unknown price."""
    attempts: int = 1
    error: str | None = None
    route: str | None = None
    critical: bool = False
    """On the longest path in time."""


class PictureEdge(NamedTuple):
    source: str
    target: str
    labels: tuple[str, ...] = ()
    """Routes that open it; none for a plain edge."""
    state: EdgeState = "declared"
    critical: bool = False


class RunHead(NamedTuple):
    """What is said of the run as a whole."""

    run_id: str
    status: RunStatus
    seconds: float | None
    tokens: int
    cost_usd: float
    unpriced: int
    error: str | None = None


class Picture(NamedTuple):
    """Nodes in topological order, edges, and the run's head where it is the picture of a run."""

    name: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]
    run: RunHead | None = None


def picture_of_flow(name: str, graph: Graph) -> Picture:
    """The picture of a flow that has not run.

    >>> from flowengine.engine.graph import Edge, Vertex
    >>> picture_of_flow("f", Graph([Vertex("a"), Vertex("b")], [Edge("a", "b", "yes")])).edges[0].labels
    ('yes',)
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for source, target, route in graph.edges:
        opened = labels.setdefault((source, target), [])
        if route is not None:
            opened.append(route)
    nodes = tuple(PictureNode(vertex.id, vertex.kind) for vertex in graph.vertices)
    return Picture(name, nodes, tuple(PictureEdge(*ends, tuple(each)) for ends, each in labels.items()))


def picture_of_run(events: Sequence[Event]) -> Picture:
    """The picture of a run, finished or not, from its journal."""
    progress = Progress()
    for event in events:
        progress.apply(event)
    skeleton: Mapping[str, Any] = {} if progress.started is None else progress.started.graph
    rows = {name: progress.nodes[name] for name, _ in skeleton.get("nodes", ())}
    edges = [_edge(rows, *each) for each in skeleton.get("edges", ()) if each[0] in rows and each[1] in rows]
    critical = _critical(rows, edges)
    on_path = set(pairwise(critical))
    nodes = tuple(_node(row, name in critical) for name, row in rows.items())
    marked = tuple(each._replace(critical=(each.source, each.target) in on_path) for each in edges)
    return Picture(progress.flow or "run", nodes, marked, _head(progress))


def _node(row: NodeRow, critical: bool) -> PictureNode:
    usage = row.usage
    return PictureNode(
        row.id,
        row.kind,
        row.status,
        row.cause,
        _seconds(row),
        usage.known_tokens,
        usage.known_cost if usage.priced else None,
        usage.calls,
        usage.calls - usage.priced,
        row.retries + 1,
        None if row.error is None else row.error.message,
        None if row.result is None else row.result.route,
        critical,
    )


def _seconds(row: NodeRow) -> float | None:
    """Never below 0, whatever a clock did."""
    seconds = row.seconds()
    return None if seconds is None else max(0.0, seconds)


def _edge(rows: Mapping[str, NodeRow], source: str, target: str, labels: Sequence[str]) -> PictureEdge:
    """An edge is taken when its source let its target run; it is undecided while either may still change."""
    before, after = rows[source], rows[target]
    if before.status in ("pending", "running", "waiting") or after.status == "pending":
        return PictureEdge(source, target, tuple(labels), "undecided")
    route = None if before.result is None else before.result.route
    opened = before.status == "succeeded" and (not labels or route in labels)
    handled = before.status == "failed" and ON_ERROR in labels
    taken = (opened or handled) and after.status in RAN
    return PictureEdge(source, target, tuple(labels), "taken" if taken else "not_taken")


def _critical(rows: Mapping[str, NodeRow], edges: Iterable[PictureEdge]) -> list[str]:
    """From the node that ended last, back along the parents that ended last."""
    ended = {name: row.ended for name, row in rows.items() if row.ended is not None and row.started is not None}
    if not ended:
        return []
    parents: dict[str, list[str]] = {}
    for edge in edges:
        if edge.state == "taken" and edge.source in ended:
            parents.setdefault(edge.target, []).append(edge.source)
    path = [max(ended, key=lambda name: ended[name] or 0.0)]
    while len(path) <= len(rows) and path[-1] in parents:
        path.append(max(parents[path[-1]], key=lambda name: ended[name] or 0.0))
    return path[::-1]


def _head(progress: Progress) -> RunHead:
    usage, finished = progress.usage, progress.finished
    seconds = progress.seconds(progress.last_at)
    return RunHead(
        "" if progress.started is None else progress.started.run_id,
        progress.status,
        None if seconds is None else max(0.0, seconds),
        usage.known_tokens,
        usage.known_cost,
        usage.calls - usage.priced,
        None if finished is None or finished.error is None else finished.error.message,
    )
