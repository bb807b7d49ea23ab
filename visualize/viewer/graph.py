"""Writes a picture as the part of a page that our script repaints: boxes of one size, and classes instead of paint.

How a status looks is in the style sheet, as no page may hold styles of its own. What a node's lines say
after each event is worked out again by `graph.js`, from the feed; `arrange.js` places everything anew when a
container is folded or unfolded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape
from itertools import count
from json import dumps
from typing import Any, Final

from flowengine.core import TRAITS
from visualize.icons import HEATS, SIGN_SIZE, known_kinds, sign_svg
from visualize.layout import Arrangement, Box, arrange, outline, slack
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import LOOKS, cut, kind_of, look_of, spending, standing, times, tooltip_of
from visualize.svg import curve, width_of
from visualize.viewer.html import Markup, element, whole

COMPACT: Final = 2_000
"""Above this many nodes a box holds its name and its glyph alone, and edges keep their first look."""
_SPARSE: Final = 150
"""Above this many nodes our script displays what is in sight alone. Boxes come in an `<svg>` that is not displayed, as
browsers work out the looks of all that is in a `<g>`, displayed or not."""

BUNDLE: Final = 100
"""Edges in one drawing."""
LINE_HEIGHT: Final = 16
NARROW: Final = 276.0
_WIDE: Final = 330.0
MAX_NAME: Final = 32
MAX_DETAIL: Final = 40
"""Characters of a name, and of the lines below it."""
PAD: Final = 40.0
"""Pixels left of the words, where the sign is."""
_BAR: Final = 8.0
"""Height that the progress of a map takes."""


def graph_markup(
    picture: Picture,
    *,
    first_view: Picture | None = None,
    is_live: bool = False,
    is_large: bool = False,
) -> Markup:
    """The picture as an SVG element with the id `graph`. Nodes and edges carry their numbers in it.

    `first_view`: the same picture with some containers closed, as shown at first; the rest is there, not displayed.
    `is_live`: it is repainted, and its nodes can be chosen. `is_large`: of the rest there is one box of each kind, as a
    pattern for our script.
    """
    first = first_view or picture
    compact = len(first.nodes) > COMPACT
    placed = arrange(first, lambda node: _measure_node(node, compact))
    drawing = _Drawing(picture, first, placed, compact, is_live, is_large)
    return Markup(whole("\n".join([*drawing.lines(), *(drawing.patterns() if is_large else ())])))


def graph_data(picture: Picture, first_view: Picture, *, is_large: bool = False) -> dict[str, Any]:
    """Returns the data for folding containers in the script: folded ones, text sizes, and shapes."""
    numbers = {node.id: number for number, node in enumerate(picture.nodes)}
    containers = {node.parent for node in picture.nodes if node.parent is not None}
    compact = len(first_view.nodes) > COMPACT
    if compact and not containers:
        return {"edges": [], "shut": [], "sizes": [], "shapes": {}}
    closed = containers if is_large else {node.id for node in first_view.nodes if node.hidden}
    return {
        "edges": [[numbers[edge.source], numbers[edge.target], list(edge.labels)] for edge in picture.edges],
        "shut": sorted(numbers[each] for each in closed if each in containers),
        "sizes": [[round(each, 1) for each in _measure_node(node, compact)] for node in picture.nodes],
        "shapes": {kind: TRAITS[kind].shape for kind in {node.kind for node in picture.nodes}},
    }


class _Drawing:
    def __init__(
        self,
        picture: Picture,
        first: Picture,
        placed: Arrangement,
        compact: bool,
        is_live: bool,
        is_large: bool,
    ) -> None:
        self._picture = picture
        self._is_large = is_large
        self._nodes = {node.id: node for node in first.nodes}
        self._placed = placed
        self._compact = compact
        self._is_live = is_live
        self._is_sparse = is_live and len(picture.nodes) > _SPARSE
        self._numbers = {node.id: number for number, node in enumerate(picture.nodes)}
        self._containers = frozenset(node.parent for node in picture.nodes if node.parent is not None)
        self._paths = dict(zip(((edge.source, edge.target) for edge in first.edges), placed.paths, strict=True))

    def lines(self) -> Iterator[str]:
        placed = self._placed
        role = 'role="group" aria-roledescription="graph"' if self._is_live else 'role="img"'
        yield (
            f'<svg id="graph" class="graph{" compact" if self._compact else ""}" {role} '
            f'viewBox="0 0 {placed.width:.0f} {placed.height:.0f}" width="{placed.width:.0f}" '
            f'height="{placed.height:.0f}" aria-label="{_write_text(self._picture.name)}">'
        )
        yield (
            '<defs><marker id="graph-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z"/></marker></defs>'
        )
        yield '<g class="scene">'
        nodes = [node for node in self._picture.nodes if not self._is_large or node.id in self._nodes]
        for node in nodes:
            if node.id in self._containers:
                yield self._box(node, is_frame=node.id in placed.frames)
        yield from self._edges()
        yield '<svg class="unseen" display="none">' * self._is_sparse
        for node in nodes:
            if node.id not in self._containers:
                yield self._box(node)
        yield f"{'</svg>' * self._is_sparse}</g></svg>"

    def patterns(self) -> Iterator[str]:
        """A box for each kind of what is not drawn, as if nothing had happened to it yet."""
        kinds = {node.kind: node for node in self._picture.nodes if node.id not in self._nodes}
        boxes = [
            self._box(node._replace(status="pending", tally=(), critical=False, progress=None, error=None))
            for node in kinds.values()
        ]
        yield f'<template id="graph-boxes" data-kinds="{_write_text(dumps(list(kinds)))}"><svg>'
        yield from boxes
        yield "</svg></template>"

    def _edges(self) -> Iterator[str]:
        if self._compact:  # In bundles, each of which the browser can leave out as it is out of sight.
            paths = [curve(points) for points in self._placed.paths]
            for begin in range(0, len(paths), BUNDLE):
                yield f'<path class="edge declared" d="{" ".join(paths[begin : begin + BUNDLE])}"/>'
            return
        for number, edge in enumerate(self._picture.edges):
            points = self._paths.get((edge.source, edge.target), [])
            if self._is_large and not points:
                continue
            place = f'd="{curve(points)}"{_HIDDEN * self._is_sparse}' if points else _HIDDEN.strip()
            yield (f'<path class="{edge_class(edge)}" data-edge="{number}" {place} marker-end="url(#graph-arrow)"/>')
            if edge.labels:
                words = _write_text(cut(" | ".join(edge.labels), MAX_DETAIL))
                where = _HIDDEN.strip()
                if points:
                    (x1, y1), (x2, y2) = points[-2:]
                    where = f'x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 + 4:.1f}"'
                yield f'<text class="label" data-of="{number}" {where}>{words}</text>'

    def _box(self, node: PictureNode, *, is_frame: bool = False) -> str:
        """A node's group: its place is in its transform, so that all boxes of a kind are drawn alike."""
        node = self._nodes.get(node.id, node)
        box = self._placed.boxes.get(node.id) or Box(0.0, 0.0, *_measure_node(node, self._compact))
        shape = outline(node.kind, Box(0.0, 0.0, box.width, box.height))
        hidden = (self._is_sparse and not is_frame) or node.id not in self._nodes
        opening = (
            f'<g class="{_node_class(node, is_frame)}" data-node="{self._numbers[node.id]}" '
            f'transform="translate({box.x:.1f} {box.y:.1f})"{_LIVE if self._is_live else ""}'
            f"{_HIDDEN if hidden else ''}>"
        )
        title = f"<title>{_write_text(tooltip_of(node))}</title>"
        if self._compact:
            words = _write_text(f"{look_of(node).glyph} {cut(node.name, MAX_NAME)}".strip())
            fold = self._fold(node, box, 13 - box.height / 2 if is_frame else 0.0, is_frame=is_frame)
            base = 17 - box.height / 2 if is_frame else 4
            return f'{opening}{title}<path d="{shape}"/><text class="name" y="{base:g}">{words}</text>{fold}</g>'
        left = -box.width / 2 + slack(node.kind) / 2
        top = -box.height / 2 + 20 if is_frame else -(LINE_HEIGHT * _count_lines(node) + _bar_of(node)) / 2 + 13
        lines = [("name", cut(node.name, MAX_NAME) + times(node)), ("kind", kind_of(node))]
        if node.status is not None:
            lines += [("standing", standing(node)), ("detail", detail(node))]
        words = " ".join(  # With blanks, as what is read aloud is made of these words.
            f'<text class="{class_}" x="{left + PAD:.1f}" y="{y:.1f}">{_write_text(text)}</text>'
            for y, (class_, text) in zip(count(top, LINE_HEIGHT), lines, strict=False)
        )
        sign = sign_svg(node.kind, left + 9 + SIGN_SIZE / 2, top + 3)
        fold = self._fold(node, box, top - 3, is_frame=is_frame)
        bar = _draw_progress(node, left + PAD, top + LINE_HEIGHT * _count_lines(node) - 9, box.width)
        return f'{opening}{title}<path d="{shape}"/>{sign}{words}{bar}{fold}</g>'

    def _fold(self, node: PictureNode, box: Box, y: float, *, is_frame: bool) -> str:
        """The sign by which a container is folded and unfolded."""
        if not self._is_live or node.id not in self._containers:
            return ""
        place = f"translate({box.width / 2 - 16:.1f} {y:.1f})"
        return f'<path class="fold" transform="{place}" d="{UNFOLDED if is_frame else FOLDED}"/>'


