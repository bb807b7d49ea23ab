"""Reports an exception on stderr, and chooses the exit code that goes with it. It catches nothing itself."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Final, cast
from unicodedata import east_asian_width

from flowengine.cli.terminal import complain
from flowengine.errors import (
    Diagnostic,
    EffectPendingError,
    FlowChangedError,
    FlowEngineError,
    FlowError,
    InputError,
    LimitError,
    RunError,
)

__all__ = ["exit_code", "format_excerpt", "report"]

# --- The source line with its caret

_MAX_WIDTH: Final = 160
"""Characters of a line that are shown."""


def format_excerpt(diagnostic: Diagnostic, text: str | None = None) -> str:
    r"""The source line and the caret, each after a line break; empty where there is no place to show.

    >>> print(format_excerpt(Diagnostic("FE203", "unknown", line=2, column=5), "a:\n  b: 1"))
    <BLANKLINE>
        2 |   b: 1
          |     ^
    """
    if diagnostic.line is None:
        return ""
    source = _read_source(diagnostic.file) if text is None else text
    lines = source.splitlines()
    if not 0 < diagnostic.line <= len(lines):
        return ""
    line = lines[diagnostic.line - 1].replace("\t", " ")[:_MAX_WIDTH]
    shown = f"\n{diagnostic.line:5} | {line}"
    column = diagnostic.column
    if column is None or not 0 < column <= len(line) + 1:
        return shown
    before = sum(2 if east_asian_width(each) in "WF" else 1 for each in line[: column - 1])
    return f"{shown}\n      | {' ' * before}^"


def _read_source(file: str | None) -> str:
    try:
        return "" if file is None else Path(file).read_text("utf-8", "replace")
    except (OSError, ValueError):
        return ""


_MAX_MESSAGE = 500
"""Characters of a foreign exception's message that are shown."""


def report(error: BaseException, *, has_run: bool = False) -> int:
    """Tell the error on stderr; the exit code. `has_run`: a run had begun when it happened."""
    error = _unwrap_group(error)
    if isinstance(error, FlowEngineError):
        complain(_format_lines(error))
    else:
        complain(_format_bug(error))
    if os.environ.get("FLOWENGINE_DEBUG", "") not in ("", "0"):
        complain("".join(traceback.format_exception(error)).rstrip())
    return exit_code(error, has_run=has_run)


def exit_code(error: BaseException, *, has_run: bool = False) -> int:
    """The code of an error; one of our own before anything ran is the command line's or the flow's.

    >>> exit_code(InputError("missing input 'topic'"))
    2
    """
    if isinstance(error, FlowChangedError):
        return 5
    if isinstance(error, EffectPendingError):
        return 3
    if isinstance(error, LimitError):
        return 4
    if isinstance(error, FlowEngineError) and not isinstance(error, RunError) and not has_run:
        return 2
    return 1


def _unwrap_group(error: BaseException) -> BaseException:
    """Returns the single exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        first, *others = group.exceptions
        if others:
            return group
        error = first
    return error


def _format_lines(error: FlowEngineError) -> str:
    """Each problem on its own line; the lines of one message below each other."""
    if isinstance(error, FlowError) and error.diagnostics:
        shown = sys.stderr.isatty()
        return "\n".join(f"error: {each}{format_excerpt(each) if shown else ''}" for each in error.diagnostics)
    if isinstance(error, InputError):
        return "\n".join(f"error: {line}" for line in str(error).splitlines())
    return f"error: {str(error) or type(error).__name__}".replace("\n", "\n  ")


def _format_bug(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"error: {error.filename!s}: {error.strerror}"
    said = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {said[0][:_MAX_MESSAGE]}" if said else type(error).__name__
    if isinstance(error, OSError):
        return f"error: {message}"
    return f"error: {message} (a bug in FlowEngine or in the flow's code; FLOWENGINE_DEBUG=1 shows where)"
