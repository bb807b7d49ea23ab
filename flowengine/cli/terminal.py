"""Writes results to stdout and everything else to stderr, and makes safe what it prints.

Text from models, files and nodes may hold escape sequences; a terminal must not obey them. A pipe often ends on one
(`| less -R`, `| tee`), so it gets the same, in UTF-8. JSON has escapes of its own for them, and stays the same value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import datetime
from typing import Any, Final, TextIO

_UNSAFE: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"},
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)},
}
"""Control characters, and those that turn the direction of what follows → their escapes."""
_UNSAFE_IN_JSON: Final = {code: f"\\u{code:04x}" for code in _UNSAFE}


def escape_controls(text: str) -> str:
    r"""The text with its control characters written out; lines and tabs stay.

    >>> escape_controls("ok\x1b[31m red")
    'ok\\x1b[31m red'
    """
    return text.replace("\r\n", "\n").translate(_UNSAFE)


def complain(text: str) -> None:
    """A line or more on stderr: an error, a notice, a hint. Lost where it cannot be written: a run is worth more."""
    try:
        print(escape_controls(text), file=sys.stderr, flush=True)
    except OSError:  # Its reader is gone, or the disk is full.
        discard_buffer(sys.stderr)


def discard_buffer(stream: TextIO) -> None:
    """Discards what a stream could not write, which would raise at the end of the process."""
    with suppress(OSError, ValueError):  # a stream without a file has no such end
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Results:
    """stdout, as it is when the command begins, for results alone.

    When its reader has gone away, what is written goes nowhere, quietly: the run is worth more
    than its print-out, which the journal has as well.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_open = True
        self.failure: OSError | None = None
        """Why a line was lost that `attempt` was to write: a full disk."""

    @property
    def on_terminal(self) -> bool:
        return self._stream.isatty()

    def line(self, text: str) -> None:
        """The text and the end of its line."""
        self._put(escape_controls(text))

    def lines(self, texts: Iterable[str]) -> None:
        for each in texts:
            self.line(each)

    def json(self, text: str) -> None:
        """A JSON text and the end of its line: control characters become JSON's own escapes, the value stays."""
        self._put(text.translate(_UNSAFE_IN_JSON))

    def value(self, value: Any) -> None:
        """A value as indented JSON."""
        from flowengine.core import dumps  # `--help` does without.

        self.json(dumps(value, indent=2))

    def document(self, text: str) -> None:
        """A text of another format that is written to be read by a program: safe on a terminal, else as it is."""
        self._put(escape_controls(text) if self.on_terminal else text)

    def _put(self, text: str) -> None:
        encoding = (self._stream.encoding or "utf-8") if self.on_terminal else "utf-8"
        self.bytes(f"{text}\n".encode(encoding, "backslashreplace"))

    def attempt(self, text: str) -> None:
        """Writes JSON like `json`, but never raises: the first failure is kept, and nothing after it is written."""
        try:
            self.json(text)
        except OSError as error:
            self.failure = error

    def bytes(self, data: bytes) -> None:
        if not self._is_open:
            return
        try:
            self._stream.flush()
            self._stream.buffer.write(data)
            self._stream.buffer.flush()
        except OSError as error:
            self._is_open = False
            discard_buffer(self._stream)
            if not isinstance(error, BrokenPipeError):
                error.filename = "stdout"
                raise

    @contextmanager
    def alone(self) -> Generator[None]:
        """While a flow's own code runs, what it prints goes to stderr."""
        with redirect_stdout(sys.stderr):
            yield


def has_live_stderr() -> bool:
    """Tells whether a picture that changes can be drawn on stderr."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def width_of_stderr() -> int:
    """Columns of the terminal on stderr; 80 where it does not say."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80


# --- JSON lines as a result


def put_lines(lines: Iterable[str], output: str | None) -> bool:
    """Write them one by one; whether they went into a file."""
    if output is None:
        results = Results()
        for line in lines:
            results.json(line)
        return False
    from flowengine.core import write_output  # Most results go to stdout.

    write_output(output, (f"{line}\n" for line in lines))
    return True


