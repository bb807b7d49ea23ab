"""Reads the shape of a run from its first event: levels of nodes and edges, and which of them a path means.

A path names one time that a node ran (`polish.round[2].judge`); a site is the node itself, as it is drawn
(`polish.judge`). Whatever in a journal's graph makes no sense is left out; a path that leads nowhere is a
site of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

_UNITS: Final[Mapping[str, re.Pattern[str]]] = {
    "map": re.compile(r"\[(\d{1,9})\]\."),
    "loop": re.compile(r"\.round\[(\d{1,9})\]\."),
    "subflow": re.compile(r"\."),
}
"""The text between a container's path and that of a node in it."""


class Site(NamedTuple):
    """A node as it is drawn, whatever number of times it runs."""

    path: str
    """Ids from the top, with dots between them; no indices."""
    id: str
    kind: str
    parent: str | None = None
    """Path of the container's site."""
    body: SkeletonLevel | None = None
    model: str = ""
    """The model that its definition names."""


class Spot(NamedTuple):
    """The target of a path."""

    site: str
    container: str | None = None
    """Path (with indices) of the container that it ran in; None at the top."""
    unit: str = ""
    """The beginning of the paths of all nodes that ran in the same item or round."""
    number: int | None = None
    """The number of the item or round; None at the top and in a subflow."""


class SkeletonLevel:
    """Nodes in topological order and the edges between them."""

    def __init__(self, graph: Mapping[str, Any], parent: str | None = None) -> None:
        most = graph.get("most")
        self.most = most if isinstance(most, int) else None
        """How often it runs at most; None where that is not known."""
        models: object = graph.get("models")
        names: Mapping[Any, Any] = cast("Mapping[Any, Any]", models) if isinstance(models, Mapping) else {}
        self.models = {str(key): str(value) for key, value in names.items()}
        """Id of a node → the model that its definition names."""
        self.sites: dict[str, Site] = {}
        """Id of a node → its site."""
        for name, kind, *more in _read_rows(graph.get("nodes")):
            path = name if parent is None else f"{parent}.{name}"
            has_body = bool(more) and kind in _UNITS and isinstance(more[0], Mapping)
            body = SkeletonLevel(cast("Mapping[str, Any]", more[0]), path) if has_body else None
            self.sites[name] = Site(path, name, kind, parent, body, self.models.get(name, ""))
        self.edges: list[tuple[str, str, tuple[str, ...]]] = [
            (source, target, tuple(map(str, labels[0])) if labels and _is_list(labels[0]) else ())
            for source, target, *labels in _read_rows(graph.get("edges"))
            if source in self.sites and target in self.sites
        ]
        """Source, target and the labels that open the edge; by ids."""
        inside = (site for site in self.sites.values() if site.body is not None)
        self._containers = sorted(inside, key=lambda site: -len(site.id))

    @cached_property
    def edges_at(self) -> Mapping[str, Sequence[tuple[str, str, tuple[str, ...]]]]:
        """Id of a node → the edges that begin or end at it."""
        edges: defaultdict[str, list[tuple[str, str, tuple[str, ...]]]] = defaultdict(list)
        for edge in self.edges:
            for end in edge[:2]:
                edges[end].append(edge)
        return edges

    @cached_property
    def parents(self) -> Mapping[str, Sequence[str]]:
        """Id of a node → the nodes with an edge to it."""
        parents: defaultdict[str, list[str]] = defaultdict(list)
        for source, target, _ in self.edges:
            parents[target].append(source)
        return parents

    def walk(self) -> Iterator[Site]:
        """All sites, each container before its body."""
        for site in self.sites.values():
            yield site
            if site.body is not None:
                yield from site.body.walk()

    def to_plain(self) -> dict[str, Any]:
        """The level as a journal's graph has it, without what made no sense there."""
        nodes = [[s.id, s.kind] if s.body is None else [s.id, s.kind, s.body.to_plain()] for s in self.sites.values()]
        edges = [[source, target, list(labels)] for source, target, labels in self.edges]
        more = {"most": self.most, "models": self.models or None}
        return {"nodes": nodes, "edges": edges, **{key: each for key, each in more.items() if each is not None}}

    def spot(self, path: str, prefix: str = "") -> Spot | None:
        """Resolves the rest of a path in this level; `prefix` is the part before it."""
        if path in self.sites:
            return Spot(self.sites[path].path)
        for site in self._containers:
            between = _UNITS[site.kind].match(path, len(site.id)) if path.startswith(site.id) else None
            if between is None or site.body is None:
                continue
            unit = prefix + path[: between.end()]
            spot = site.body.spot(path[between.end() :], unit)
            if spot is not None:
                number = int(between[1]) if between.re.groups else None
                return spot if spot.container is not None else Spot(spot.site, prefix + site.id, unit, number)
        return None


class Skeleton:
    """All levels of a run's graph.

    >>> body = {"nodes": [["judge", "evaluation"]], "edges": []}
    >>> Skeleton({"nodes": [["polish", "loop", body]], "edges": []}).spot("polish.round[2].judge")
    Spot(site='polish.judge', container='polish', unit='polish.round[2].', number=2)
    """

    def __init__(self, graph: Mapping[str, Any]) -> None:
        self.top = SkeletonLevel(graph)
        self.sites: dict[str, Site] = {}
        """Path → site, each container before its body."""
        for site in self.top.walk():
            self.sites.setdefault(site.path, site)

    def spot(self, path: str) -> Spot:
        return self.top.spot(path) or Spot(path)

    def level_of(self, site: str) -> SkeletonLevel:
        """The level that a site stands in: the top, or the body of a container."""
        here = self.sites.get(site)
        around = None if here is None or here.parent is None else self.sites[here.parent]
        return self.top if around is None or around.body is None else around.body

    def levels(self) -> Iterator[tuple[Site | None, SkeletonLevel]]:
        """Every level with the container that it is the body of."""
        yield None, self.top
        for site in self.sites.values():
            if site.body is not None:
                yield site, site.body


def _read_rows(value: object) -> list[Sequence[Any]]:
    """The lists in a value of unknown content that begin with two texts."""
    if not _is_list(value):
        return []
    rows = (row for row in cast("Sequence[Any]", value) if _is_list(row))
    return [row for row in rows if len(row) >= 2 and isinstance(row[0], str) and isinstance(row[1], str)]


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))
