"""What a template may contain: the constructs, filters, tests and calls that have a meaning here.

It looks at a syntax tree and says what is not allowed and where. It walks without recursion, because it is
also what refuses a tree that is too deep for everything after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import nodes

from flowengine.errors import TemplateSyntaxError, did_you_mean
from flowengine.templating.arguments import misfit
from flowengine.templating.filters import FILTERS, TESTS
from flowengine.templating.grammar import Source
from flowengine.templating.limits import MAX_DEPTH

__all__ = ["METHODS", "check_tree"]

METHODS: Final = {"get": (1, 2), "items": (0, 0), "keys": (0, 0), "values": (0, 0)}
"""The calls that read a mapping, with the fewest and most arguments of each."""
_NAMED_IN_ARGUMENT: Final = {"map": 0, "select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}

_ALLOWED: Final = frozenset(
    {
        *("Template", "Output", "TemplateData", "For", "If", "Assign", "AssignBlock", "With"),
        *("Const", "Name", "List", "Tuple", "Dict", "Pair", "Keyword", "Getattr", "Getitem", "Slice"),
        *("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Concat", "Neg", "Pos"),
        *("And", "Or", "Not", "Compare", "Operand", "CondExpr", "Filter", "Test", "Call"),
    }
)
_WRITTEN: Final = {
    "Block": "{% block %}",
    "CallBlock": "{% call %}",
    "Extends": "{% extends %}",
    "FilterBlock": "{% filter %}",
    "FromImport": "{% from %}",
    "Import": "{% import %}",
    "Include": "{% include %}",
    "Macro": "{% macro %}",
    "NSRef": "setting a field",
    "Scope": "{% autoescape %}",
}


def check_tree(source: Source, tree: nodes.Node) -> None:
    """Raise `TemplateSyntaxError` at the first thing that is not allowed."""
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    try:
        while waiting:
            node, depth = waiting.pop()
            _check_node(node, depth)
            waiting.extend((child, depth + 1) for child in node.iter_child_nodes())
    except _RefusedError as refused:
        raise source.error(str(refused), refused.offset) from None


class _RefusedError(TemplateSyntaxError):
    """The message, and the offset of the node."""

    def __init__(self, message: str, node: nodes.Node) -> None:
        super().__init__(message)
        self.offset = _offset(node)


def _offset(node: Any) -> int:
    """Where a node begins; Jinja gives no place to the block round `{% autoescape %}`, only to what is in it."""
    return next((each.lineno for each in (node, *node.iter_child_nodes()) if each.lineno is not None), 0)


def _check_node(node: nodes.Node, depth: int) -> None:
    name = type(node).__name__
    if name not in _ALLOWED:
        raise _RefusedError(f"{_WRITTEN.get(name, name)} is not allowed here", node)
    if depth > MAX_DEPTH:
        raise _RefusedError(f"the template is nested more than {MAX_DEPTH} deep", node)
    if check := _CHECKS.get(name):
        check(node)


def _check_for(node: nodes.For) -> None:
    if node.recursive:
        raise _RefusedError("a recursive loop is not allowed here", node)


def _check_set_block(node: nodes.AssignBlock) -> None:
    if node.filter is not None:
        raise _RefusedError("{% set %} with a filter is not allowed here", node)


def _check_filter(node: nodes.Filter) -> None:
    _check_known(node, "filter", node.name, FILTERS, _keywords(node))
    at = _NAMED_IN_ARGUMENT.get(node.name)
    if at is None or len(node.args) <= at or not isinstance(given := node.args[at], nodes.Const):
        return
    table, what = (FILTERS, "filter") if node.name == "map" else (TESTS, "test")
    if not isinstance(given.value, str) or given.value not in table:
        raise _RefusedError(f"unknown {what} '{given.value!s:.60}'{did_you_mean(str(given.value)[:60], table)}", given)


def _check_test(node: nodes.Test) -> None:
    _check_known(node, "test", node.name, TESTS, _keywords(node))


def _check_known(
    node: Any, what: str, name: str, table: Mapping[str, Callable[..., Any]], keywords: tuple[str, ...]
) -> None:
    if name not in table:
        raise _RefusedError(f"unknown {what} '{name[:60]}'{did_you_mean(name[:60], table)}", node)
    if problem := misfit(table[name], len(node.args), keywords):
        raise _RefusedError(f"{what} '{name}' {problem}", node)


def _check_call(node: nodes.Call) -> None:
    keywords = _keywords(node)
    if isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS:
        name, (fewest, most) = f".{node.node.attr}()", METHODS[node.node.attr]
    elif isinstance(node.node, nodes.Name) and node.node.name == "range":
        name, fewest, most = "range()", 1, 3
    else:
        raise _RefusedError(f"only range() and the mappings' {', '.join(METHODS)} can be called", node)
    if keywords or not fewest <= len(node.args) <= most:
        wanted = str(most) if fewest == most else f"{fewest} to {most}"
        raise _RefusedError(f"{name} takes {wanted} arguments without names", node)


def _keywords(node: nodes.Filter | nodes.Test | nodes.Call) -> tuple[str, ...]:
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise _RefusedError("`*` and `**` in arguments are not allowed here", node)
    keywords = tuple(each.key for each in node.kwargs if isinstance(each, nodes.Keyword))
    if len(set(keywords)) < len(keywords):
        raise _RefusedError("an argument is given twice", node)
    return keywords


_CHECKS: Final[dict[str, Callable[[Any], None]]] = {
    "AssignBlock": _check_set_block,
    "Call": _check_call,
    "Filter": _check_filter,
    "For": _check_for,
    "Test": _check_test,
}
