"""Draws a picture as SVG by our own layout: the same boxes, signs and lines as the viewer's pages have.

Self-contained: no script, no font and no request. Every text is escaped. Light, dark, or as its reader's theme is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, Literal
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from visualize.icons import HEATS, SIGN_SIZE, SIGNS, known_kinds, sign_svg
from visualize.layout import Arrangement, Point, arrange, outline, slack
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import LOOKS, PLAIN, RISKS, Heat, cut, heading, heats_of, lines_of, look_of, tooltip_of

__all__ = ["Theme", "curve", "to_svg", "width_of"]

Theme = Literal["auto", "light", "dark"]

_LINE: Final = 16.0
"""Height of a line of text, in pixels."""
_TITLE: Final = 22.0
_PAD: Final = 40.0
"""Pixels left of a box's words, where the sign is."""
_BAR: Final = 10.0
_LEGEND: Final = 40.0
_LABEL_AT: Final = (0.72, 0.62)
"""Where a label is on the last part of its edge: shares of its width and its height, on the line that `curve` draws."""
_DASHES: Final = {"solid": "none", "dashed": "6 4", "dotted": "2 3"}
_FONT: Final = "Helvetica, Arial, 'Noto Sans', 'Noto Sans CJK JP', sans-serif"

_CSS: Final = f"""
text {{ font: 12px {_FONT}; }}
.name {{ font-weight: bold; font-size: 13px; }}
.title {{ font-weight: bold; font-size: 16px; }}
.frame {{ fill-opacity: 0.4; }}
.edge {{ fill: none; stroke-width: 1.3; }}
.taken {{ stroke-width: 2; }}
.not_taken {{ stroke-dasharray: 6 4; }}
.undecided {{ stroke-dasharray: 2 3; }}
.critical {{ stroke-width: 3.4; }}
.moving {{ stroke-dasharray: 9 5; animation: move 0.8s linear infinite; }}
@keyframes move {{ to {{ stroke-dashoffset: -14; }} }}
@media (prefers-reduced-motion: reduce) {{ .moving {{ animation: none; }} }}
.label {{ text-anchor: middle; paint-order: stroke; stroke-width: 4px; }}
.icon {{ fill: none; stroke: #ffffff; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; }}
.k-agent .icon {{ fill: #ffffff; }}
marker path {{ fill: context-stroke; }}
"""


def to_svg(picture: Picture, *, theme: Theme = "auto", heat: Heat = "") -> str:
    """The picture as one SVG document. `heat`: what its boxes are coloured by instead of their status."""
    texts = {node.id: lines_of(node) for node in picture.nodes}
    placed = arrange(picture, lambda node: _measure_node(node, texts[node.id]))
    return "\n".join(_Document(picture, texts, placed, theme, heat).lines()) + "\n"


def _style_of(theme: Theme) -> str:
    day, night = _write_rules(is_dark=False), _write_rules(is_dark=True)
    if theme == "auto":
        return f"{_CSS}{day}@media (prefers-color-scheme: dark) {{\n{night}}}\n"
    return f"{_CSS}{day if theme == 'light' else night}"


def _write_rules(*, is_dark: bool) -> str:
    """Writes the CSS rules that differ between the themes."""
    page, text, line, faint = _NIGHT if is_dark else _DAY
    looks: Mapping[str, tuple[str, str]] = {
        name: look.night if is_dark else (look.border, look.fill)
        for name, look in {"plain": PLAIN, **LOOKS, **{f"risk-{name}": look for name, look in RISKS.items()}}.items()
    }
    rules = [
        f".page {{ fill: {page}; }} text {{ fill: {text}; }} .label {{ stroke: {page}; }}",
        f".edge {{ stroke: {line}; }} .taken {{ stroke: {text}; }} .not_taken, .undecided {{ stroke: {faint}; }}",
        f".whole {{ fill: {faint}; opacity: 0.4; }}",
        *[f".s-{name} {{ stroke: {border}; fill: {fill}; }}" for name, (border, fill) in looks.items()],
        *[f".heat-{level} {{ fill: {each[is_dark]}; }}" for level, each in enumerate(HEATS)],
        f".ended {{ fill: {looks['succeeded'][0]}; }} .failed {{ fill: {looks['failed'][0]}; }}",
    ]
    return "\n".join(rules) + "\n"


_DAY: Final = ("#ffffff", "#1f2a33", "#5b6770", "#87929a")
_NIGHT: Final = ("#14191d", "#e8edf0", "#a9b2b8", "#75818a")
"""Page, text, line, and a line that was not taken."""

_ACCENTS: Final = "\n".join(f".k-{name or 'other'} .accent {{ fill: {sign.accent}; }}" for name, sign in SIGNS.items())