# --- Seconds, tokens, money and moments


def format_span(seconds: float | None) -> str:
    """A duration in at most two units; nothing for None.

    >>> format_span(0.0412), format_span(75)
    ('41 ms', '1 min 15 s')
    """
    from flowengine.core import seconds_text  # `--help` needs no records.

    return "" if seconds is None else seconds_text(seconds)


def format_seconds(seconds: float) -> str:
    """A duration in whole seconds, for what changes while it is read.

    >>> format_seconds(-1.0), format_seconds(4.8), format_seconds(75)
    ('0 s', '4 s', '1 min 15 s')
    """
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 60 else format_span(whole)


def format_tokens(count: int | None) -> str:
    """
    >>> format_tokens(1234)
    '1,234 tokens'
    """
    return "" if count is None else f"{count:,} token{'s' * (count != 1)}"


def format_count(count: int | None) -> str:
    """
    >>> format_count(1234), format_count(None)
    ('1,234', '?')
    """
    return "?" if count is None else f"{count:,}"


def format_dollars(cost: float | None, *, is_whole: bool = True) -> str:
    """A cost in US dollars; `is_whole` is False where some calls have no known price.

    >>> format_dollars(0.001234), format_dollars(12.5), format_dollars(0.01, is_whole=False)
    ('$0.0012', '$12.50', '$0.0100+')
    """
    from flowengine.core import cost_text  # `--help` needs no records.

    return "" if cost is None else cost_text(cost) + "+" * (not is_whole)


def format_clock(at: float) -> str:
    """A moment in local time."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


# --- Tables


def cut_cell(text: str, width: int) -> str:
    """The beginning of a text, on one line, in at most so many columns of a terminal.

    >>> cut_cell("one two three", 8), cut_cell("請求書です", 6)
    ('one two…', '請求…')
    """
    from rich.cells import cell_len, set_cell_size  # `--help` needs no rich.

    line = " ".join(escape_controls(text).split())
    if cell_len(line) <= width:
        return line
    return f"{set_cell_size(line, max(width - 1, 0)).rstrip()}…"


def fit_columns(rows: Sequence[Sequence[str]], width: int, dropped: Sequence[str]) -> list[list[str]]:
    """The table, whose first row has the names, in so many columns of a terminal: what is in `dropped` goes, the first
    first, and then the longest column is cut.

    >>> fit_columns([["RUN", "FLOW"], ["a1", "greet"]], 6, ["FLOW"])
    [['RUN'], ['a1']]
    """
    from rich.cells import cell_len

    cells = [[cut_cell(cell, 10_000) for cell in row] for row in rows]

    def widths() -> list[int]:
        return [max(cell_len(row[column]) for row in cells) for column in range(len(cells[0]))]

    for name in dropped:
        if sum(widths()) + 2 * (len(cells[0]) - 1) <= width:
            break
        if name in cells[0] and len(cells[0]) > 1:
            column = cells[0].index(name)
            cells = [[*row[:column], *row[column + 1 :]] for row in cells]
    while (over := sum(sizes := widths()) + 2 * (len(sizes) - 1) - width) > 0:
        column = sizes.index(max(sizes))
        if sizes[column] <= 6:
            break
        room = max(6, sizes[column] - over)
        for row in cells:
            row[column] = cut_cell(row[column], room)
    return cells


def format_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """One line a row; `right` are the columns that end flush. Cells are one line each.

    >>> format_table([["a", "1"], ["bcd", "10"]], right=[1])
    ['a     1', 'bcd  10']
    """
    from rich.cells import cell_len  # `--help` needs no rich.

    def pad(cell: str, width: int, is_right: bool) -> str:
        space = " " * (width - cell_len(cell))
        return space + cell if is_right else cell + space

    cells = [[escape_controls(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(cells[0]))] if cells else []
    return [
        "  ".join(pad(cell, widths[column], column in right) for column, cell in enumerate(row)).rstrip()
        for row in cells
    ]
