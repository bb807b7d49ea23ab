"""Places everything in a picture: each container's body is laid out first, and is then a box among boxes.

It knows what is inside what, sizes and shapes. It reads no run and writes no SVG document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from flowengine.core import TRAITS
from visualize.picture import Picture, PictureNode

# --- A layered layout after Sugiyama


class Spacing(NamedTuple):
    """Distances in pixels, and bounds."""

    in_row: int = 24
    """Boxes in one row, at most."""
    boxes: float = 24.0
    """The gap between two boxes of a row."""
    lane: float = 14.0
    """Width that an edge takes where it passes a row."""
    rows: float = 52.0
    """The gap between two rows."""
    straight: float = 40.0
    """The way from a box to the border of its row from which on an edge runs straight there, beside what is higher."""
    sweeps: int = 4
    bends: int = 40_000
    """Bends in all edges together; beyond it long edges are straight."""


SPACING: Final = Spacing()

Point = tuple[float, float]


class Box(NamedTuple):
    """Centre and size, in pixels."""

    x: float
    y: float
    width: float
    height: float


class Layout(NamedTuple):
    boxes: list[Box]
    paths: list[list[Point]]
    """One an edge: from the bottom of its source, through its bends, to the top of its target."""
    width: float
    height: float


def place_boxes(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Places boxes of these sizes; `edges` are pairs of their numbers (those that close a cycle are only drawn).

    >>> layout = place_boxes([(80, 30), (80, 30)], [(0, 1)])
    >>> layout.boxes[0].y < layout.boxes[1].y
    True
    """
    rows_of = _assign_rows(_assign_ranks(len(sizes), edges))
    grid = _Grid(sizes, rows_of, edges)
    for sweep in range(SPACING.sweeps):
        grid.order(downwards=sweep % 2 == 0)
    grid.place()
    return grid.layout()


