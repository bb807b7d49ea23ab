"""Reads the graph of a Dify workflow: its nodes, which contain which, and which run before which.

Dify runs a node when all edges to it are settled and at least one was taken. What follows from that for a value is
answered here: whether a node comes before another, and whether it always does. It knows no node type but those that
begin a level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from flowengine.importers.form import SourcePlace, reach_from

START_TYPES: Final = frozenset(
    {"start", "iteration-start", "loop-start", "trigger-webhook", "trigger-schedule", "trigger-plugin"}
)
_PLAIN: Final = frozenset({"source", "success-branch", "", "None"})


class GraphEdge(NamedTuple):
    """An edge; `handle` is empty where the source takes no choice."""

    source: str
    target: str
    handle: str
    origin: SourcePlace


@dataclass
class DifyNode:
    """One node of the source and where it stands."""

    source: str
    """Its id in the source."""
    type: str
    data: Mapping[str, Any]
    origin: SourcePlace
    parent: str | None = None
    """The iteration or loop that contains it."""
    id: str = ""
    """Its id in the flow; empty where it has no node there."""
    edges: list[GraphEdge] = field(default_factory=list[GraphEdge])
    """The edges that lead to it."""
    begins: bool = False
    """Its level begins with it: it is a start, or the node that an older file names as the first of an iteration."""

    def __post_init__(self) -> None:
        self.begins = self.begins or self.is_start or bool(self.data.get("isIterationStart"))

    @property
    def title(self) -> str:
        return str(self.data.get("title") or self.source)[:80]

    @property
    def is_start(self) -> bool:
        return self.type in START_TYPES


class DifyGraph:
    """The nodes by their ids of the source, in the order of the file."""

    def __init__(self, places: Mapping[str, DifyNode], edges: list[GraphEdge]) -> None:
        self.places = dict(places)
        self.targets: dict[str, list[GraphEdge]] = {}
        self.dropped: list[GraphEdge] = []
        """Edges that lead nowhere, or from one level to another."""
        edge_keys: set[tuple[str, str, str]] = set()
        for edge in edges:
            one, other = self.places.get(edge.source), self.places.get(edge.target)
            if one is None or other is None or one.parent != other.parent or one is other:
                self.dropped.append(edge)
            elif edge[:3] not in edge_keys:
                edge_keys.add(edge[:3])
                self.targets.setdefault(edge.source, []).append(edge)
                other.edges.append(edge)
        self._drop_cycles()
        self._reached: dict[str | None, set[str]] = {}
        self._before: dict[str, set[str]] = {}
        self._certain: set[str] = set()
        for each in self._ordered:
            if each.begins or any(edge.handle == "" and edge.source in self._certain for edge in each.edges):
                self._certain.add(each.source)

    def level(self, parent: str | None) -> list[DifyNode]:
        """The nodes of one level that can run, in the order in which they do."""
        reached = self._reach(parent, None)
        return [each for each in self._ordered if each.parent == parent and each.source in reached]

    def runs(self, place: DifyNode) -> bool:
        """Tells whether anything leads to a node."""
        return place.source in self._reach(place.parent, None)

    def containers_of(self, place: DifyNode) -> Iterator[str]:
        """The nodes that contain it, innermost first."""
        containers: set[str] = set()
        parent = place.parent
        while parent is not None and parent not in containers:
            containers.add(parent)
            yield parent
            parent = self.places[parent].parent if parent in self.places else None

    def anchor(self, place: DifyNode, parent: str | None) -> DifyNode | None:
        """The node at a level that is the place, or contains it."""
        if place.parent == parent:
            return place
        return next(
            (self.places[each] for each in self.containers_of(place) if self.places[each].parent == parent), None
        )

    def is_before(self, place: DifyNode, other: DifyNode) -> bool:
        """Tells whether there is a way from one node to another of its level."""
        return place.source in self._ancestors(other)

    def is_always_before(self, place: DifyNode, other: DifyNode) -> bool:
        """Tells whether the other never runs without it."""
        if self.is_certain(place):
            return True
        return other.source not in self._reach(place.parent, place.source)

    def is_certain(self, place: DifyNode) -> bool:
        """Tells whether it runs whenever its level does."""
        return place.source in self._certain

    def _ancestors(self, place: DifyNode) -> set[str]:
        if place.source not in self._before:
            sources = (edge.source for edge in place.edges)
            self._before[place.source] = reach_from(
                sources, lambda each: (edge.source for edge in self.places[each].edges)
            )
        return self._before[place.source]

    def _reach(self, parent: str | None, without: str | None) -> set[str]:
        key = without if without is not None else f"\0{parent}"
        if key not in self._reached:
            starts = (each.source for each in self.places.values() if each.parent == parent and each.begins)
            self._reached[key] = reach_from(
                starts, lambda each: (edge.target for edge in self.targets.get(each, ())), without
            )
        return self._reached[key]

    def _drop_cycles(self) -> None:
        """Take out edges that lead back, and note the order of the nodes."""
        counts = {each: len(place.edges) for each, place in self.places.items()}
        ready = [each for each, count in counts.items() if count == 0]
        order: list[str] = []
        done: set[str] = set()
        while len(done) < len(counts):
            if not ready:
                stuck = next(each for each in counts if each not in done)
                place = self.places[stuck]
                back = [edge for edge in place.edges if edge.source not in done]
                self.dropped += back
                place.edges = [edge for edge in place.edges if edge.source in done]
                for edge in back:
                    self.targets[edge.source].remove(edge)
                counts[stuck] = 0
                ready = [stuck]
            each = ready.pop(0)
            if each in done:
                continue
            done.add(each)
            order.append(each)
            for edge in self.targets.get(each, []):
                counts[edge.target] -= 1
                if counts[edge.target] == 0:
                    ready.append(edge.target)
        self._ordered = [self.places[each] for each in order]


def plain_handle(handle: object) -> str:
    """The handle of an edge; empty where the source takes no choice."""
    text = "" if handle is None else str(handle)
    return "" if text in _PLAIN else text
