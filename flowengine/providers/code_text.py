"""The text of a source file as lines, read so that nothing but a regular file of text is ever taken for one.

It knows bytes and lines. What they define is `outline`'s matter.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["lines_of"]

_MOST: Final = 1_000_000
"""Bytes that are read."""
_LOOKED_AT: Final = 8192
"""Bytes of the beginning in which a zero makes the file no text."""
_WRITTEN: Final = 500
"""Characters to a line, on average, beyond which no person wrote it."""

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""A link or a pipe may have taken the file's place since it was listed."""


def lines_of(path: Path) -> list[str] | None:
    """The lines of a text file, without their ends; None where there is none. What is no UTF-8 is replaced."""
    content = _content(path)
    if content is None or b"\0" in content[:_LOOKED_AT]:
        return None
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.removesuffix("\n").split("\n")
    return lines if text.strip() and len(text) <= _WRITTEN * len(lines) else None


def _content(path: Path) -> bytes | None:
    try:
        with open(os.open(path, _FLAGS), "rb") as file:
            return file.read(_MOST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError):  # Gone, or not to be read; the latter: no name of a file.
        return None