_LIVE: Final = ' role="button" tabindex="-1"'
UNFOLDED: Final = "M-9-9H9V9H-9ZM-5 0H5"
FOLDED: Final = f"{UNFOLDED}M0-5V5"
_HIDDEN: Final = ' display="none"'


def _draw_progress(node: PictureNode, x: float, y: float, width: float) -> str:
    """Draws a map's progress bar; the script updates it."""
    if not _bar_of(node):
        return ""
    ended, failed = node.progress or (0.0, 0.0)
    room = min(width, NARROW) - PAD - 20
    return (
        f'<g class="progress" data-room="{room:.0f}" transform="translate({x:.1f} {y:.1f})">'
        f'<rect class="whole" width="{room:.0f}" height="5" rx="2.5"/>'
        f'<rect class="ended" width="{room * ended:.1f}" height="5" rx="2.5"/>'
        f'<rect class="failed" width="{room * failed:.1f}" height="5" rx="2.5"/></g>'
    )


def _bar_of(node: PictureNode) -> float:
    return _BAR if node.kind == "map" and node.status is not None else 0.0


def _node_class(node: PictureNode, is_frame: bool) -> str:
    classes = ["node", f"s-{node.status or 'plain'}"]
    return " ".join([*classes, *(["frame"] if is_frame else []), *(["critical"] if node.critical else [])])


