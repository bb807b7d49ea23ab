"""Writes a picture as the part of a page that our script repaints: boxes of one size, and classes instead of paint.

How a status looks is in the style sheet, as no page may hold styles of its own. What a node's lines say
after each event is worked out again by `graph.js`, from the feed.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from visualize.layout import Arrangement, Box, arrange, outline, slack
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import cut, kind_of, look_of, spending, standing, times, tooltip_of
from visualize.svg import curve, width_of
from visualize.viewer.html import Markup, whole

__all__ = ["COMPACT", "detail", "graph_markup"]

COMPACT: Final = 2_000
"""Above this many nodes a box holds its name and its glyph alone, and edges keep their first look."""

_BUNDLE: Final = 100
"""Edges in one drawing."""
_LINE: Final = 15
_NARROW: Final = 204.0
_WIDE: Final = 300.0
_NAME: Final = 32


def graph_markup(picture: Picture, name: str = "graph") -> Markup:
    """The picture as an SVG element; `name` is its id in the page. Nodes and edges carry their numbers in it."""
    compact = len(picture.nodes) > COMPACT
    placed = arrange(picture, lambda node: _measure_node(node, compact))
    lines = _Drawing(picture, placed, name, compact).lines()
    return Markup(whole("\n".join(lines)))


class _Drawing:
    def __init__(self, picture: Picture, placed: Arrangement, name: str, compact: bool) -> None:
        self._picture = picture
        self._placed = placed
        self._name = escape(name)
        self._compact = compact
        self._numbers = {node.id: number for number, node in enumerate(picture.nodes)}

    def lines(self) -> Iterator[str]:
        placed, name = self._placed, self._name
        yield (
            f'<svg id="{name}" class="graph{" compact" if self._compact else ""}" role="img" '
            f'viewBox="0 0 {placed.width:.0f} {placed.height:.0f}" width="{placed.width:.0f}" '
            f'height="{placed.height:.0f}" aria-label="{_write_text(self._picture.name)}">'
        )
        yield (
            f'<defs><marker id="{name}-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z"/></marker></defs>'
        )
        yield '<g class="scene">'
        for node in self._picture.nodes:
            if node.id in placed.frames:
                yield self._box(node, placed.boxes[node.id], is_frame=True)
        yield from self._edges()
        for node in self._picture.nodes:
            if node.id not in placed.frames:
                yield self._box(node, placed.boxes[node.id])
        yield "</g></svg>"

    def _edges(self) -> Iterator[str]:
        paths = [curve(points) for points in self._placed.paths]
        if self._compact:  # In bundles, each of which the browser can leave out as it is out of sight.
            for begin in range(0, len(paths), _BUNDLE):
                yield f'<path class="edge declared" d="{" ".join(paths[begin : begin + _BUNDLE])}"/>'
            return
        for number, (edge, path, points) in enumerate(zip(self._picture.edges, paths, self._placed.paths, strict=True)):
            yield (
                f'<path class="{_edge_class(edge)}" data-edge="{number}" d="{path}" '
                f'marker-end="url(#{self._name}-arrow)"/>'
            )
            if edge.labels:
                (x1, y1), (x2, y2) = points[-2:]
                words = _write_text(cut(" | ".join(edge.labels), 40))
                yield f'<text class="label" x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 + 3:.1f}">{words}</text>'

    def _box(self, node: PictureNode, box: Box, *, is_frame: bool = False) -> str:
        """A node's group: its place is in its transform, so that all boxes of a kind are drawn alike."""
        shape = outline(node.kind, Box(0.0, 0.0, box.width, box.height))
        hidden = ' display="none"' if self._compact and not is_frame else ""  # Our script shows what is in sight.
        opening = (
            f'<g class="{_node_class(node, is_frame)}" data-node="{self._numbers[node.id]}" '
            f'transform="translate({box.x:.1f} {box.y:.1f})"{hidden}>'
        )
        if self._compact:
            words = _write_text(f"{look_of(node).glyph} {cut(node.name, _NAME)}".strip())
            return f'{opening}<path d="{shape}"/><text class="name" y="4">{words}</text></g>'
        top = -box.height / 2 + 17 if is_frame else -_LINE * _count_lines(node) / 2 + 11
        lines = [("name", cut(node.name, _NAME) + times(node)), ("kind", kind_of(node))]
        if node.status is not None:
            lines += [("standing", standing(node)), ("detail", detail(node))]
        words = "".join(
            f'<text class="{class_}" y="{top + _LINE * number:.1f}">{_write_text(text)}</text>'
            for number, (class_, text) in enumerate(lines)
        )
        return f'{opening}<title>{_write_text(tooltip_of(node))}</title><path d="{shape}"/>{words}</g>'


def _node_class(node: PictureNode, is_frame: bool) -> str:
    classes = ["node", f"s-{node.status or 'plain'}"]
    return " ".join([*classes, *(["frame"] if is_frame else []), *(["critical"] if node.critical else [])])


def _edge_class(edge: PictureEdge) -> str:
    return f"edge {edge.state}{' critical' if edge.critical else ''}"


def detail(node: PictureNode) -> str:
    """The last line: what went wrong, else where it led and what it cost."""
    if node.error:
        return cut(node.error, _NAME)
    said = [f"→ {node.route}"] if node.route else []
    return cut(" · ".join([*said, spending(node)] if node.calls else said), 40)


def _count_lines(node: PictureNode) -> int:
    return 2 if node.status is None else 4


def _measure_node(node: PictureNode, compact: bool) -> tuple[float, float]:
    """Of a node's own words, which change while the run goes on: as much as they may need."""
    name = width_of(cut(node.name, _NAME)) + (70 if node.kind in ("map", "loop") else 26) + slack(node.kind)
    if compact:
        return min(_WIDE, max(70.0, name + 10)), 26.0
    least = 120.0 if node.status is None else _NARROW + 2 * slack(node.kind)
    return min(_WIDE, max(least, name)), _LINE * _count_lines(node) + 14.0


def _write_text(text: str) -> str:
    return escape(text)
