"""Rows as lines of text with aligned columns, wide characters counted as wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from flowengine.cli.terminal import safe

__all__ = ["table"]


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """One line a row; `right` are the columns that end flush. Cells are one line each.

    >>> table([["a", "1"], ["bcd", "10"]], right=[1])
    ['a     1', 'bcd  10']
    """
    cells = [[safe(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(cells[0]))] if cells else []
    return [
        "  ".join(_padded(cell, widths[column], column in right) for column, cell in enumerate(row)).rstrip()
        for row in cells
    ]


def _padded(cell: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if is_right else cell + space
