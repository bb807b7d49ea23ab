"""What a picture shows, as data: a flow's graph, or a run folded from its events.

It knows nothing of DOT, Mermaid or SVG. A run is drawn from its events alone: the first one holds
the skeleton of the graph. Events that make no sense (of unknown nodes, out of order) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from flowengine.context import NodeStatus, RunStatus
from flowengine.engine.events import (
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from flowengine.engine.graph import ON_ERROR, Graph
from flowengine.records import ModelCall, Retry

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


@dataclass(slots=True)
class _Seen:
    """What the events so far say of one node."""

    kind: str
    status: NodeStatus = "pending"
    cause: str | None = None
    started: float | None = None
    ended: float | None = None
    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    retries: int = 0
    error: str | None = None
    route: str | None = None


def picture_of_run(events: Sequence[Event]) -> Picture:
    """The picture of a run, finished or not, from its journal."""
    seen: dict[str, _Seen] = {}
    begun, edges, finished = _first(events, seen)
    for event in events:
        if isinstance(event, RunFinished):
            finished = event
        elif isinstance(event, RunResumed):
            finished = None
        elif not isinstance(event, RunStarted) and event.node in seen:
            _fold(seen[event.node], event)
    drawn = tuple(_edge(seen, *each) for each in edges)
    critical = _critical(seen, drawn)
    on_path = set(pairwise(critical))
    nodes = tuple(_node(name, each, name in critical) for name, each in seen.items())
    marked = tuple(each._replace(critical=(each.source, each.target) in on_path) for each in drawn)
    name = begun.flow if begun else "run"
    return Picture(name, nodes, marked, _head(begun, finished, events, nodes))


_Edges = list[tuple[str, str, tuple[str, ...]]]


def _first(events: Sequence[Event], seen: dict[str, _Seen]) -> tuple[RunStarted | None, _Edges, RunFinished | None]:
    """The run's start, with its skeleton read into `seen`."""
    begun = next((event for event in events if isinstance(event, RunStarted)), None)
    if begun is None:
        return None, [], None
    skeleton: Mapping[str, Any] = begun.graph
    for name, kind in skeleton.get("nodes", ()):
        seen[name] = _Seen(kind)
    edges = [(source, target, tuple(labels)) for source, target, labels in skeleton.get("edges", ())]
    return begun, [each for each in edges if each[0] in seen and each[1] in seen], None


def _fold(node: _Seen, event: Event) -> None:
    match event:
        case NodeStarted():
            node.status, node.started, node.ended = "running", event.at, None
            node.error = node.cause = node.route = None
        case NodeFinished():
            node.status, node.ended, node.route = "succeeded", event.at, event.result.route
        case NodeFailed():
            node.status, node.ended, node.error = "failed", event.at, event.error.message
        case NodeSkipped():
            node.status, node.cause = "skipped", event.cause
        case NodeCancelled():
            node.status, node.ended = "cancelled", event.at
        case NodeRecorded():
            if isinstance(event.record, ModelCall):
                node.calls.append(event.record)
            elif isinstance(event.record, Retry):
                node.retries += 1
        case _:
            pass


def _node(name: str, seen: _Seen, critical: bool) -> PictureNode:
    costs = [call.cost_usd for call in seen.calls]
    priced = [cost for cost in costs if cost is not None]
    return PictureNode(
        name,
        seen.kind,
        seen.status,
        seen.cause,
        None if seen.started is None or seen.ended is None else max(0.0, seen.ended - seen.started),
        sum((call.prompt_tokens or 0) + (call.completion_tokens or 0) for call in seen.calls),
        sum(priced) if priced else None,
        len(seen.calls),
        len(costs) - len(priced),
        seen.retries + 1,
        seen.error,
        seen.route,
        critical,
    )


def _edge(seen: Mapping[str, _Seen], source: str, target: str, labels: tuple[str, ...]) -> PictureEdge:
    """An edge is taken when its source let its target run; it is undecided while either may still change."""
    before, after = seen[source], seen[target]
    if before.status in ("pending", "running", "waiting") or after.status == "pending":
        return PictureEdge(source, target, labels, "undecided")
    opened = before.status == "succeeded" and (not labels or before.route in labels)
    handled = before.status == "failed" and ON_ERROR in labels
    taken = (opened or handled) and after.status in RAN
    return PictureEdge(source, target, labels, "taken" if taken else "not_taken")


def _critical(seen: Mapping[str, _Seen], edges: Iterable[PictureEdge]) -> list[str]:
    """From the node that ended last, back along the parents that ended last."""
    ended = {name: node.ended for name, node in seen.items() if node.ended is not None and node.started is not None}
    if not ended:
        return []
    parents: dict[str, list[str]] = {}
    for edge in edges:
        if edge.state == "taken" and edge.source in ended:
            parents.setdefault(edge.target, []).append(edge.source)
    path = [max(ended, key=lambda name: ended[name] or 0.0)]
    while len(path) <= len(seen) and path[-1] in parents:
        path.append(max(parents[path[-1]], key=lambda name: ended[name] or 0.0))
    return path[::-1]


def _head(
    begun: RunStarted | None, finished: RunFinished | None, events: Sequence[Event], nodes: Iterable[PictureNode]
) -> RunHead:
    listed = list(nodes)
    last = events[-1].at if events else None
    return RunHead(
        begun.run_id if begun else "",
        finished.status if finished else "running",
        None if begun is None or last is None else max(0.0, last - begun.at),
        sum(node.tokens for node in listed),
        sum(node.cost_usd or 0.0 for node in listed),
        sum(node.unpriced for node in listed),
        finished.error.message if finished and finished.error else None,
    )
