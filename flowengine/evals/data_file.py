"""Reads rows of data for a flow from a file of JSON lines or of comma-separated values.

The file is read row by row, so its size does not matter, and looked through once before anything runs: what is no
JSON, no table, or has no column for an input that the flow needs is told with its line. A value that does not fit its
input is the matter of its row.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from flowengine.core import EMPTY, load_json, open_regular
from flowengine.errors import Diagnostic, FlowError, InputError, did_you_mean
from flowengine.journal import MAX_DEPTH
from flowengine.nodes import REQUIRED, InputField, checked_inputs, parse_text
from flowengine.runtime.local import DataRow

_MAX_LINE: Final = 64_000_000
"""Bytes of one row."""
_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep"
_NO_TEXT: Final = (b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"SQLite format 3\0", b"Obj\x01", b"ARROW1")
"""How files begin that people have rows in: Parquet, workbooks, gzip, databases, Avro, Arrow."""
_TABLE_ERRORS: Final = {
    "unexpected end of data": "a quoted cell of this row does not end",
    "new-line character": "a line ends in a carriage return alone",
}
"""How an error of the library begins → what is to be said of the row's first line."""


class DataError(FlowError):
    """A data file that cannot be used; `diagnostics` says where."""


class RawRow(NamedTuple):
    """One row as the file has it."""

    number: int
    line: int
    """The first one that it takes."""
    values: Mapping[str, Any]
    is_text: bool
    """Whether its values are texts whose meaning the flow's inputs tell."""


# --- Rows of a file


def read_rows(path: str | PathLike[str]) -> Iterator[RawRow]:
    """The rows of a file, one by one: `.csv` and `.tsv` are tables with a head, anything else is JSON lines.

    `DataError` for the first line that is none.
    """
    where = Path(path)
    suffix = where.suffix.lower()
    try:
        with open_regular(where) as file:
            if suffix in (".csv", ".tsv"):
                yield from _read_table(where, file, "," if suffix == ".csv" else "\t")
            else:
                yield from _read_json_lines(where, file)
    except OSError as error:
        raise _make_error(where, f"cannot read the file: {error.strerror or error}") from error


def _read_json_lines(path: Path, file: IO[bytes]) -> Iterator[RawRow]:
    number = 0
    for line, data in enumerate(_lines(path, file), 1):
        text = data.strip(b" \t\r\n")
        if not text:
            continue
        number += 1
        try:
            value: Any = load_json(text.decode("utf-8"))
            _check_depth(value)
        except json.JSONDecodeError as error:
            raise _make_error(path, f"expected one JSON object on the line: {error.msg}", line, error.colno) from None
        except (ValueError, RecursionError) as error:
            reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            reason = _TOO_DEEP if isinstance(error, RecursionError) else reason
            raise _make_error(path, f"expected one JSON object on the line: {reason}", line) from None
        if not isinstance(value, dict):
            raise _make_error(
                path, f"expected one JSON object on the line, found {text[:40].decode('utf-8', 'replace')}", line
            )
        yield RawRow(number, line, cast("dict[str, Any]", value), False)