def _assign_ranks(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Longest-path ranks; a node on a cycle keeps the rank that it has when nothing else is left."""
    children: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for source, target in edges:
        if source != target:
            children[source].append(target)
            waiting[target] += 1
    ranks = [0] * count
    ready = [node for node in range(count) if not waiting[node]]
    for node in ready:
        for child in children[node]:
            ranks[child] = max(ranks[child], ranks[node] + 1)
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return ranks


def _assign_rows(ranks: Sequence[int]) -> list[int]:
    """Node → row; a rank of many nodes takes several rows."""
    members: dict[int, list[int]] = {}
    for node, rank in enumerate(ranks):
        members.setdefault(rank, []).append(node)
    rows = [0] * len(ranks)
    row = 0
    for rank in sorted(members):
        for at, node in enumerate(members[rank]):
            rows[node] = row + at // SPACING.in_row
        row += (len(members[rank]) - 1) // SPACING.in_row + 1
    return rows


class _Grid:
    """Boxes and bends in rows. Numbers from `len(sizes)` on are bends."""

    def __init__(
        self, sizes: Sequence[tuple[float, float]], row_of: list[int], edges: Sequence[tuple[int, int]]
    ) -> None:
        self._sizes = sizes
        self._row_of = row_of
        self._edges = edges
        self._widths = [width for width, _ in sizes]
        self._above: list[list[int]] = [[] for _ in sizes]
        self._below: list[list[int]] = [[] for _ in sizes]
        self._chains = self._route_edges(edges)
        self._rows: list[list[int]] = [[] for _ in range(max(row_of, default=-1) + 1)]
        for item, row in enumerate(self._row_of):
            self._rows[row].append(item)
        self._x = [0.0] * len(self._row_of)

    def _route_edges(self, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Each edge as the items that it passes, bends included."""
        spans = [self._row_of[target] - self._row_of[source] - 1 for source, target in edges]
        bent = sum(span for span in spans if span > 0) <= SPACING.bends
        chains: list[list[int]] = []
        for (source, target), span in zip(edges, spans, strict=True):
            chain = [source]
            chain.extend(self._bend(self._row_of[source] + 1 + step) for step in range(span if bent else 0))
            chain.append(target)
            for upper, lower in pairwise(chain):
                if self._row_of[upper] < self._row_of[lower]:
                    self._below[upper].append(lower)
                    self._above[lower].append(upper)
            chains.append(chain)
        return chains

    def _bend(self, row: int) -> int:
        self._row_of.append(row)
        self._widths.append(SPACING.lane)
        self._above.append([])
        self._below.append([])
        return len(self._row_of) - 1

    def order(self, downwards: bool) -> None:
        """One sweep: each row sorted by the mean place of its neighbours in the rows that were sorted before."""
        neighbours = self._above if downwards else self._below
        place: dict[int, float] = {}
        for row in self._rows if downwards else reversed(self._rows):
            middle = (len(row) - 1) / 2
            for at, item in enumerate(row):
                places = [place[each] for each in neighbours[item] if each in place]
                place[item] = sum(places) / len(places) if places else at - middle
            row.sort(key=place.__getitem__)
            for at, item in enumerate(row):
                place[item] = at - middle

    def place(self) -> None:
        """Rows packed and centred, then moved towards the boxes above and below."""
        for row in self._rows:
            self._spread(row, [0.0] * len(row))
        for _ in range(SPACING.sweeps):
            for row in self._rows:
                self._spread(row, [self._wish(item, self._above) for item in row])
            for row in reversed(self._rows):
                self._spread(row, [self._wish(item, self._below) for item in row])

    def _wish(self, item: int, neighbours: list[list[int]]) -> float:
        near = neighbours[item]
        return sum(self._x[each] for each in near) / len(near) if near else self._x[item]

    def _spread(self, row: list[int], wishes: list[float]) -> None:
        """Places boxes as near to the wishes as the boxes' widths allow: the mean of pushing right and pushing left."""
        widths = [self._widths[item] for item in row]
        right, left = wishes[:], wishes[:]
        for at in range(1, len(row)):
            right[at] = max(right[at], right[at - 1] + (widths[at - 1] + widths[at]) / 2 + SPACING.boxes)
        for at in range(len(row) - 2, -1, -1):
            left[at] = min(left[at], left[at + 1] - (widths[at] + widths[at + 1]) / 2 - SPACING.boxes)
        for item, low, high in zip(row, left, right, strict=True):
            self._x[item] = (low + high) / 2

    def layout(self) -> Layout:
        count = len(self._sizes)
        shift = SPACING.boxes - min(
            (x - width / 2 for x, width in zip(self._x, self._widths, strict=True)), default=0.0
        )
        tops: list[float] = []
        heights: list[float] = []
        top = SPACING.boxes
        for row in self._rows:
            height = max((self._sizes[item][1] for item in row if item < count), default=0.0)
            tops.append(top)
            heights.append(height)
            top += height + SPACING.rows
        boxes = [
            Box(self._x[item] + shift, tops[row] + heights[row] / 2, *self._sizes[item])
            for item, row in enumerate(self._row_of[:count])
        ]
        paths = [self._path(chain, boxes, tops, heights, shift) for chain in self._chains]
        widest = max((x + width / 2 for x, width in zip(self._x, self._widths, strict=True)), default=0.0)
        return Layout(boxes, paths, widest + shift + SPACING.boxes, top - SPACING.rows + SPACING.boxes)

    def _path(
        self, chain: list[int], boxes: list[Box], tops: list[float], heights: list[float], shift: float
    ) -> list[Point]:
        first, last = boxes[chain[0]], boxes[chain[-1]]
        begin, end = first.y + first.height / 2, last.y - last.height / 2
        above, top = self._row_of[chain[0]], tops[self._row_of[chain[-1]]]
        bottom = tops[above] + heights[above]
        points = [(first.x, begin), *([(first.x, bottom)] if bottom - begin > SPACING.straight else [])]
        for bend in chain[1:-1]:
            row = self._row_of[bend]
            points += [(self._x[bend] + shift, tops[row]), (self._x[bend] + shift, tops[row] + heights[row])]
        return [*points, *([(last.x, top)] if end - top > SPACING.straight else []), (last.x, end)]


# --- Outlines of nodes

CORNERS: Final = {"hexagon": (12.0, 1 / 3), "diamond": (20.0, 1 / 2), "octagon": (8.0, 1 / 6)}
"""How far a corner is cut: pixels of its width, and the share of its height (a half meets in a point)."""
CORNER_SLACK: Final = {"hexagon": 18.0, "diamond": 18.0}
"""Pixels that a shape's corners take of a line's room."""


def outline(kind: str, box: Box) -> str:
    """The path's data; other kinds than those of flows are rectangles."""
    shape = TRAITS[kind].shape
    left, right = box.x - box.width / 2, box.x + box.width / 2
    top, bottom = box.y - box.height / 2, box.y + box.height / 2
    edge = f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"
    if shape == "rounded":
        return _round_corners(left, top, right, bottom, 9.0)
    if shape in CORNERS:
        inset, share = CORNERS[shape]
        return _cut_corners(left, top, right, bottom, inset, box.height * share)
    if shape == "stack":
        return f"{edge}M{left + 4:.1f} {top:.1f}v-4H{right + 4:.1f}V{bottom - 4:.1f}h-4"
    if shape == "folder":
        return f"{edge}M{left:.1f} {top:.1f}v-5h28l6 5"
    if shape == "house":
        eaves = top + min(9.0, box.height / 4)
        return f"M{left:.1f} {eaves:.1f}L{box.x:.1f} {top:.1f}L{right:.1f} {eaves:.1f}V{bottom:.1f}H{left:.1f}Z"
    return edge


def slack(kind: str) -> float:
    """Pixels that a shape's corners take of a line's room."""
    return CORNER_SLACK.get(TRAITS[kind].shape, 0.0)


def _round_corners(left: float, top: float, right: float, bottom: float, r: float) -> str:
    return (
        f"M{left + r:.1f} {top:.1f}H{right - r:.1f}q{r} 0 {r} {r}V{bottom - r:.1f}q0 {r} -{r} {r}"
        f"H{left + r:.1f}q-{r} 0 -{r} -{r}V{top + r:.1f}q0 -{r} {r} -{r}Z"
    )


def _cut_corners(left: float, top: float, right: float, bottom: float, inset: float, drop: float) -> str:
    corners = [
        (left + inset, top),
        (right - inset, top),
        (right, top + drop),
        (right, bottom - drop),
        (right - inset, bottom),
        (left + inset, bottom),
        (left, bottom - drop),
        (left, top + drop),
    ]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z"


class Arrangement(NamedTuple):
    boxes: dict[str, Box]
    """Node → its place; a container's box is around those of its body, below its own words."""
    paths: list[list[Point]]
    """One an edge of the picture, in the same order."""
    frames: dict[str, float]
    """Container that is drawn open → height of the words above its body."""
    width: float
    height: float


class _Level(NamedTuple):
    members: list[PictureNode]
    edges: list[int]
    layout: Layout


def arrange(picture: Picture, size_of: Callable[[PictureNode], tuple[float, float]]) -> Arrangement:
    """Places the nodes; `size_of` says what a node's own words take."""
    levels = _lay_out_levels(picture, size_of)
    boxes: dict[str, Box] = {}
    paths: list[list[Point]] = [[] for _ in picture.edges]
    frames: dict[str, float] = {}
    todo: list[tuple[str | None, float, float]] = [(None, 0.0, 0.0)]
    while todo:
        parent, left, top = todo.pop()
        members, edges, layout = levels[parent]
        for number, points in zip(edges, layout.paths, strict=True):
            paths[number] = [(x + left, y + top) for x, y in points]
        for node, (x, y, width, height) in zip(members, layout.boxes, strict=True):
            boxes[node.id] = Box(x + left, y + top, width, height)
            if node.id in levels:
                inner = levels[node.id].layout
                frames[node.id] = height - inner.height
                todo.append((node.id, x + left - inner.width / 2, y + top + height / 2 - inner.height))
    whole = levels[None].layout
    return Arrangement(boxes, paths, frames, whole.width, whole.height)


def _lay_out_levels(
    picture: Picture, size_of: Callable[[PictureNode], tuple[float, float]]
) -> dict[str | None, _Level]:
    """Container (None: the top) → its laid out body."""
    members = picture.bodies()
    parents = {node.id: node.parent for node in picture.nodes}
    edges: dict[str | None, list[int]] = {}
    for number, edge in enumerate(picture.edges):
        edges.setdefault(parents[edge.source], []).append(number)
    levels: dict[str | None, _Level] = {}
    for parent in reversed(members):  # Containers come before their bodies in a picture, so bodies come first here.
        sizes: list[tuple[float, float]] = []
        for node in members[parent]:
            width, height = size_of(node)
            if node.id in levels:
                inner = levels[node.id].layout
                width, height = max(width, inner.width), height + inner.height
            sizes.append((width, height))
        places = {node.id: number for number, node in enumerate(members[parent])}
        own = edges.get(parent, [])
        pairs = [(places[picture.edges[each].source], places[picture.edges[each].target]) for each in own]
        levels[parent] = _Level(members[parent], own, place_boxes(sizes, pairs))
    return levels
