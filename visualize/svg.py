"""A picture as SVG, drawn by ourselves: where `dot` is missing or too slow, and for large graphs.

Self-contained: no script, no font and no request. Every text is escaped. Follows the reader's dark theme.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from visualize.layered import Box, Layout, Point, layered
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import SHAPES, cut, heading, lines_of, look_of, tooltip_of

__all__ = ["to_svg"]

_LINE: Final = 15.0
"""Height of a line of text, in pixels."""
_TITLE: Final = 20.0
_DASHES: Final = {"solid": "", "dashed": ' stroke-dasharray="6 4"', "dotted": ' stroke-dasharray="2 3"'}
_FONT: Final = "Helvetica, Arial, 'Noto Sans', 'Noto Sans CJK JP', sans-serif"

_CSS: Final = f"""
text {{ font: 11px {_FONT}; fill: #1f2a33; text-anchor: middle; }}
.name {{ font-weight: bold; font-size: 12px; }}
.title {{ font-weight: bold; font-size: 15px; text-anchor: start; }}
.page {{ fill: #ffffff; }}
.edge {{ fill: none; stroke: #5b6770; stroke-width: 1.2; }}
.taken {{ stroke: #1f2a33; stroke-width: 1.8; }}
.not_taken {{ stroke: #a9b2b8; stroke-dasharray: 6 4; }}
.undecided {{ stroke: #a9b2b8; stroke-dasharray: 2 3; }}
.critical {{ stroke-width: 3; }}
.label {{ font-size: 10px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }}
marker path {{ fill: context-stroke; }}
@media (prefers-color-scheme: dark) {{
  .page {{ fill: #14191d; }} .title {{ fill: #e8edf0; }} .label {{ fill: #e8edf0; stroke: #14191d; }}
  .taken {{ stroke: #e8edf0; }} .edge {{ stroke: #a9b2b8; }} .not_taken, .undecided {{ stroke: #66727a; }}
}}
"""


def to_svg(picture: Picture) -> str:
    """The picture as one SVG document."""
    texts = [lines_of(node) for node in picture.nodes]
    numbers = {node.id: number for number, node in enumerate(picture.nodes)}
    ends = [(numbers[edge.source], numbers[edge.target]) for edge in picture.edges]
    layout = layered([_size(node, lines) for node, lines in zip(picture.nodes, texts, strict=True)], ends)
    return "\n".join(_document(picture, texts, layout)) + "\n"


def _document(picture: Picture, texts: list[list[str]], layout: Layout) -> Iterator[str]:
    title = heading(picture)
    above = _TITLE * len(title) + 12
    width = max(layout.width, 40 + max(_width(line) for line in title) * 1.4)
    height = layout.height + above
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
    )
    yield f"<title>{_escaped(title[0])}</title><style>{_CSS}</style>"
    yield (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    yield f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>'
    for number, line in enumerate(title):
        yield f'<text class="title" x="20" y="{_TITLE * (number + 1):.0f}">{_escaped(line)}</text>'
    yield f'<g transform="translate({(width - layout.width) / 2:.1f} {above:.1f})">'
    for edge, points in zip(picture.edges, layout.paths, strict=True):
        yield from _edge(edge, points)
    for node, lines, box in zip(picture.nodes, texts, layout.boxes, strict=True):
        yield from _node(node, lines, box)
    yield "</g></svg>"


def _edge(edge: PictureEdge, points: list[Point]) -> Iterator[str]:
    classes = f"edge {edge.state}{' critical' if edge.critical else ''}"
    yield f'<path class="{classes}" d="{_curve(points)}" marker-end="url(#arrow)"/>'
    if edge.labels:
        (x1, y1), (x2, y2) = points[-2:]
        text = _escaped(cut(" | ".join(edge.labels), 40))
        yield f'<text class="label" x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 + 3:.1f}">{text}</text>'


def _curve(points: list[Point]) -> str:
    """Straight down where it can be, else an S between two rows."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        if abs(x1 - x2) < 0.5:
            parts.append(f"L{x2:.1f} {y2:.1f}")
        else:
            middle = (y1 + y2) / 2
            parts.append(f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}")
    return " ".join(parts)


def _node(node: PictureNode, lines: list[str], box: Box) -> Iterator[str]:
    look = look_of(node)
    yield f"<g><title>{_escaped(tooltip_of(node))}</title>"
    paint = f'fill="{look.fill}" stroke="{look.border}" stroke-width="{look.width}"{_DASHES[look.dash]}'
    yield f'<path d="{_outline(SHAPES.get(node.kind, "rectangle"), box)}" {paint}/>'
    top = box.y - _LINE * len(lines) / 2 + 11
    for number, line in enumerate(lines):
        style = ' class="name"' if number == 0 else ""
        yield f'<text{style} x="{box.x:.1f}" y="{top + _LINE * number:.1f}">{_escaped(line)}</text>'
    yield "</g>"


def _outline(shape: str, box: Box) -> str:
    """The path of a kind's shape round a box."""
    left, right = box.x - box.width / 2, box.x + box.width / 2
    top, bottom = box.y - box.height / 2, box.y + box.height / 2
    edge = f"M{left:.1f} {top:.1f} H{right:.1f} V{bottom:.1f} H{left:.1f} Z"
    if shape == "rounded":
        r = 9.0
        return (
            f"M{left + r:.1f} {top:.1f} H{right - r:.1f} Q{right:.1f} {top:.1f} {right:.1f} {top + r:.1f} "
            f"V{bottom - r:.1f} Q{right:.1f} {bottom:.1f} {right - r:.1f} {bottom:.1f} H{left + r:.1f} "
            f"Q{left:.1f} {bottom:.1f} {left:.1f} {bottom - r:.1f} V{top + r:.1f} "
            f"Q{left:.1f} {top:.1f} {left + r:.1f} {top:.1f} Z"
        )
    if shape in _CORNERS:
        inset, share = _CORNERS[shape]
        return _cut_corners(left, top, right, bottom, inset, box.height * share)
    if shape == "stack":
        return f"{edge} M{left + 4:.1f} {top:.1f} v-4 H{right + 4:.1f} V{bottom - 4:.1f} h-4"
    if shape == "folder":
        return f"{edge} M{left:.1f} {top:.1f} v-5 h28 l6 5"
    if shape == "house":
        return f"{edge} M{left:.1f} {top:.1f} L{box.x:.1f} {top - 9:.1f} L{right:.1f} {top:.1f}"
    return edge


_CORNERS: Final = {"hexagon": (12.0, 1 / 3), "diamond": (20.0, 1 / 2), "octagon": (8.0, 1 / 6)}
"""How far a corner is cut: pixels of its width, and the share of its height (a half meets in a point)."""


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
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + " Z"


def _size(node: PictureNode, lines: list[str]) -> tuple[float, float]:
    points = 44.0 if SHAPES.get(node.kind) in ("hexagon", "diamond") else 26.0
    return max(84.0, max(_width(line) for line in lines) + points), _LINE * len(lines) + 16


def _width(text: str) -> float:
    """Pixels that a line takes at 12 px, on the safe side: wide characters count twice."""
    return sum(12.5 if east_asian_width(each) in "WF" else 6.8 for each in text)


def _escaped(text: str) -> str:
    return escape(text, {'"': "&quot;"})
