"""Formats rows as lines of text with aligned columns; wide characters count as wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from flowengine.cli.terminal import escape_controls

__all__ = ["format_table"]


def format_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """One line a row; `right` are the columns that end flush. Cells are one line each.

    >>> format_table([["a", "1"], ["bcd", "10"]], right=[1])
    ['a     1', 'bcd  10']
    """
    cells = [[escape_controls(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(cells[0]))] if cells else []
    return [
        "  ".join(_pad(cell, widths[column], column in right) for column, cell in enumerate(row)).rstrip()
        for row in cells
    ]


def _pad(cell: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if is_right else cell + space
