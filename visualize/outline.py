"""The shape of each kind of node as an SVG path round a box."""

from __future__ import annotations

from typing import Final

from visualize.layered import Box
from visualize.style import SHAPES

__all__ = ["outline", "slack"]

_CORNERS: Final = {"hexagon": (12.0, 1 / 3), "diamond": (20.0, 1 / 2), "octagon": (8.0, 1 / 6)}
"""How far a corner is cut: pixels of its width, and the share of its height (a half meets in a point)."""


def outline(kind: str, box: Box) -> str:
    """The path's data; other kinds than those of flows are rectangles."""
    shape = SHAPES.get(kind, "rectangle")
    left, right = box.x - box.width / 2, box.x + box.width / 2
    top, bottom = box.y - box.height / 2, box.y + box.height / 2
    edge = f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"
    if shape == "rounded":
        return _rounded(left, top, right, bottom, 9.0)
    if shape in _CORNERS:
        inset, share = _CORNERS[shape]
        return _cut_corners(left, top, right, bottom, inset, box.height * share)
    if shape == "stack":
        return f"{edge}M{left + 4:.1f} {top:.1f}v-4H{right + 4:.1f}V{bottom - 4:.1f}h-4"
    if shape == "folder":
        return f"{edge}M{left:.1f} {top:.1f}v-5h28l6 5"
    if shape == "house":
        return f"{edge}M{left:.1f} {top:.1f}L{box.x:.1f} {top - 9:.1f}L{right:.1f} {top:.1f}"
    return edge


def slack(kind: str) -> float:
    """Pixels that a shape's corners take of a line's room."""
    return 18.0 if SHAPES.get(kind) in ("hexagon", "diamond") else 0.0


def _rounded(left: float, top: float, right: float, bottom: float, r: float) -> str:
    return (
        f"M{left + r:.1f} {top:.1f}H{right - r:.1f}q{r} 0 {r} {r}V{bottom - r:.1f}q0 {r} -{r} {r}"
        f"H{left + r:.1f}q-{r} 0 -{r} -{r}V{top + r:.1f}q0 -{r} {r} -{r}Z"
    )


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
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z"
