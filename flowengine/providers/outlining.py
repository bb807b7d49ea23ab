"""Which way of reading goes with which file."""

from __future__ import annotations

from flowengine.providers.outline import Definition, Lines, language_of
from flowengine.providers.outline_lines import lines_outline
from flowengine.providers.outline_python import python_outline

__all__ = ["outline"]


def outline(path: str, lines: Lines) -> list[Definition]:
    """The definitions of a file, its own one without a name included. Python that cannot be parsed is read by lines."""
    language = language_of(path)
    parsed = python_outline(lines) if language in ("py", "pyi", "pyw") else None
    return lines_outline(lines, language) if parsed is None else parsed
