"""Writes what became of rows into a file of JSON lines or a table, in the rows' order, failures in their places.

The file is written beside its place and put there when the rows have ended, or were stopped: a reader never
finds a half of it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from flowengine.core import dumps, format_value, open_output, tells_refusals
from flowengine.errors import InputError
from flowengine.runtime.local import RowResult

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet would compute."""


def to_record(result: RowResult) -> dict[str, Any]:
    """A result as an object of JSON."""
    error = result.error
    return {
        "row": result.row.number,
        "run": result.run_id,
        "status": result.status,
        "outputs": dict(result.outputs),
        "error": None if error is None else {"type": error.type, "message": error.message, "node": result.node},
        "model_calls": result.spent.model_calls,
        "tokens": result.spent.tokens,
        "cost_usd": None if result.spent.unpriced_calls else result.spent.cost_usd,
        **({"stand_in": True} if result.has_stand_in else {}),
        "seconds": round(result.seconds, 6),
        "data": result.row.data,
    }


_NOT_WRITTEN: Final = frozenset({".xlsx", ".xls", ".ods", ".parquet", ".html", ".yaml", ".yml"})
"""Endings of files that lines of JSON would not be, whatever opens them."""


class ResultsFile:
    """Open it with `with`; at its end the file is in its place, whatever ended it."""

    def __init__(self, path: str, *, columns: Sequence[str], outputs: Sequence[str]) -> None:
        """`columns` of the data and `outputs` of the flow are the columns of a table."""
        self.path = Path(path)
        self._is_table = self.path.suffix.lower() in (".csv", ".tsv")
        if self.path.suffix.lower() in _NOT_WRITTEN:
            raise InputError(f"-o {path}: results are written as a table (.csv, .tsv) or as lines of JSON (.jsonl)")
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise InputError(f"-o {path}: there is no folder for such a file")
        self._stack = ExitStack()
        file = self._stack.enter_context(open_output(path))
        self._file = TextIOWrapper(file, "utf-8", "backslashreplace", newline="")
        self._columns = list(columns)
        self._outputs = list(outputs)
        if self._is_table:
            self._table = csv.writer(self._file, delimiter="\t" if self.path.suffix.lower() == ".tsv" else ",")
            names = {*columns}
            row, *own = (
                _find_free_name(name, "run", names)
                for name in ("row", "status", "error", "cost_usd", "run", "stand_in")
            )
            heads = [_find_free_name(name, "output", names) for name in outputs]
            self._table.writerow([row, *columns, *heads, *own])

    def write(self, result: RowResult) -> None:
        """Write the next result."""
        record = to_record(result)
        with tells_refusals(self.path):
            if self._is_table:
                self._table.writerow(self._to_cells(result, record))
            else:
                self._file.write(dumps(record) + "\n")

    def _to_cells(self, result: RowResult, record: Mapping[str, Any]) -> list[str]:
        data: Mapping[str, Any] = result.row.data or {}
        error = "" if result.error is None else result.error.message
        input_cells = [to_safe_cell(data.get(name)) for name in self._columns]
        output_cells = [to_safe_cell(result.outputs.get(name)) for name in self._outputs]
        cost = "" if record["cost_usd"] is None else f"{record['cost_usd']:.6g}"
        own = [result.status, to_safe_cell(error), cost, result.run_id or "", "yes" if result.has_stand_in else ""]
        return [str(result.row.number), *input_cells, *output_cells, *own]

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack, tells_refusals(self.path):
            self._file.flush()


def _find_free_name(name: str, prefix: str, names: set[str]) -> str:
    """A column's name that no other one has: the data's columns keep theirs."""
    while name in names:
        name = f"{prefix}.{name}"
    names.add(name)
    return name


def _to_cell(value: Any) -> str:
    return "" if value is None else format_value(value)


def to_safe_cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula: what a model wrote must not be computed.

    >>> to_safe_cell("=1+1"), to_safe_cell(-1.5), to_safe_cell("-1.5")
    ("'=1+1", '-1.5', '-1.5')
    """
    text = _to_cell(value)
    if not isinstance(value, str) or not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
