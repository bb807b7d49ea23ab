"""Draws two runs as one graph: each node once, with what became of it in either, and the ways that either took.

Nodes lead to their rows in the page's table. How things look is in the style sheet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from flowengine.core import seconds_text
from visualize.layout import Box, arrange, outline, slack
from visualize.picture import Picture, PictureEdge, PictureNode, close_containers
from visualize.style import LOOKS, cut
from visualize.svg import curve, width_of
from visualize.viewer.html import Markup, whole

_LINE: Final = 15
_NAME: Final = 32
_LEAST: Final = 150.0


def overlay_markup(a: Picture, b: Picture, differing: Mapping[str, str], most: int) -> Markup | None:
    """The graph as an SVG element; None where it has more than `most` nodes. `differing`: site → its row's id."""
    one, other = close_containers(a, most), close_containers(b, most)
    nodes = _unite_nodes(one, other)
    if len(nodes) > most:
        return None
    edges = {edge[:3]: edge for edge in (*one.edges, *other.edges) if edge.source in nodes and edge.target in nodes}
    picture = Picture(b.name, tuple(nodes.values()), tuple(edges.values()))
    sides = ({node.id: node for node in one.nodes}, {node.id: node for node in other.nodes})
    edge_sets = tuple({edge[:3] for edge in each.edges if edge.state == "taken"} for each in (one, other))
    texts = {name: _list_lines(node, [side.get(name) for side in sides]) for name, node in nodes.items()}
    placed = arrange(picture, lambda node: _measure(node, texts[node.id]))
    lines = [
        f'<svg class="graph overlay" role="group" viewBox="0 0 {placed.width:.0f} {placed.height:.0f}" '
        f'width="{placed.width:.0f}" height="{placed.height:.0f}" aria-label="Both runs in one graph">',
        '<defs><marker id="overlay-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z"/></marker></defs>',
    ]

    def box(node: PictureNode) -> str:
        is_in = node.id in sides[0], node.id in sides[1]
        where = _WHERE.get(is_in) or ("differs" if node.id in differing else "same")
        group = _draw_node(node, placed.boxes[node.id], where, texts[node.id], is_frame=node.id in placed.frames)
        row = differing.get(node.id)
        return f'<a href="#{escape(row)}">{group}</a>' if row else group

    lines += [box(node) for node in picture.nodes if node.id in placed.frames]
    for edge, points in zip(picture.edges, placed.paths, strict=True):
        lines += _draw_edge(edge, curve(points), points[-2:], tuple(edge[:3] in each for each in edge_sets))
    lines += [box(node) for node in picture.nodes if node.id not in placed.frames]
    return Markup(whole("\n".join([*lines, "</svg>"])))


def _unite_nodes(one: Picture, other: Picture) -> dict[str, PictureNode]:
    """Nodes of either, each container before what is in it; what is in both comes once."""
    nodes = {node.id: node for node in other.nodes}
    for node in one.nodes:
        if node.id not in nodes and (node.parent is None or node.parent in nodes):
            nodes[node.id] = node
    return nodes


def _draw_node(node: PictureNode, box: Box, where: str, lines: Sequence[str], *, is_frame: bool) -> str:
    shape = outline(node.kind, Box(0.0, 0.0, box.width, box.height))
    top = -box.height / 2 + 17 if is_frame else -_LINE * len(lines) / 2 + 11
    words = "".join(
        f'<text class="{"detail" if number else "name"}" y="{top + _LINE * number:.1f}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<g class="node {where}{" frame" if is_frame else ""}" transform="translate({box.x:.1f} {box.y:.1f})">'
        f'<title>{escape(f"{node.id}: {_WORDS[where]}")}</title><path d="{shape}"/>{words}</g>'
    )


def _list_lines(node: PictureNode, sides: Sequence[PictureNode | None]) -> list[str]:
    states = [_describe(name, each) for name, each in zip("AB", sides, strict=True)]
    return [cut(node.name, _NAME), node.kind.replace("_", " "), *states]


_WHERE: Final = {(True, False): "only-a", (False, True): "only-b"}
_WORDS: Final = {
    "only-a": "only in A",
    "only-b": "only in B",
    "differs": "not the same in both",
    "same": "the same in both",
}


def _describe(name: str, node: PictureNode | None) -> str:
    """Describes the node's status in one of the runs."""
    if node is None:
        return f"{name}: not there"
    look = LOOKS.get(node.status or "pending")
    seconds = "" if node.seconds is None or node.status == "skipped" else f" {seconds_text(node.seconds)}"
    return f"{name} {'' if look is None else look.glyph} {node.status or ''}{seconds}"


def _draw_edge(
    edge: PictureEdge, path: str, ends: Sequence[tuple[float, float]], is_taken: Sequence[bool]
) -> Iterator[str]:
    which = {(True, True): "both", (True, False): "only-a", (False, True): "only-b"}.get(
        (is_taken[0], is_taken[1]), "neither"
    )
    yield f'<path class="edge {which}" d="{path}" marker-end="url(#overlay-arrow)"/>'
    side = {"only-a": "A", "only-b": "B"}.get(which, "")
    words = " ".join(each for each in (" | ".join(edge.labels), f"({side} only)" if side else "") if each)
    if words:
        (x1, y1), (x2, y2) = ends
        yield f'<text class="label" x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 + 3:.1f}">{escape(cut(words, 40))}</text>'


def _measure(node: PictureNode, lines: Sequence[str]) -> tuple[float, float]:
    return max(_LEAST, max(map(width_of, lines)) + 26) + slack(node.kind), _LINE * len(lines) + 14.0
