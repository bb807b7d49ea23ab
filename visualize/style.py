"""Lists how things look, as tables: one look a status, one shape a kind; and the words on a node.

A status is told by colour, by border and by glyph, so that it is read in greyscale and by
colour-blind people too. Source of the palette: Okabe and Ito, "Color Universal Design" (2008).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple
from unicodedata import category

from flowengine.core import CAUSE_TEXTS, cost_text, seconds_text
from visualize.picture import STATUS_ORDER, Picture, PictureNode


class Look(NamedTuple):
    """The style of a status."""

    border: str
    fill: str
    dash: str
    """`solid`, `dashed` or `dotted`."""
    width: float
    """The width of the border, in pixels."""
    glyph: str
    word: str
    night: tuple[str, str]
    """Border and fill on a dark page."""


PLAIN: Final = Look("#5b6770", "#f4f6f8", "solid", 1.2, "", "", ("#8b98a1", "#232b31"))
"""A node of a flow that has not run."""

LOOKS: Final[Mapping[str, Look]] = {
    "pending": Look("#86919a", "#fafbfc", "dotted", 1.2, "○", "pending", ("#75818a", "#1b2126")),
    "running": Look("#0072b2", "#dcedf7", "solid", 2.6, "▶", "running", ("#56b4e9", "#11344a")),
    "waiting": Look("#e69f00", "#fdf1d8", "dashed", 2.6, "‖", "waiting", ("#e69f00", "#453407")),
    "succeeded": Look("#007a5a", "#dcf1ea", "solid", 1.8, "✓", "succeeded", ("#20b58a", "#0f3a2f")),
    "failed": Look("#c04a00", "#fbe3d6", "solid", 3.6, "✗", "failed", ("#f0803c", "#4a2410")),
    "skipped": Look("#8a949b", "#f1f3f4", "dashed", 1.2, "–", "skipped", ("#75818a", "#20272c")),
    "cancelled": Look("#a4527f", "#f7e6ef", "dotted", 2.6, "■", "cancelled", ("#cc79a7", "#3d2332")),
}

GLYPHS: Final[Mapping[str, str]] = {**{name: look.glyph for name, look in LOOKS.items()}, "paused": "‖", "partial": "◐"}
"""Also of the statuses that only runs have."""

DASHES: Final[Mapping[str, str]] = {"solid": "none", "dashed": "6 4", "dotted": "2 3"}
"""The same as SVG has it."""

RISKS: Final[Mapping[str, Look]] = {
    "passes": Look("#e69f00", "#fdf1d8", "dashed", 1.8, "→", "passes it on", ("#e69f00", "#453407")),
    "source": Look("#a4527f", "#f7e6ef", "solid", 2.6, "●", "untrusted text", ("#cc79a7", "#3d2332")),
    "effect": Look("#c04a00", "#fbe3d6", "solid", 3.6, "▶", "acts on untrusted text", ("#f0803c", "#4a2410")),
}
"""The part of a node on a path of untrusted text → how it is drawn."""

_NAME, _DETAIL, _MODEL, _ERROR, _TOOLTIP = 60, 44, 22, 220, 400
"""Characters that are shown of a name, of a line below it, of a model, of an error, and in a tooltip."""

_JOINERS: Final = "\u200c\u200d"
"""Persian and Indian words, and families of emoji, are written with them."""

Heat = Literal["", "time", "cost"]
"""The figure that colours boxes instead of their status."""


def look_of(node: PictureNode) -> Look:
    return RISKS.get(node.risk, PLAIN) if node.status is None else LOOKS.get(node.status, PLAIN)


def cut(text: str, length: int) -> str:
    """One line of at most `length` characters, without control characters but those that join letters and signs.

    >>> cut("a\\nb" + "c" * 50, 8)
    'a bcccc…'
    """
    clean = "".join(
        " " if category(each).startswith(("C", "Z")) and each not in _JOINERS else each for each in text[: 4 * length]
    )
    clean = " ".join(clean.split())
    return clean if len(clean) <= length else clean[: length - 1] + "…"


def lines_of(node: PictureNode) -> list[str]:
    """The words on a node: its name, its kind, and what became of it."""
    lines = [cut(node.name, _NAME) + times(node), kind_of(node)]
    if node.status is None:
        return [*lines, f"{RISKS[node.risk].glyph} {RISKS[node.risk].word}"] if node.risk else lines
    lines.append(cut(standing(node), _DETAIL))
    if node.calls:
        lines.append(cut(spending(node), _DETAIL))
    if node.route:
        lines.append(cut(f"→ {node.route}", _DETAIL))
    lines += [cut(each, _DETAIL) for each in node.details]
    if node.error:
        lines += textwrap.wrap(cut(node.error, _ERROR), _DETAIL)
    return lines


def kind_of(node: PictureNode) -> str:
    """The kind, the model, and what is not drawn of its body."""
    remark = f" · {node.remark}" if node.remark else ""
    model = f" · {cut(node.model.rpartition('/')[2], _MODEL)}" if node.model else ""
    return cut(node.kind, _NAME) + model + remark + (f" · {node.hidden:,} nodes inside" if node.hidden else "")


def standing(node: PictureNode) -> str:
    """Status, time and attempts."""
    parts = [_status(node)]
    if node.seconds is not None and (node.status != "skipped" or node.cause == "error"):
        parts.append(seconds_text(node.seconds))
    if node.attempts > 1:
        parts.append(f"{node.attempts} attempts")
    return " · ".join(parts)


def spending(node: PictureNode) -> str:
    """Calls, tokens and cost."""
    return " · ".join([_calls(node.calls), f"{node.tokens:,} tokens", _cost(node)])


def times(node: PictureNode) -> str:
    """
    >>> times(PictureNode("polish", "loop", "running", unit_count=3, total=4))
    ' ×3 of 4'
    """
    if node.status is None or (not node.unit_count and node.total is None):
        return ""
    return f" ×{node.unit_count:,}" + (f" of {node.total:,}" if node.total is not None else "")


def _status(node: PictureNode) -> str:
    """The status in a glyph and a word; of a node that ran several times, how many succeeded."""
    look = look_of(node)
    if node.tally:
        counts = dict(node.tally)
        others = [f", {counts[each]:,} {each}" for each in STATUS_ORDER if each != "succeeded" and each in counts]
        return f"{look.glyph} {counts.get('succeeded', 0):,} of {sum(counts.values()):,}{''.join(others)}"
    return f"{look.glyph} {look.word}" + (f": {CAUSE_TEXTS[node.cause]}" if node.cause else "")


def tooltip_of(node: PictureNode) -> str:
    """Returns the text that is too long for the node itself."""
    parts = [node.id, node.kind, node.model, node.status or "", node.cause or "", node.error or ""]
    return cut(" · ".join(part for part in parts if part), _TOOLTIP)


def heading(picture: Picture) -> list[str]:
    """The picture's title, and for a run what it took and cost."""
    run = picture.run
    if run is None:
        return [cut(picture.name, 80)]
    parts = [f"{LOOKS[run.status].glyph} {run.status}" if run.status in LOOKS else run.status]
    if run.seconds is not None:
        parts.append(seconds_text(run.seconds))
    if run.tokens or run.unpriced:
        unknown = f" and {_calls(run.unpriced)} of unknown price" if run.unpriced else ""
        parts.append(f"{run.tokens:,} tokens · {cost_text(run.cost_usd)}{unknown}")
    lines = [cut(f"{picture.name} · run {run.run_id}", 80), cut(" · ".join(parts), 120)]
    return [*lines, cut(run.error, 120)] if run.error else lines


def heats_of(nodes: Iterable[PictureNode], by: Heat) -> dict[str, int]:
    """Node → 0 (the coldest) to 4 (the hottest), by its share of the most; those without a value are left out.

    >>> heats_of([PictureNode("a", "agent", seconds=1.0), PictureNode("b", "agent", seconds=9.0)], "time")
    {'a': 0, 'b': 4}
    """
    values = {node.id: value for node in nodes if (value := heat_value(node, by))}
    most = max(values.values(), default=0.0)
    return {name: min(4, int(5 * value / most)) for name, value in values.items()}


def heat_value(node: PictureNode, by: Heat) -> float | None:
    """Seconds, or dollars."""
    return node.seconds if by == "time" else node.cost_usd if by == "cost" else None


def _calls(count: int) -> str:
    return f"{count} call{'s' if count != 1 else ''}"


def _cost(node: PictureNode) -> str:
    if node.unpriced:
        return "cost unknown" if node.cost_usd is None else f"over {cost_text(node.cost_usd)}"
    return cost_text(node.cost_usd or 0.0)
