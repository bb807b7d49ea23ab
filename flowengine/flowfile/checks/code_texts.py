"""Checks the code of nodes, as far as it is seen without running it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flowengine.flowfile.analysis import NodePath, Text, gaps_of, is_code_node, key_path, nodes_of
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.schema import FlowSpec

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.code_kind import CodeNodeSpec


def check_code_texts(spec: FlowSpec, report: Report) -> None:
    """Each text of a node's code that cannot run, or reads a name that nothing gives."""
    for path, node in nodes_of(spec):
        if is_code_node(node):
            _check(node, path, report, names_are_known=path not in gaps_of(spec).arguments)


def _check(node: CodeNodeSpec, path: NodePath, report: Report, *, names_are_known: bool) -> None:
    text = Text((*key_path(path), "code"), node.code, "plain", path, "node")

    def tell(message: str, at: ast.AST, hint: str = "") -> None:
        report.in_text("FE524", message, text, getattr(at, "lineno", 1), getattr(at, "col_offset", 0) + 1, hint)

    try:
        tree = ast.parse(node.code)
    except SyntaxError as error:
        lines = node.code.splitlines() or [""]
        line = min(max(error.lineno or 1, 1), len(lines))
        column = min(max(error.offset or 1, 1), max(len(lines[line - 1]), 1))  # It may stand behind the line's end.
        report.in_text("FE524", f"this is no Python: {error.msg:.200}", text, line, column)
        return
    except (ValueError, RecursionError, MemoryError) as error:
        report.in_text("FE524", f"this is no Python: {type(error).__name__}", text, 1, 1)
        return
    for each in ast.walk(tree):
        if isinstance(each, ast.Set) and len(each.elts) == 1 and isinstance(each.elts[0], ast.Set | ast.Dict):
            tell("'code' is not rendered: give the value a name in 'with'", each)
            return
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module == "__future__":
            tell("the code is a function's body, and `from __future__` stands at the beginning of files only", each)
            return
    returns = any(isinstance(each, ast.Return) for each in _list_statements(tree))
    if not returns and not _only_fails(tree):
        report.in_text("FE524", "nothing is returned: end with `return …`", text, 1, 1)
    bound = {*node.with_, *_find_bound_names(tree), *vars(builtins), "__name__"}
    for each in ast.walk(tree) if names_are_known else ():
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id not in bound:
            names = [name for name in bound if not name.startswith("_")]
            hint = report.nearest(each.id, names) or "; give it in 'with'"
            tell(f"the code reads '{each.id}', which nothing gives it", each, hint)


def _only_fails(tree: ast.Module) -> bool:
    """Tells whether the last statement raises, so that nothing is meant to be returned."""
    return bool(tree.body) and isinstance(tree.body[-1], ast.Raise)


def _list_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of the code itself, and not of functions and classes in it."""
    for each in ast.iter_child_nodes(tree):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield each
            yield from _list_statements(each)


def _find_bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that is given a value anywhere."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.alias):
            yield each.asname or each.name.partition(".")[0]
        elif isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and each.name:
            yield each.name
        elif isinstance(each, ast.MatchMapping) and each.rest:
            yield each.rest
