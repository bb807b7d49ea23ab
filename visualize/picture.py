"""Makes the data of a picture: of a flow's graph, or of a run folded from its events.

It knows nothing of DOT, Mermaid or SVG. A run is drawn from its events alone: the first one holds
the skeleton of the graph. Events that make no sense (of unknown nodes, out of order) are left out.
Containers are nodes that others have as their parent; what runs many times is drawn once, with counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from flowengine.core import EvaluationResult, LLMResult, NodeStatus, RoutingResult, RunStatus, SkipCause
from flowengine.engine import Event, Graph
from visualize.edge_states import EdgeState, critical_path, edges_of
from visualize.progress import SETTLED, NodeRow, Progress, UsageTotals, fold_events
from visualize.skeleton import Site, Skeleton

LARGE: Final = 40
"""Nodes in a container's body from which on it is drawn closed."""


Risk = Literal["", "passes", "source", "effect"]


class PictureNode(NamedTuple):
    """One node; `status` is None in the picture of a flow."""

    id: str
    """Path of its site: `polish`, `polish.judge`."""
    kind: str
    status: NodeStatus | None = None
    cause: SkipCause | None = None
    """Why it was skipped."""
    seconds: float | None = None
    """All times together, where it ran several times."""
    tokens: int = 0
    cost_usd: float | None = None
    """None where nothing was asked, or where a price is unknown."""
    calls: int = 0
    """Model calls."""
    unpriced: int = 0
    """Model calls that were answered and are of unknown price."""
    attempts: int = 1
    error: str | None = None
    route: str | None = None
    critical: bool = False
    """On the longest path in time."""
    parent: str | None = None
    """Id of the container that it is inside."""
    label: str = ""
    """What it is called where it is drawn; empty: as its id."""
    tally: tuple[tuple[NodeStatus, int], ...] = ()
    """How many times it has which status, where it ran several times."""
    unit_count: int = 0
    """Items or rounds that began; of a map or a loop."""
    total: int | None = None
    """Items of a map, or rounds that a loop may have, where that is known."""
    hidden: int = 0
    """Nodes of its body that are not drawn."""
    remark: str = ""
    """What else is said of its kind: that its calls wait for a person, or that it ends early."""
    risk: Risk = ""
    """What it is on a path of untrusted text to an effect."""
    model: str = ""
    """The model that it asked last, or is to ask."""
    description: str = ""
    """What its definition says of it."""
    details: tuple[str, ...] = ()
    """What a run of it found: a score, a confidence, the drafts it took, the question and who answered."""
    place: tuple[str, int, int] | None = None
    """File, line and column of its definition."""
    progress: tuple[float, float] | None = None
    """Shares of a map's items that have ended and failed, by the nodes in them; None where that is not known."""

    @property
    def name(self) -> str:
        return self.label or self.id


class PictureEdge(NamedTuple):
    source: str
    target: str
    labels: tuple[str, ...] = ()
    """Routes that open it; none for a plain edge."""
    state: EdgeState = "declared"
    critical: bool = False
    moving: bool = False
    """Whether what its source gave is being worked on at its target now."""


class RunHead(NamedTuple):
    """The header of a run."""

    run_id: str
    status: RunStatus
    seconds: float | None
    tokens: int
    cost_usd: float
    unpriced: int
    error: str | None = None


class Picture(NamedTuple):
    """Nodes in topological order (each container before its body), edges, and the head of a run."""

    name: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]
    run: RunHead | None = None

    def bodies(self) -> dict[str | None, list[PictureNode]]:
        """Container (None: the top) → the nodes directly in it, in an order in which containers come before theirs."""
        bodies: dict[str | None, list[PictureNode]] = {None: []}
        for node in self.nodes:
            bodies.setdefault(node.parent, []).append(node)
        return bodies


class HasPicture(Protocol):
    """Something that can be drawn, as a flow or a run."""

    def picture(self) -> Picture: ...


def picture_of_flow(name: str, graph: Graph) -> Picture:
    """The picture of a flow's top level, from its graph.

    >>> from flowengine.engine.graph import Edge, Vertex
    >>> picture_of_flow("f", Graph([Vertex("a"), Vertex("b")], [Edge("a", "b", "yes")])).edges[0].labels
    ('yes',)
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for source, target, route in graph.edges:
        routes = labels.setdefault((source, target), [])
        if route is not None:
            routes.append(route)
    nodes = tuple(PictureNode(vertex.id, vertex.kind) for vertex in graph.vertices)
    return Picture(name, nodes, tuple(PictureEdge(*ends, tuple(each)) for ends, each in labels.items()))


def picture_of_skeleton(name: str, graph: Mapping[str, Any]) -> Picture:
    """The picture of a flow with the bodies of its containers, from what a run's first event would hold."""
    skeleton = Skeleton(graph)
    edges = [
        PictureEdge(level.sites[source].path, level.sites[target].path, labels)
        for _, level in skeleton.levels()
        for source, target, labels in level.edges
    ]
    return Picture(name, tuple(_make_unrun_node(site) for site in skeleton.sites.values()), tuple(edges))


def picture_of_run(events: Sequence[Event]) -> Picture:
    """The picture of a run, finished or not, from its journal."""
    return picture_of_progress(fold_events(events))


