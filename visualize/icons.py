"""Lists the sign of each kind of node: an icon and an accent colour, the same in pages and in pictures.

An icon is a path about its own middle, 12 pixels wide, drawn in white on a square of the accent. The accents are dark
enough for that (3:1 at least), in a light page and in a dark one. Kinds that packages bring have the last sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple


class Sign(NamedTuple):
    """The mark of a kind."""

    icon: str
    """A path's data."""
    accent: str


_RING: Final = "M-5.5 0A5.5 5.5 0 1 1 5.5 0 5.5 5.5 0 1 1-5.5 0"

SIGNS: Final[Mapping[str, Sign]] = {
    "agent": Sign("M0-6Q1-1 6 0Q1 1 0 6Q-1 1-6 0Q-1-1 0-6Z", "#6f42c1"),
    "routing": Sign("M-6 0H-1L4-4M-1 0L4 4M1-4.5H4.5V-1M1 4.5H4.5V1", "#a84d05"),
    "condition": Sign("M0 6V1L-4.5-4M0 1L4.5-4M-4.5-.5V-4.5H-.5M4.5-.5V-4.5H.5", "#856404"),
    "evaluation": Sign(f"{_RING}M-2.7 0L-.6 2.2L2.8-2", "#0f766e"),
    "function": Sign("M4-5C1-6.5 0-4.5-.5-.5S-1.5 6-4.5 5M-3.5-1H3", "#475569"),
    "tool": Sign("M-5 5.5L1-1M-1.5-4L4 1.5M1-6L6-1", "#1d6fb8"),
    "http": Sign(f"{_RING}M-5.5 0H5.5M0-5.5C-3-2-3 2 0 5.5M0-5.5C3-2 3 2 0 5.5", "#0369a1"),
    "code": Sign("M-3-3.5L-6 0L-3 3.5M3-3.5L6 0L3 3.5M1.2-5L-1.2 5", "#334155"),
    "map": Sign("M-5-5h4v4h-4zM1-5h4v4h-4zM-5 1h4v4h-4zM1 1h4v4h-4z", "#9d3c72"),
    "loop": Sign("M5-1A5 5 0 1 0 4 3.2M5.2-5V-1H1.2", "#a0365a"),
    "subflow": Sign("M-6-5h6v4h-6zM0 1h6v4h-6zM-3-1V3H0", "#3f6212"),
    "approval": Sign("M-2.5-3A2.5 2.5 0 1 1 2.5-3 2.5 2.5 0 1 1-2.5-3M-5 6C-5 .5 5 .5 5 6", "#b45309"),
    "": Sign("M-4-4h8v8h-8z", "#5b6770"),
}
"""Kind → its sign; the empty one is that of every other kind."""

SIGN_SIZE: Final = 22.0
"""Width of the square, in pixels."""

HEATS: Final = (
    ("#fffbe6", "#1f2327"),
    ("#ffeda0", "#3b2f14"),
    ("#fed976", "#5c3f0d"),
    ("#feb24c", "#7d4a0a"),
    ("#fd8d3c", "#9a4a10"),
)
"""Fills from the coldest to the hottest, by day and by night; dark and light text is read on them (4.5:1 at least)."""


TAB_SHAPES: Final[Mapping[str, str]] = {
    "running": "<path d='M5 3l9 5-9 5z'/>",
    "succeeded": "<path d='M3 9l4 4 7-10' fill='none' stroke-width='3'/>",
    "failed": "<path d='M3 3l10 10M13 3L3 13' fill='none' stroke-width='3'/>",
    "waiting": "<circle cx='8' cy='8' r='6' fill='none' stroke-width='3'/><circle cx='8' cy='8' r='2'/>",
    "": "<circle cx='8' cy='8' r='5'/>",
}
"""Status of a run → what is drawn in the icon of its tab; the empty one is that of every other status. Their shapes
differ, for those who see no colours."""


def sign_of(kind: str) -> Sign:
    return SIGNS.get(kind) or SIGNS[""]


def sign_svg(kind: str, x: float, y: float) -> str:
    """The sign about a point. Classes say how it is painted: `k-agent`, `k-other`."""
    half = SIGN_SIZE / 2
    name = kind if kind in SIGNS and kind else "other"
    square = f"M{4 - half} {-half}H{half - 4}q4 0 4 4V{half - 4}q0 4-4 4H{4 - half}q-4 0-4-4V{4 - half}q0-4 4-4Z"
    return (
        f'<g class="sign k-{name}" transform="translate({x:.1f} {y:.1f})">'
        f'<path class="accent" d="{square}"/><path class="icon" d="{sign_of(kind).icon}"/></g>'
    )


def known_kinds(kinds: Iterable[str]) -> list[str]:
    """Each kind once, in the order of the table; those of packages come last."""
    present = set(kinds)
    return [*(each for each in SIGNS if each in present and each), *sorted(present - set(SIGNS))]
