"""Draws a picture as SVG without Graphviz: where `dot` is missing or too slow, and for large graphs.

Self-contained: no script, no font and no request. Every text is escaped. Follows the reader's dark theme.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from visualize.layout import Arrangement, Box, Point, arrange, outline, slack
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import cut, heading, lines_of, look_of, tooltip_of

__all__ = ["curve", "to_svg", "width_of"]

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
.frame {{ fill-opacity: 0.45; }}
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
  .frame ~ text {{ fill: #e8edf0; }}
}}
"""


def to_svg(picture: Picture) -> str:
    """The picture as one SVG document."""
    texts = {node.id: lines_of(node) for node in picture.nodes}
    placed = arrange(picture, lambda node: _measure_node(node, texts[node.id]))
    return "\n".join(_write_document(picture, texts, placed)) + "\n"


def _write_document(picture: Picture, texts: dict[str, list[str]], placed: Arrangement) -> Iterator[str]:
    title = heading(picture)
    above = _TITLE * len(title) + 12
    width = max(placed.width, 40 + max(width_of(line) for line in title) * 1.4)
    height = placed.height + above
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
    )
    yield f"<title>{_escape(title[0])}</title><style>{_CSS}</style>"
    yield (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    yield f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>'
    for number, line in enumerate(title):
        yield f'<text class="title" x="20" y="{_TITLE * (number + 1):.0f}">{_escape(line)}</text>'
    yield f'<g transform="translate({(width - placed.width) / 2:.1f} {above:.1f})">'
    for node in picture.nodes:  # Frames lie below the edges; a container's comes before those inside it.
        if node.id in placed.frames:
            yield from _draw_frame(node, texts[node.id], placed.boxes[node.id])
    for edge, points in zip(picture.edges, placed.paths, strict=True):
        yield from _draw_edge(edge, points)
    for node in picture.nodes:
        if node.id not in placed.frames:
            yield from _draw_node(node, texts[node.id], placed.boxes[node.id])
    yield "</g></svg>"


def _draw_edge(edge: PictureEdge, points: list[Point]) -> Iterator[str]:
    classes = f"edge {edge.state}{' critical' if edge.critical else ''}"
    yield f'<path class="{classes}" d="{curve(points)}" marker-end="url(#arrow)"/>'
    if edge.labels:
        (x1, y1), (x2, y2) = points[-2:]
        text = _escape(cut(" | ".join(edge.labels), 40))
        yield f'<text class="label" x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 + 3:.1f}">{text}</text>'


def curve(points: list[Point]) -> str:
    """A path's data: straight down where it can be, else an S between two rows."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        if abs(x1 - x2) < 0.5:
            parts.append(f"L{x2:.1f} {y2:.1f}")
        else:
            middle = (y1 + y2) / 2
            parts.append(f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}")
    return " ".join(parts)


def _draw_node(node: PictureNode, lines: list[str], box: Box) -> Iterator[str]:
    yield f"<g><title>{_escape(tooltip_of(node))}</title>"
    yield f'<path d="{outline(node.kind, box)}" {_paint_attributes(node)}/>'
    yield from _write_words(lines, box.x, box.y - _LINE * len(lines) / 2 + 11)
    yield "</g>"


def _draw_frame(node: PictureNode, lines: list[str], box: Box) -> Iterator[str]:
    """A container that is drawn open: its words above its body."""
    yield f"<g><title>{_escape(tooltip_of(node))}</title>"
    yield f'<path class="frame" d="{outline(node.kind, box)}" {_paint_attributes(node)}/>'
    yield from _write_words(lines, box.x, box.y - box.height / 2 + 19)
    yield "</g>"


def _write_words(lines: list[str], x: float, top: float) -> Iterator[str]:
    for number, line in enumerate(lines):
        style = ' class="name"' if number == 0 else ""
        yield f'<text{style} x="{x:.1f}" y="{top + _LINE * number:.1f}">{_escape(line)}</text>'


def _paint_attributes(node: PictureNode) -> str:
    look = look_of(node)
    return f'fill="{look.fill}" stroke="{look.border}" stroke-width="{look.width}"{_DASHES[look.dash]}'


def _measure_node(node: PictureNode, lines: list[str]) -> tuple[float, float]:
    width = max(width_of(line) for line in lines) + 26 + slack(node.kind)
    return max(84.0, width), _LINE * len(lines) + 16


def width_of(text: str) -> float:
    """Pixels that a line takes at 12 px, on the safe side: wide characters count twice."""
    return sum(12.5 if east_asian_width(each) in "WF" else 6.8 for each in text)


def _escape(text: str) -> str:
    return escape(text, {'"': "&quot;"})
