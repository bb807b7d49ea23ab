"""The two ways out: results on stdout, everything else on stderr. What is printed is made safe.

Text from models, files and nodes may hold escape sequences; a terminal must not obey them. A pipe often ends on one
(`| less -R`, `| tee`), so it gets the same, in UTF-8. JSON has escapes of its own for them, and stays the same value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Final, TextIO

__all__ = ["Results", "complain", "has_live_stderr", "safe"]

_UNSAFE: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"},
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)},
}
"""Control characters, and those that turn the direction of what follows → their escapes."""
_UNSAFE_IN_JSON: Final = {code: f"\\u{code:04x}" for code in _UNSAFE}


def safe(text: str) -> str:
    r"""The text with its control characters written out; lines and tabs stay.

    >>> safe("ok\x1b[31m red")
    'ok\\x1b[31m red'
    """
    return text.replace("\r\n", "\n").translate(_UNSAFE)


def complain(text: str) -> None:
    """A line or more on stderr: an error, a notice, a hint."""
    with suppress(BrokenPipeError):
        print(safe(text), file=sys.stderr, flush=True)


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
        self._put(safe(text))

    def json(self, text: str) -> None:
        """A JSON text and the end of its line: control characters become JSON's own escapes, the value stays."""
        self._put(text.translate(_UNSAFE_IN_JSON))

    def document(self, text: str) -> None:
        """A text of another format that is written to be read by a program: safe on a terminal, else as it is."""
        self._put(safe(text) if self.on_terminal else text)

    def _put(self, text: str) -> None:
        encoding = (self._stream.encoding or "utf-8") if self.on_terminal else "utf-8"
        self.bytes(f"{text}\n".encode(encoding, "backslashreplace"))

    def attempt(self, text: str) -> None:
        """As `json`, for those who must not raise: the first failure is kept, and what follows it is not written."""
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
            self._let_go()
            if not isinstance(error, BrokenPipeError):
                raise

    def _let_go(self) -> None:
        """What the buffer still holds would be an error at the end of the process."""
        with suppress(OSError, ValueError):  # a stream without a file has no such end
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    @contextmanager
    def alone(self) -> Generator[None]:
        """While a flow's own code runs, what it prints goes to stderr."""
        with redirect_stdout(sys.stderr):
            yield


def has_live_stderr() -> bool:
    """Whether a picture that changes can be drawn on stderr."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
