"""Draws a picture as SVG by our own layout: the same boxes, signs and lines as the viewer's pages have.

Self-contained: no script, no font and no request. Every text is escaped. Light, dark, or as its reader's theme is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, Literal, NamedTuple
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from flowengine.core import cost_text, seconds_text
from visualize.icons import HEATS, SIGN_SIZE, SIGNS, known_kinds, sign_svg
from visualize.layout import Arrangement, Point, arrange, outline, slack
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import (
    DASHES,
    LOOKS,
    PLAIN,
    RISKS,
    Heat,
    cut,
    heading,
    heat_value,
    heats_of,
    lines_of,
    look_of,
    tooltip_of,
)

Theme = Literal["auto", "light", "dark"]

Paper = Literal["", "a3", "a4", "a5", "letter"]
PAPERS: Final[Mapping[str, tuple[int, int]]] = {
    "a3": (297, 420),
    "a4": (210, 297),
    "a5": (148, 210),
    "letter": (216, 279),
}
"""Width and height of an upright sheet, in millimetres."""

_LINE: Final = 16.0
"""Height of a line of text, in pixels."""
_TITLE: Final = 22.0
_PAD: Final = 40.0
"""Pixels left of a box's words, where the sign is."""
_BAR: Final = 10.0
_LEGEND: Final = 40.0
"""Height of the first row of the key."""
_KEY_ROW: Final = 28.0
_KEY_WIDTH: Final = 900.0
"""Pixels that the key may make the picture wide."""
_LABEL_AT: Final = (0.72, 0.62)
"""Place of a label on the last part of its edge: shares of its width and height, on the line of `curve`."""
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
.label {{ text-anchor: middle; paint-order: stroke; stroke-width: 7px; stroke-linejoin: round; }}
.icon {{ fill: none; stroke: #ffffff; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; }}
.k-agent .icon {{ fill: #ffffff; }}
marker path {{ fill: context-stroke; }}
"""


class Drawing(NamedTuple):
    """An SVG document and its size in pixels."""

    text: str
    width: float
    height: float


def draw_svg(picture: Picture, *, theme: Theme = "auto", heat: Heat = "", paper: Paper = "") -> Drawing:
    """The picture as one SVG document. `heat`: what its boxes are coloured by instead of their status.

    `paper`: the sheet that it is to fit on; empty: it is as large as it is.
    """
    texts = {node.id: lines_of(node) for node in picture.nodes}
    placed = arrange(picture, lambda node: _measure_node(node, texts[node.id]))
    document = _Document(picture, texts, placed, theme, heat)
    width, height = document.size
    return Drawing("\n".join(document.lines(_measure_sheet(paper, width, height))) + "\n", width, height)


def _measure_sheet(paper: Paper, width: float, height: float) -> tuple[str, str]:
    """Width and height of the document: its own, or those of a sheet, across where the picture is wider than high."""
    if not paper:
        return f"{width:.0f}", f"{height:.0f}"
    short, long = PAPERS[paper]
    sheet = (long, short) if width > height else (short, long)
    return f"{sheet[0]}mm", f"{sheet[1]}mm"


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
        boxes = [node for node in picture.nodes if node.id not in placed.frames]
        self._heats = heats_of(boxes, heat)
        self._title = heading(picture)
        self._above = _TITLE * len(self._title) + 12
        self._key = list(_list_key(picture, boxes, heat if self._heats else ""))
        widest = max(width_of(line) for line in self._title) * 1.4
        width = max(placed.width, 40 + widest, min(sum(map(_entry_width, self._key)) + 40, _KEY_WIDTH))
        self._rows = _break_rows(self._key, width)
        self.size = width, placed.height + self._above + _LEGEND + _KEY_ROW * (len(self._rows) - 1)

    def lines(self, sheet: tuple[str, str]) -> Iterator[str]:
        picture, placed, title, above = self._picture, self._placed, self._title, self._above
        width, height = self.size
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{sheet[0]}" height="{sheet[1]}" '
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
        yield from self._draw_key(placed.height + above + _LEGEND / 2)
        yield "</svg>"

    def _draw_box(self, node: PictureNode, *, is_frame: bool = False) -> Iterator[str]:
        """A node; or a container that is drawn open, with its words above its body."""
        box, lines = self._placed.boxes[node.id], self._texts[node.id]
        look = look_of(node)
        status = f"risk-{node.risk}" if node.status is None and node.risk in RISKS else node.status or "plain"
        heat = f" heat-{self._heats[node.id]}" if node.id in self._heats else ""
        dash = "" if look.dash == "solid" else f' stroke-dasharray="{DASHES[look.dash]}"'
        yield f"<g><title>{_escape(tooltip_of(node))}</title>"
        yield (
            f'<path class="s-{status}{heat}{" frame" if is_frame else ""}" d="{outline(node.kind, box)}" '
            f'stroke-width="{look.width}"{dash}/>'
        )
        left = box.x - box.width / 2 + slack(node.kind) / 2
        whole = _LINE * len(lines) + (0 if node.progress is None else _BAR)
        top = box.y - box.height / 2 + 20 if is_frame else box.y - whole / 2 + 12
        yield sign_svg(node.kind, left + 8 + SIGN_SIZE / 2, top + 2)
        for number, line in enumerate(lines):
            style = ' class="name"' if number == 0 else ""
            yield f'<text{style} x="{left + _PAD:.1f}" y="{top + _LINE * number:.1f}">{_escape(line)}</text>'
        if node.progress is not None:
            yield from _draw_progress(node.progress, left + _PAD, top + _LINE * len(lines) - 8)
        yield "</g>"

    def _draw_key(self, y: float) -> Iterator[str]:
        """Draws the meaning of the signs, lines and fills in the picture."""
        for number, row in enumerate(self._rows):
            x, middle = 20.0, y + _KEY_ROW * number
            for entry in row:
                yield entry.drawing.format(x=x, y=middle, right=x + SIGN_SIZE) if entry.drawing else ""
                if entry.kind is not None:
                    yield sign_svg(entry.kind, x + SIGN_SIZE / 2, middle)
                yield f'<text x="{x + SIGN_SIZE + 6:.1f}" y="{middle + 4:.1f}">{_escape(entry.words)}</text>'
                x += _entry_width(entry)


class _KeyEntry(NamedTuple):
    words: str
    kind: str | None = None
    """The kind whose sign it explains."""
    drawing: str = ""
    """Else what is explained, as SVG about `{x}`, `{y}`."""


_LINES: Final[Mapping[str, str]] = {
    "taken": "taken",
    "taken critical": "decided how long it took",
    "not_taken": "not taken",
    "undecided": "not decided yet",
}
"""Classes of an edge → what such a line means."""


def _list_key(picture: Picture, boxes: Iterable[PictureNode], heat: Heat) -> Iterator[_KeyEntry]:
    """Yields an entry for each kind, each style of line and each range of heat that the picture has."""
    for kind in known_kinds(node.kind for node in picture.nodes):
        yield _KeyEntry(cut(kind, 30), kind)
    classes_in_picture = {f"{edge.state}{' critical' if edge.critical else ''}" for edge in picture.edges}
    for classes, words in _LINES.items():
        if classes in classes_in_picture:
            yield _KeyEntry(words, drawing=f'<path class="edge {classes}" d="M{{x:.1f}} {{y:.1f}}H{{right:.1f}}"/>')
    if heat:
        most = max(value for node in boxes if (value := heat_value(node, heat)))
        for level in range(len(HEATS)):
            limit = most * (level + 1) / len(HEATS)
            words = f"to {seconds_text(limit) if heat == 'time' else cost_text(limit)}"
            box = '<rect x="{x:.1f}" y="{y:.1f}" width="22" height="12" transform="translate(0 -6)" '
            yield _KeyEntry(words, drawing=f'{box}class="s-plain heat-{level}"/>')


def _entry_width(entry: _KeyEntry) -> float:
    return SIGN_SIZE + 26 + width_of(entry.words)


def _break_rows(entries: list[_KeyEntry], width: float) -> list[list[_KeyEntry]]:
    """The entries in rows that fit into the width."""
    rows: list[list[_KeyEntry]] = [[]]
    x = 20.0
    for entry in entries:
        if x + _entry_width(entry) > width and rows[-1]:
            rows.append([])
            x = 20.0
        rows[-1].append(entry)
        x += _entry_width(entry)
    return rows


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


def _draw_progress(shares: tuple[float, float], x: float, y: float) -> Iterator[str]:
    for name, share in (("whole", 1.0), ("ended", shares[0]), ("failed", shares[1])):
        yield f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{150 * share:.1f}" height="5" rx="2.5"/>'


def _measure_node(node: PictureNode, lines: list[str]) -> tuple[float, float]:
    width = max(width_of(line) * (1.1 if number == 0 else 1.0) for number, line in enumerate(lines))
    height = _LINE * len(lines) + 18 + (0 if node.progress is None else _BAR)
    return max(110.0, width + _PAD + 14 + slack(node.kind)), height


def width_of(text: str) -> float:
    """Pixels that a line takes at 12 px, on the safe side."""
    return sum(map(_width_of_character, text))


_LETTERS: Final[Mapping[float, str]] = {
    2.5: "'",
    3.5: " !,./:;[\\]ijl|",
    4.0: "()-`",
    4.5: '"Ift{}',
    5.0: "*r",
    6.0: "J^csz",
    6.5: "kvxy",
    7.0: "#$0123456789?L_ae",
    7.5: "+<=>FTZbdghnopqu~",
    8.5: "&ABEKPSVXY",
    9.0: "CDHRU",
    9.5: "GNOQw",
    11.0: "%M",
    11.5: "Wm",
    12.5: "@",
}
_WIDTHS: Final = {letter: width for width, letters in _LETTERS.items() for letter in letters}
"""Pixels of the printable ASCII characters at 12 px: the wider of Helvetica's (Adobe's metrics) and of Noto Sans's."""


def _width_of_character(each: str) -> float:
    if each in _WIDTHS:
        return _WIDTHS[each]
    return 12.5 if east_asian_width(each) in "WF" or each in "…—" else 9.4 if each.isupper() else 7.4


def _escape(text: str) -> str:
    return escape(text, {'"': "&quot;"})