def edge_class(edge: PictureEdge) -> str:
    return f"edge {edge.state}{' critical' if edge.critical else ''}{' moving' if edge.moving else ''}"


def detail(node: PictureNode) -> str:
    """The last line: what went wrong, else where it led and what it cost."""
    if node.error:
        return cut(node.error, MAX_NAME)
    parts = [f"→ {node.route}"] if node.route else []
    return cut(" · ".join([*parts, spending(node)] if node.calls else parts), MAX_DETAIL)


def _count_lines(node: PictureNode) -> int:
    return 2 if node.status is None else 4


def _measure_node(node: PictureNode, compact: bool) -> tuple[float, float]:
    """Returns the size of a node's own words, which change while the run goes on: as much as they may need."""
    name = width_of(cut(node.name, MAX_NAME)) * 1.1 + (70 if node.kind in ("map", "loop") else 26) + slack(node.kind)
    if compact:
        return min(_WIDE, max(70.0, name + 10)), 26.0
    words = max(name, width_of(kind_of(node)) + 16) + PAD
    least = 150.0 if node.status is None else NARROW + slack(node.kind)
    return min(_WIDE, max(least, words)), LINE_HEIGHT * _count_lines(node) + 18.0 + _bar_of(node)


# --- What the signs mean

_EDGES: Final[Mapping[str, str]] = {
    "edge taken": "taken",
    "edge taken moving": "data is moving",
    "edge taken critical": "decided how long it took",
    "edge not_taken": "not taken",
    "edge undecided": "not decided yet",
}


def legend_markup(kinds: Collection[str], *, is_run: bool = True) -> Markup:
    """Makes the legend of icons, colours and lines, closed at first. `kinds`: those in the picture."""
    items = [_explain(_swatch(sign_svg(kind, 12, 12)), kind) for kind in known_kinds(kinds)]
    parts = [element("h4", "Kinds"), element("ul", items)]
    if is_run:
        looks = [
            _explain(_swatch('<path d="M3 4h18v16H3z"/>', f"node s-{status}"), f"{look.glyph} {look.word}")
            for status, look in LOOKS.items()
        ]
        lines = [_explain(_swatch(f'<path class="{name}" d="M1 12H23"/>'), words) for name, words in _EDGES.items()]
        heat = [
            _explain(_swatch('<path d="M3 4h18v16H3z"/>', f"node s-plain heat-{level}"), words)
            for level, words in ((0, "least"), (len(HEATS) // 2, "half of the most"), (len(HEATS) - 1, "most"))
        ]
        parts += [element("h4", "Statuses"), element("ul", looks), element("h4", "Edges"), element("ul", lines)]
        parts += [element("h4", "Heat by time or cost"), element("ul", heat)]
    return element("details", element("summary", "Legend"), element("div", parts), class_="legend")


def _swatch(drawing: str, class_: str = "") -> Markup:
    name = f' class="{class_}"' if class_ else ""
    return Markup(f'<svg class="graph swatch" width="24" height="24" aria-hidden="true"><g{name}>{drawing}</g></svg>')


def _explain(swatch: Markup, words: str) -> Markup:
    return element("li", swatch, f" {words}")


def _write_text(text: str) -> str:
    return escape(text)