class _Document:
    def __init__(
        self, picture: Picture, texts: dict[str, list[str]], placed: Arrangement, theme: Theme, heat: Heat
    ) -> None:
        self._picture = picture
        self._texts = texts
        self._placed = placed
        self._theme: Theme = theme
        self._heats = heats_of((node for node in picture.nodes if node.id not in placed.frames), heat)
        self._kinds = known_kinds(node.kind for node in picture.nodes)

    def lines(self) -> Iterator[str]:
        picture, placed = self._picture, self._placed
        title = heading(picture)
        above = _TITLE * len(title) + 12
        legend = sum(_legend_width(kind) for kind in self._kinds) + 40
        width = max(placed.width, 40 + max(width_of(line) for line in title) * 1.4, min(legend, 1200.0))
        height = placed.height + above + _LEGEND
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        )
        yield f"<title>{_escape(title[0])}</title><style>{_style_of(self._theme)}{_ACCENTS}</style>"
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
                yield from self._draw_box(node, is_frame=True)
        for edge, points in zip(picture.edges, placed.paths, strict=True):
            classes = f"edge {edge.state}{' critical' if edge.critical else ''}{' moving' if edge.moving else ''}"
            yield f'<path class="{classes}" d="{curve(points)}" marker-end="url(#arrow)"/>'
        # Labels lie above all lines, which would go through them.
        for edge, points in zip(picture.edges, placed.paths, strict=True):
            if edge.labels:
                yield _draw_label(edge, points)
        for node in picture.nodes:
            if node.id not in placed.frames:
                yield from self._draw_box(node)
        yield "</g>"
        yield from self._draw_legend(height - _LEGEND / 2, width)
        yield "</svg>"

    def _draw_box(self, node: PictureNode, *, is_frame: bool = False) -> Iterator[str]:
        """A node; or a container that is drawn open, with its words above its body."""
        box, lines = self._placed.boxes[node.id], self._texts[node.id]
        look = look_of(node)
        status = f"risk-{node.risk}" if node.status is None and node.risk in RISKS else node.status or "plain"
        heat = f" heat-{self._heats[node.id]}" if node.id in self._heats else ""
        dash = "" if look.dash == "solid" else f' stroke-dasharray="{_DASHES[look.dash]}"'
        yield f"<g><title>{_escape(tooltip_of(node))}</title>"
        yield (
            f'<path class="s-{status}{heat}{" frame" if is_frame else ""}" d="{outline(node.kind, box)}" '
            f'stroke-width="{look.width}"{dash}/>'
        )
        left = box.x - box.width / 2 + slack(node.kind) / 2
        whole = _LINE * len(lines) + (0 if node.filled is None else _BAR)
        top = box.y - box.height / 2 + 20 if is_frame else box.y - whole / 2 + 12
        yield sign_svg(node.kind, left + 8 + SIGN_SIZE / 2, top + 2)
        for number, line in enumerate(lines):
            style = ' class="name"' if number == 0 else ""
            yield f'<text{style} x="{left + _PAD:.1f}" y="{top + _LINE * number:.1f}">{_escape(line)}</text>'
        if node.filled is not None:
            yield from _draw_progress(node.filled, left + _PAD, top + _LINE * len(lines) - 8)
        yield "</g>"

    def _draw_legend(self, y: float, width: float) -> Iterator[str]:
        """The kinds that are drawn, as far as there is room."""
        x = 20.0
        for kind in self._kinds:
            if x + _legend_width(kind) > width:
                return
            yield sign_svg(kind, x + SIGN_SIZE / 2, y)
            yield f'<text x="{x + SIGN_SIZE + 6:.1f}" y="{y + 4:.1f}">{_escape(cut(kind, 30))}</text>'
            x += _legend_width(kind)


def _legend_width(kind: str) -> float:
    return SIGN_SIZE + 26 + width_of(cut(kind, 30))


def _draw_label(edge: PictureEdge, points: list[Point]) -> str:
    """On the edge's line, nearer to its target: the labels of one node's routes are further apart there."""
    (x1, y1), (x2, y2) = points[-2:]
    x, y = x1 + (x2 - x1) * _LABEL_AT[0], y1 + (y2 - y1) * _LABEL_AT[1]
    return f'<text class="label" x="{x:.1f}" y="{y + 4:.1f}">{_escape(cut(" | ".join(edge.labels), 40))}</text>'


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


def _draw_progress(filled: tuple[float, float], x: float, y: float) -> Iterator[str]:
    for name, share in (("whole", 1.0), ("ended", filled[0]), ("failed", filled[1])):
        yield f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{150 * share:.1f}" height="5" rx="2.5"/>'


def _measure_node(node: PictureNode, lines: list[str]) -> tuple[float, float]:
    width = max(width_of(line) * (1.1 if number == 0 else 1.0) for number, line in enumerate(lines))
    height = _LINE * len(lines) + 18 + (0 if node.filled is None else _BAR)
    return max(110.0, width + _PAD + 14 + slack(node.kind)), height


def width_of(text: str) -> float:
    """Pixels that a line takes at 12 px, on the safe side."""
    return sum(map(_width_of_character, text))


def _width_of_character(each: str) -> float:
    if each.isascii():
        return 11.4 if each in "mMwW@%" else 9.4 if each.isupper() else 6.8
    return 12.5 if east_asian_width(each) in "WF" or each in "…—" else 9.4 if each.isupper() else 6.8


def _escape(text: str) -> str:
    return escape(text, {'"': "&quot;"})
