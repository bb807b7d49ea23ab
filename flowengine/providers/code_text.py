"""The text of a source file as lines, read so that nothing but a regular file of text is ever taken for one.

It knows bytes and lines. What they define is `outline`'s matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flowengine.flow_paths import open_regular

__all__ = ["is_written", "lines_of"]

_MOST: Final = 1_000_000
"""Bytes that are read."""
_LOOKED_AT: Final = 8192
"""Bytes of the beginning in which a zero makes the file no text."""
_WIDTH: Final = 500
"""Characters that a line of code has on average, at most."""


def lines_of(path: Path) -> list[str] | None:
    """The lines of a text file, without their ends; None where there is none. What is no UTF-8 is replaced."""
    content = _content(path)
    if content is None or b"\0" in content[:_LOOKED_AT]:
        return None
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n") if text.strip() else None


def is_written(lines: Sequence[str]) -> bool:
    """Whether a person may have written these lines of code; what was made small for machines has few long ones."""
    return sum(map(len, lines)) <= _WIDTH * len(lines)


def _content(path: Path) -> bytes | None:
    try:
        with open_regular(path, follow=False) as file:  # A link or a pipe may have taken its place since it was listed.
            return file.read(_MOST)
    except (OSError, ValueError):  # Gone, or not to be read; the latter: no name of a file.
        return None
