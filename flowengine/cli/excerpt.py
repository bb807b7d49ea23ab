"""The line that a diagnostic speaks of, with a caret below it, as a terminal shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from unicodedata import east_asian_width

from flowengine.errors import Diagnostic

__all__ = ["excerpt"]

_WIDEST: Final = 160
"""Characters of a line that are shown."""


def excerpt(diagnostic: Diagnostic, text: str | None = None) -> str:
    r"""The source line and the caret, each after a line break; empty where there is no place to show.

    >>> print(excerpt(Diagnostic("FE203", "unknown", line=2, column=5), "a:\n  b: 1"))
    <BLANKLINE>
        2 |   b: 1
          |     ^
    """
    if diagnostic.line is None:
        return ""
    source = _text(diagnostic.file) if text is None else text
    lines = source.splitlines()
    if not 0 < diagnostic.line <= len(lines):
        return ""
    line = lines[diagnostic.line - 1].replace("\t", " ")[:_WIDEST]
    shown = f"\n{diagnostic.line:5} | {line}"
    column = diagnostic.column
    if column is None or not 0 < column <= len(line) + 1:
        return shown
    before = sum(2 if east_asian_width(each) in "WF" else 1 for each in line[: column - 1])
    return f"{shown}\n      | {' ' * before}^"


def _text(file: str | None) -> str:
    try:
        return "" if file is None else Path(file).read_text("utf-8", "replace")
    except (OSError, ValueError):
        return ""
