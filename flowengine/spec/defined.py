"""Which names a module's file binds and where they come from, read from its syntax tree; nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

__all__ = ["names_in"]


def names_in(file: Path) -> Mapping[str, str | None] | None:
    """The names that a module binds; None where that cannot be seen (it does not parse, `import *`).

    Each with the module that it is imported from (`.near` for one beside it), or None where it is the module's own:
    defined there, or listed in `__all__`.
    """
    try:
        return _names(file, file.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _names(file: Path, changed: int) -> Mapping[str, str | None] | None:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: dict[str, str | None] = {}
    for name, source in _bound(tree.body):
        names[name] = names.get(name) or source  # Imported in one branch is imported.
    if names.keys() & {"*", "__getattr__"}:
        return None
    return names | dict.fromkeys(names.keys() & set(_declared(tree.body)))


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, str | None]]:
    """Names bound by the statements of a module, also inside `if`, `try`, `with` and loops."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name, None
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name
        elif isinstance(statement, ast.ImportFrom):
            source = "." * statement.level + (statement.module or "")
            yield from ((alias.asname or alias.name, source) for alias in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from ((each.id, None) for each in _names_of(statement) if isinstance(each.ctx, ast.Store))
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(statement, name, []))
            for handler in getattr(statement, "handlers", []):
                yield from _bound(handler.body)


def _names_of(statement: ast.stmt) -> Iterator[ast.Name]:
    return (each for each in ast.walk(statement) if isinstance(each, ast.Name))


def _declared(body: list[ast.stmt]) -> Iterator[str]:
    """What `__all__` lists as text."""
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets):
                found = ast.walk(statement.value) if statement.value is not None else ()
                yield from (str(each.value) for each in found if isinstance(each, ast.Constant))
