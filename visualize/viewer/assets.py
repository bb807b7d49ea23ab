"""The script and the style sheet that the pages use, as files and as one text for an exported page."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from visualize.style import LOOKS, PLAIN, Look

__all__ = ["ASSETS", "SCRIPTS", "asset", "inline_source", "script", "style_sheet"]

SCRIPTS: Final = ("panzoom.js", "fold.js", "graph.js", "rows.js", "panel.js", "run.js", "lists.js")
"""In the order in which they are run."""
ASSETS: Final = {"viewer.js": "text/javascript; charset=utf-8", "viewer.css": "text/css; charset=utf-8"}
"""Name behind `/static/` → its media type."""

_DASHES: Final = {"solid": "none", "dashed": "6 4", "dotted": "2 3"}


def asset(name: str) -> tuple[bytes, str]:
    """The file behind `/static/` and its media type; `KeyError` where there is none."""
    return {"viewer.js": script, "viewer.css": style_sheet}[name]().encode(), ASSETS[name]


@cache
def script() -> str:
    """All of our script: its files in one scope of their own."""
    return "\n".join(["(() => {", '"use strict";', *map(_read, SCRIPTS), "})();", ""])


@cache
def style_sheet() -> str:
    """The style sheet, with the looks of the statuses from the one table that all pictures share."""
    looks = {"plain": PLAIN, "paused": LOOKS["waiting"], **LOOKS}
    day = [_rules(name, look, look.border, look.fill) for name, look in looks.items()]
    night = [_rules(name, look, *look.night) for name, look in looks.items()]
    return "\n".join([_read("viewer.css"), *day, "@media (prefers-color-scheme: dark) {", *night, "}", ""])


def inline_source(text: str) -> str:
    """What a content security policy calls an inline script or style of that text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _rules(status: str, look: Look, border: str, fill: str) -> str:
    stroke = f"stroke: {border}; stroke-width: {look.width}; stroke-dasharray: {_DASHES[look.dash]}; fill: {fill}"
    return (
        f".node.s-{status} > path {{ {stroke}; }}\n"
        f".badge.s-{status}, .bar.s-{status} {{ border: {max(1.0, look.width / 1.5):.1f}px {look.dash} {border}; "
        f"background-color: {fill}; }}\n"
        f".glyph.s-{status} {{ color: {border}; }}"
    )


def _read(name: str) -> str:
    return files("visualize").joinpath("static", name).read_text(encoding="utf-8")