def _check_depth(value: Any) -> None:
    """Raise `ValueError` for a value that neither a journal nor a file of results could hold."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [each for value in level for each in _list_parts(value)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _list_parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    first = True
    while data := file.readline(_MAX_LINE + 1):
        if len(data) > _MAX_LINE:
            raise _make_error(path, f"a row has at most {_MAX_LINE:,} bytes")
        if first and data.startswith(_NO_TEXT):
            raise _make_error(path, "it is no text: expected .csv, .tsv, or one JSON object on each line")
        yield data.removeprefix(b"\xef\xbb\xbf") if first else data
        first = False


def _read_table(path: Path, file: IO[bytes], delimiter: str) -> Iterator[RawRow]:
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_LINE))  # One for all readers: it is never lowered.
    reader, began = csv.reader(_decode_file(path, file), delimiter=delimiter, strict=True), 1
    try:
        head = next((cells for cells in reader if cells), None)
        if head is None:
            return
        head = [name.strip() for name in head]
        _check_head(path, reader.line_num, head, delimiter)
        number, began = 0, reader.line_num + 1
        for cells in reader:
            line, began = began, reader.line_num + 1
            if not cells:
                continue
            number += 1
            if len(cells) != len(head):
                raise _make_error(path, f"expected {len(head)} cells as in the head, found {len(cells)}", line)
            yield RawRow(number, line, dict(zip(head, cells, strict=True)), True)
    except csv.Error as error:
        reason = next((ours for theirs, ours in _TABLE_ERRORS.items() if str(error).startswith(theirs)), str(error))
        raise _make_error(path, f"expected comma-separated values: {reason}", began) from None


def _check_head(path: Path, line: int, head: Sequence[str], delimiter: str) -> None:
    other = next((each for each in ",;\t" if len(head) == 1 and each != delimiter and each in head[0]), None)
    if other is not None:
        expectation = (
            "cells with tabs between them" if delimiter == "\t" else "comma-separated values (.tsv: with tabs)"
        )
        raise _make_error(
            path, f"expected {expectation}, found one column {head[0]!r:.80}: is {other!r} between them?", line
        )
    for place, name in enumerate(head, 1):
        if not name:
            raise _make_error(path, f"column {place} has no name in the head", line)
        if head.index(name) != place - 1:
            raise _make_error(path, f"two columns are called '{name}'", line)


def _decode_file(path: Path, file: IO[bytes]) -> Iterator[str]:
    for line, data in enumerate(_lines(path, file), 1):
        try:
            yield data.decode("utf-8")
        except UnicodeDecodeError:
            raise _make_error(path, "it is not UTF-8 text", line) from None


def _make_error(path: Path, message: str, line: int | None = None, column: int | None = None) -> DataError:
    return DataError([Diagnostic("FE117", message, str(path), line, column)])


# --- Rows for a flow

_MOST_TOLD: Final = 20
"""Invalid rows that are told one by one."""


class DataFile(NamedTuple):
    """A file that was looked through, and what its columns are to the flow. Iterate it as often as you like."""

    path: Path
    fields: Mapping[str, InputField] | None
    mapping: Mapping[str, str]
    """Column → input, where they are not called the same."""
    always: Mapping[str, Any]
    """Inputs that every row gets."""
    total: int
    columns: Sequence[str]
    unused: Sequence[str]
    """Columns that no input takes."""
    invalid: Sequence[str] = ()
    """Why rows cannot be run, each with its line."""

    def rows(self) -> Iterator[DataRow]:
        """Yields the inputs of each row, or why they are invalid."""
        for raw in read_rows(self.path):
            yield self.row_of(raw)

    def tell_invalid(self, tell: Callable[[str], object]) -> None:
        """Tell which rows cannot be run, before any other is."""
        for problem in self.invalid[:_MOST_TOLD]:
            tell(f"invalid: {problem}")
        if len(self.invalid) > _MOST_TOLD:
            tell(f"invalid: {len(self.invalid) - _MOST_TOLD:,} more rows")

    def row_of(self, raw: RawRow) -> DataRow:
        """Returns the inputs of one row."""
        try:
            inputs = self._inputs(raw)
            checked_inputs(_without_files(self.fields), inputs)
        except InputError as error:
            return DataRow(raw.number, EMPTY, f"{self.path}:{raw.line}: {error}", raw.values)
        return DataRow(raw.number, inputs, None, raw.values)

    def _inputs(self, raw: RawRow) -> Mapping[str, Any]:
        inputs: dict[str, Any] = {}
        for column, value in raw.values.items():
            name = self.mapping.get(column, column)
            if name in self.always or not self._takes(column, name):
                continue
            field = None if self.fields is None else self.fields[name]
            if not raw.is_text:
                inputs[name] = value
            elif value or field is None or _takes_empty_text(field):
                inputs[name] = parse_text(name, value, field)
        return {**inputs, **self.always}

    def _takes(self, column: str, name: str) -> bool:
        """Tells whether the input gets the column; one that another column is mapped to does not get its namesake."""
        if self.fields is not None and name not in self.fields:
            return False
        return column in self.mapping or name not in self.mapping.values()


def _takes_empty_text(field: InputField) -> bool:
    """Tells whether an empty cell is a value of the input: it is an empty text, and nothing for any other type."""
    try:
        return parse_text("", "", field) == ""
    except InputError:
        return False


def _without_files(fields: Mapping[str, InputField] | None) -> Mapping[str, InputField] | None:
    """The inputs as they can be looked at before files are taken in."""
    if fields is None:
        return None
    return {
        name: InputField(default=each.default) if each.type == "file" or each.media_types is not None else each
        for name, each in fields.items()
    }


def parse_mapping(pairs: Iterable[str]) -> Mapping[str, str]:
    """Read `column=input` pairs.

    >>> parse_mapping(["text=message"])
    {'text': 'message'}
    """
    mapping: dict[str, str] = {}
    for pair in pairs:
        column, equals, name = (part.strip() for part in pair.partition("="))
        if not equals or not column or not name:
            raise InputError(f"--map {pair!r:.80}: write it as COLUMN=INPUT")
        if column in mapping:
            raise InputError(f"--map: column '{column}' is mapped twice")
        if name in mapping.values():
            raise InputError(f"--map: two columns are mapped to input '{name}'")
        mapping[column] = name
    return mapping


def open_data(
    path: str | PathLike[str],
    fields: Mapping[str, InputField] | None,
    mapping: Mapping[str, str] = EMPTY,
    always: Mapping[str, Any] = EMPTY,
) -> DataFile:
    """Look through a file; `DataError` or `InputError` where it cannot feed the flow, before anything runs."""
    where, columns, count = Path(path), dict[str, None](), 0
    for raw in read_rows(where):
        columns.update(dict.fromkeys(raw.values))
        count += 1
    if not count:
        raise _make_error(where, "it has no rows")
    data = DataFile(where, fields, mapping, always, count, list(columns), ())
    problems = list(_find_problems(data))
    if problems:
        raise InputError("\n".join(problems))
    unused = [each for each in columns if fields is not None and mapping.get(each, each) not in fields]
    invalid = [row.problem for row in data.rows() if row.problem is not None] if fields is not None else ()
    return data._replace(unused=unused, invalid=invalid)


def _find_problems(data: DataFile) -> Iterator[str]:
    for column, name in data.mapping.items():
        if column not in data.columns:
            yield f"--map {column}={name}: {data.path} has no column '{column}'{did_you_mean(column, data.columns)}"
        if data.fields is not None and name not in data.fields:
            yield f"--map {column}={name}: the flow has no input '{name}'{did_you_mean(name, data.fields)}"
    names = {data.mapping.get(each, each) for each in data.columns} | set(data.always)
    for name, field in (data.fields or {}).items():
        if field.default is REQUIRED and name not in names:
            near = did_you_mean(name, data.columns)
            has = ", ".join(data.columns[:12])
            yield f"{data.path} has no column for input '{name}' (it has: {has}){near}: --map COLUMN={name}"
