"""Which names a module's file defines, read from its syntax tree; nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

__all__ = ["names_in"]


def names_in(file: Path) -> frozenset[str] | None:
    """The names that a module defines; None where that cannot be seen (it does not parse, `import *`)."""
    try:
        return _names(file, file.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _names(file: Path, changed: int) -> frozenset[str] | None:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = frozenset(_defined(tree.body))
    return None if names & {"*", "__getattr__"} else names


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """Names bound by the statements of a module, also inside `if`, `try`, `with` and loops."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from (each.id for each in ast.walk(statement) if isinstance(each, ast.Name))
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _defined(getattr(statement, name, []))
            for handler in getattr(statement, "handlers", []):
                yield from _defined(handler.body)
