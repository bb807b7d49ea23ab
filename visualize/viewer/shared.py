"""Lists what Python and the pages' script both say: glyphs, orders of statuses, words, bounds and shapes.

Each value has its place in Python; `python -m visualize.viewer.shared` writes them all into `static/shared.js`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import visualize
from flowengine.core import CAUSE_TEXTS
from visualize.edge_states import OPEN_STATUSES, STATE_ORDER
from visualize.icons import TAB_SHAPES
from visualize.layout import CORNER_SLACK, CORNERS, SPACING
from visualize.picture import STATUS_ORDER
from visualize.progress import SETTLED
from visualize.run_difference import MOST_RUNS
from visualize.run_times import PARTS
from visualize.style import GLYPHS
from visualize.viewer.actions import LONG_VALUE
from visualize.viewer.graph import BUNDLE, COMPACT, FOLDED, LINE_HEIGHT, MAX_DETAIL, MAX_NAME, NARROW, PAD, UNFOLDED

FILE: Final = Path(visualize.__file__).parent / "static" / "shared.js"


def shared_tables() -> dict[str, Any]:
    """The tables, as JSON has them."""
    return {
        "glyphs": GLYPHS,
        "statusOrder": STATUS_ORDER,
        "settled": [status for status in STATUS_ORDER if status in SETTLED],
        "open": [status for status in STATUS_ORDER if status in OPEN_STATUSES],
        "edgeStateOrder": STATE_ORDER,
        "causes": CAUSE_TEXTS,
        "parts": PARTS,
        "tabShapes": TAB_SHAPES,
        "spacing": {"inRow" if name == "in_row" else name: value for name, value in SPACING._asdict().items()},
        "corners": CORNERS,
        "cornerSlack": CORNER_SLACK,
        "mostBoxes": COMPACT,
        "bundle": BUNDLE,
        "lineHeight": LINE_HEIGHT,
        "narrow": NARROW,
        "pad": PAD,
        "maxName": MAX_NAME,
        "maxDetail": MAX_DETAIL,
        "folded": FOLDED,
        "unfolded": UNFOLDED,
        "longValue": LONG_VALUE,
        "mostCompared": MOST_RUNS,
    }


def shared_module() -> str:
    """The tables as a module of the script."""
    lines = [f"  {name}: {json.dumps(value, ensure_ascii=False)},\n" for name, value in shared_tables().items()]
    return (
        "// The tables that Python has too. Written by `python -m visualize.viewer.shared`; a test compares them.\n\n"
        f'/** @type {{import("./types.d.ts").Shared}} */\nexport const SHARED = {{\n{"".join(lines)}}};\n'
    )


if __name__ == "__main__":
    FILE.write_text(shared_module(), encoding="utf-8")
