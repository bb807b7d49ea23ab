"""Draws a picture as PNG: its SVG, rasterised at twice its size by resvg (the extra `png`), else by `dot`."""

from __future__ import annotations

from typing import Final

from flowengine.errors import PictureError
from flowengine.version import install_hint
from visualize.dot import DOT_NODES, draw_with_dot
from visualize.picture import Picture
from visualize.style import Heat
from visualize.svg import Theme, draw_svg

_ZOOM: Final = 2.0
_MOST_PIXELS: Final = 16_000
"""Pixels of the longer side, at most: a larger picture is drawn smaller."""


def draw_png(picture: Picture, *, theme: Theme = "light", heat: Heat = "", timeout: float = 10.0) -> bytes:
    """The picture as PNG; `timeout`: seconds that `dot` may take where resvg is not installed.

    `PictureError` where neither can draw it.
    """
    if len(picture.nodes) > DOT_NODES:
        raise PictureError(
            f"{len(picture.nodes):,} nodes are too many for a PNG; ask for svg, which is drawn at any size"
        )
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        return _draw_by_dot(picture, timeout)
    drawing = draw_svg(picture, theme="light" if theme == "auto" else theme, heat=heat)
    longest = max(drawing.width, drawing.height)
    return svg_to_bytes(svg_string=drawing.text, zoom=min(_ZOOM, _MOST_PIXELS / longest))


def _draw_by_dot(picture: Picture, timeout: float) -> bytes:
    try:
        return draw_with_dot(picture, "png", timeout)
    except PictureError as error:
        advice = f"for PNGs without it: {install_hint('png')}"
        raise PictureError(f"{error}; {advice}") from error