def picture_of_progress(progress: Progress) -> Picture:
    """The picture of a run from its fold."""
    critical = critical_path(progress)
    nodes: dict[str, PictureNode] = {}
    for site in progress.skeleton.sites.values():  # Each container before its body.
        node = _make_node(site, progress.times.get(site.path, ()), critical.rows)
        around = None if site.parent is None else nodes[site.parent].status
        nodes[site.path] = node._replace(status="skipped") if node.status == "pending" and around in SETTLED else node
    edges = tuple(
        PictureEdge(*each, moving=each.state == "taken" and nodes[each.target].status == "running")
        for each in edges_of(progress, critical)
    )
    return Picture(progress.flow or "run", tuple(nodes.values()), edges, _make_head(progress))


def close_containers(picture: Picture, most: int) -> Picture:
    """The picture with the bodies of large containers left out; of all of them, where it has over `most` nodes."""
    inside = {node.id: node.parent for node in picture.nodes}
    sizes: Counter[str] = Counter()
    for node in picture.nodes:
        parent = node.parent
        while parent is not None:
            sizes[parent] += 1
            parent = inside.get(parent)
    limit = 0 if len(picture.nodes) > most else LARGE
    shut = {name for name, size in sizes.items() if size > limit}
    hidden: set[str] = set()
    for node in picture.nodes:  # Containers come before what is in them.
        if node.parent in shut or node.parent in hidden:
            hidden.add(node.id)
    nodes = tuple(
        node._replace(hidden=sizes[node.id]) if node.id in shut else node
        for node in picture.nodes
        if node.id not in hidden
    )
    edges = tuple(each for each in picture.edges if each.source not in hidden and each.target not in hidden)
    return picture._replace(nodes=nodes, edges=edges)


def _make_unrun_node(site: Site) -> PictureNode:
    return PictureNode(site.path, site.kind, parent=site.parent, label=_make_label(site), model=site.model)


def _make_label(site: Site) -> str:
    return "" if site.parent is None else site.id


def _make_node(site: Site, rows: Sequence[NodeRow], critical: frozenset[str]) -> PictureNode:
    usage = _sum_usage(rows)
    last = rows[-1] if rows else NodeRow(site.path, site.kind)
    spent = [max(0.0, each) for each in (row.seconds() for row in rows) if each is not None]  # Whatever a clock did.
    failed = next((row.error for row in reversed(rows) if row.error is not None), None)
    return _make_unrun_node(site)._replace(
        status=_combine_statuses(rows),
        cause=last.cause,
        seconds=sum(spent) if spent else None,
        tokens=usage.known_tokens,
        cost_usd=usage.known_cost if usage.priced else None,
        calls=usage.calls,
        unpriced=max(0, usage.answered - usage.priced),
        attempts=max((row.retries for row in rows), default=0) + 1,
        error=None if failed is None else failed.message,
        route=None if last.result is None or len(rows) > 1 else last.result.route,
        critical=any(row.id in critical for row in rows),
        tally=tuple(Counter(row.status for row in rows).items()) if len(rows) > 1 else (),
        unit_count=sum(len(row.units) for row in rows),
        total=last.total if len(rows) == 1 else None,
        model=last.model or site.model,
        progress=_measure_progress(site, last) if len(rows) == 1 else None,
        details=tuple(_list_details(last)),
    )


def _list_details(row: NodeRow) -> Iterator[str]:
    """Yields what the row found; a value of an unknown class is passed over."""
    result = row.result
    evaluation = None if result is None else result.evaluation
    if isinstance(evaluation, EvaluationResult):
        yield f"score {evaluation.score:.2f}"
    answer = None if result is None else result.result
    if isinstance(answer, LLMResult) and answer.attempts > 1:
        yield f"{answer.attempts} drafts"
    routing = None if result is None else result.routing
    if isinstance(routing, RoutingResult):
        yield f"confidence {routing.confidence:.2f}"
    if row.question is not None:
        yield f"“{row.question.message}”"
    if row.answered is not None:
        yield f"{row.answered.by or 'somebody'} answered {row.answered.choice}"


def _measure_progress(site: Site, row: NodeRow) -> tuple[float, float] | None:
    """Measures the progress of a map's items, by the nodes directly in them."""
    if site.kind != "map" or site.body is None or not row.total or not site.body.sites:
        return None
    whole = row.total * len(site.body.sites)
    ended = sum(row.inside[status] for status in SETTLED)
    return min(1.0, ended / whole), min(1.0, row.inside["failed"] / whole)


def _sum_usage(rows: Iterable[NodeRow]) -> UsageTotals:
    total = UsageTotals()
    for row in rows:
        total.join(row.usage)
    return total


STATUS_ORDER: Final[tuple[NodeStatus, ...]] = (
    *("running", "waiting", "failed", "succeeded", "cancelled", "skipped", "pending"),
)
"""The order of statuses: the first that any of the times of a node has is shown."""


def _combine_statuses(rows: Sequence[NodeRow]) -> NodeStatus:
    statuses: set[NodeStatus] = {row.status for row in rows} or {"pending"}
    return min(statuses, key=STATUS_ORDER.index)


def _make_head(progress: Progress) -> RunHead:
    usage, finished = progress.usage, progress.finished
    seconds = progress.seconds(progress.last_at)
    return RunHead(
        "" if progress.started is None else progress.started.run_id,
        progress.status,
        None if seconds is None else max(0.0, seconds),
        usage.known_tokens,
        usage.known_cost,
        max(0, usage.answered - usage.priced),
        None if finished is None or finished.error is None else finished.error.message,
    )
