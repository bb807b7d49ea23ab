"""Where everything in a picture goes: each container's body is laid out first, and is then a box among boxes.

It knows what is inside what, and sizes. How a level is laid out is the matter of `layered`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from visualize.layered import Box, Layout, Point, layered
from visualize.picture import Picture, PictureNode

__all__ = ["Arrangement", "arrange"]


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
    levels = _levels(picture, size_of)
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


def _levels(picture: Picture, size_of: Callable[[PictureNode], tuple[float, float]]) -> dict[str | None, _Level]:
    """Container (None: the top) → its laid out body."""
    members: dict[str | None, list[PictureNode]] = {None: []}
    for node in picture.nodes:
        members.setdefault(node.parent, []).append(node)
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
        levels[parent] = _Level(members[parent], own, layered(sizes, pairs))
    return levels
