"""Finds the lines of a flow file that define a node, by their indentation alone.

It works on the text that a run has recorded, so that pages and files show a node as it ran. Lines end where YAML's do,
and comments may stand anywhere. A text in YAML's other styles (a body within braces, anchors) gives nothing rather than
something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_LINE_END: Final = re.compile(r"\r\n?|\n")
"""The line breaks of YAML 1.2: others, such as U+2028, stand within a line."""


def find_definition(source: str, path: Sequence[str]) -> tuple[int, Sequence[str]] | None:
    """The number of the line where a node's definition begins, and its lines; None where no line names it alone.

    >>> find_definition("name: f\\nnodes:\\n  a: {}\\n  b:\\n    prompt: x\\n", ["b"])
    (4, ['  b:', '    prompt: x'])
    """
    lines = _LINE_END.split(source)
    low, high = 0, len(lines)
    for depth, name in enumerate(path):
        at = _find_key(lines, low + bool(depth), high, "nodes")
        if at is None:
            return None
        low, high = at + 1, _end_of(lines, at, high)
        at = _find_key(lines, low, high, name)
        if at is None:
            return None
        low, high = at, _end_of(lines, at, high)
    # Blank lines and comments behind it are not its own.
    while high > low + 1 and _indent(lines[high - 1].rstrip()) <= _indent(lines[low]):
        high -= 1
    return low + 1, lines[low:high]


def _find_key(lines: Sequence[str], low: int, high: int, key: str) -> int | None:
    """The first line that begins with the key, of those that are indented least."""
    pattern = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*:(\s|$)""")
    inside = [at for at in range(low, high) if _says(lines[at])]
    least = min((_indent(lines[at]) for at in inside), default=0)
    return next((at for at in inside if _indent(lines[at]) == least and pattern.match(lines[at])), None)


def _end_of(lines: Sequence[str], at: int, high: int) -> int:
    """Behind the last line that belongs to the key in a line."""
    own = _indent(lines[at])
    return next((n for n in range(at + 1, high) if _says(lines[n]) and _indent(lines[n]) <= own), high)


def _says(line: str) -> bool:
    """Tells whether it is neither blank nor a comment."""
    text = line.strip()
    return bool(text) and not text.startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
