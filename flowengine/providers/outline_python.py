"""Python read by Python's own parser: functions and classes, methods one by one, and what is outside of them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from flowengine.providers.outline import Definition, Lines

__all__ = ["python_outline"]

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_PLACE: Final = "<outline of source code>"
"""Stands for the file in warnings about other people's code, so that just these can be kept quiet."""


def python_outline(lines: Lines) -> list[Definition] | None:
    """The definitions of a file in their order; None where it is no Python that this Python reads."""
    _keep_quiet()
    try:
        tree = ast.parse("\n".join(lines), _PLACE)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # The last two: nested too deeply.
        return None
    defined = list(_definitions(tree.body, ""))
    tops = [(each.start, each.end) for each in defined if "." not in each.name]
    return [Definition("", 1, len(lines), tuple(tops)), *defined] if lines else []


def _definitions(body: Iterable[ast.stmt], scope: str) -> Iterator[Definition]:
    for statement in body:
        if isinstance(statement, _Function):
            yield Definition(scope + statement.name, _first_line(statement), statement.end_lineno or statement.lineno)
        elif isinstance(statement, ast.ClassDef):
            yield _class(statement, scope)
            yield from _definitions(statement.body, f"{scope}{statement.name}.")
        else:
            yield from _definitions(_inside(statement), scope)


def _class(statement: ast.ClassDef, scope: str) -> Definition:
    """A class without the bodies of its methods, whose first lines tell what it can do."""
    holes: list[tuple[int, int]] = []
    for member in _members(statement.body):
        first, last = member.body[0].lineno, member.end_lineno or member.lineno
        if isinstance(member, ast.ClassDef):
            holes.append((member.lineno + 1, last))
        elif first > member.lineno:
            holes.append((first, last))
    spans = tuple(span for span in holes if span[0] <= span[1])
    return Definition(scope + statement.name, _first_line(statement), statement.end_lineno or statement.lineno, spans)


def _members(body: Iterable[ast.stmt]) -> Iterator[_Function | ast.ClassDef]:
    for statement in body:
        if isinstance(statement, _Function | ast.ClassDef):
            yield statement
        else:
            yield from _members(_inside(statement))


def _inside(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of an `if`, a `try` or a `with`, in their order."""
    for name in ("body", "handlers", "orelse", "finalbody"):
        parts: list[ast.AST] = getattr(statement, name, [])
        for each in parts:
            if isinstance(each, ast.ExceptHandler):
                yield from each.body
            elif isinstance(each, ast.stmt):
                yield each


def _first_line(statement: _Function | ast.ClassDef) -> int:
    return min(statement.lineno, *(each.lineno for each in statement.decorator_list), statement.lineno)


def _keep_quiet() -> None:
    """Odd escapes in the code that is read are nobody's business here. Filters are global, and others reset them."""
    newest = warnings.filters[0] if warnings.filters else None
    if newest is None or getattr(newest[3], "pattern", "") != _PLACE:
        warnings.filterwarnings("ignore", module=_PLACE)
