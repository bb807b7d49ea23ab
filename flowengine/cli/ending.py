"""Ends what a command does: reports an exception and chooses the exit code, and cancels a job at Ctrl-C or SIGTERM.

The first signal cancels the job, the second one ends the process. The handlers run between two instructions of the main
thread, so the second one also ends a node that blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar, cast
from unicodedata import east_asian_width

import anyio

from flowengine.cli.debugging import is_debugging, watch_loop_if_debugging
from flowengine.cli.terminal import complain
from flowengine.core import is_interrupt
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
    excerpt = f"\n{diagnostic.line:5} | {line}"
    column = diagnostic.column
    if column is None or not 0 < column <= len(line) + 1:
        return excerpt
    before = sum(2 if east_asian_width(each) in "WF" else 1 for each in line[: column - 1])
    return f"{excerpt}\n      | {' ' * before}^"


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
    if is_debugging():
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
        is_terminal = sys.stderr.isatty()
        return "\n".join(f"error: {each}{format_excerpt(each) if is_terminal else ''}" for each in error.diagnostics)
    if isinstance(error, InputError):
        return "\n".join(f"error: {line}" for line in str(error).splitlines())
    return f"error: {str(error) or type(error).__name__}".replace("\n", "\n  ")


def _format_bug(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"error: {error.filename!s}: {error.strerror}"
    lines = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {lines[0][:_MAX_MESSAGE]}" if lines else type(error).__name__
    if isinstance(error, OSError):
        return f"error: {message}"
    return f"error: {message} (a bug in FlowEngine or in the flow's code; FLOWENGINE_DEBUG=1 shows where)"


# --- Signals

INTERRUPTED: Final = 130
"""Exit code."""

_SHOW_CURSOR: Final = b"\x1b[?25h"

T = TypeVar("T")


def run_until_interrupted(job: Callable[[], Awaitable[T]]) -> T | None:
    """Run the job and return what it returns; None where a signal ended it, or a `KeyboardInterrupt` or a cancellation
    of its own. Its clean-up has run by then.

    After a signal the handlers stay: what is left is the end of the process, and a second signal in its last
    milliseconds ends it at once with the same exit code.
    """
    failure: BaseException | None = None
    stopping = _Stopping()

    async def main() -> T | None:
        nonlocal failure
        with watch_loop_if_debugging(), anyio.CancelScope() as scope, stopping.cancels(scope):
            try:
                return await job()
            except KeyboardInterrupt:  # by code of a node: the signals themselves are heard here
                return None
            except asyncio.CancelledError:
                if scope.cancel_called:
                    raise
                return None  # by code that cancelled the task that it runs in
            except BaseExceptionGroup as group:  # raised below: asyncio prints what it finds in a main task that died
                failure = group
        return None

    value: T | None = None
    with stopping.listening(), suppress(KeyboardInterrupt):  # of a task beside: asyncio ends its loop with it
        value = anyio.run(main)
    if failure is not None and is_interrupt(failure):
        return None
    if failure is not None:
        raise failure
    return value


class _Stopping:
    """Listens from before there is a loop until after it is gone: an interrupted start or end of a loop is a mess."""

    def __init__(self) -> None:
        self._is_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None

    @contextmanager
    def listening(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread alone.
            return
        before = {each: signal.signal(each, self._on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            if not self._is_asked:
                for number, handler in before.items():
                    signal.signal(number, handler)

    @contextmanager
    def cancels(self, scope: anyio.CancelScope) -> Generator[None]:
        """While this lasts, a signal cancels the scope; one that came before does at once."""
        self._scope, self._loop = scope, asyncio.get_running_loop()
        if self._is_asked:
            self._stop()
        try:
            yield
        finally:
            self._scope = self._loop = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked:
            _end_at_once()
        self._is_asked = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._scope is not None:
            complain("stopping; Ctrl-C again ends at once")
            self._scope.cancel()


def _end_at_once() -> None:
    """Nothing is cleaned up; what the journal has committed stays, and what this process started ends with it."""
    with suppress(Exception):  # it ends, whatever comes
        from flowengine.agents.skills.sandbox import end_below  # Only here.

        end_below(os.getpid())
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        os.write(2, _SHOW_CURSOR)
    os._exit(INTERRUPTED)
