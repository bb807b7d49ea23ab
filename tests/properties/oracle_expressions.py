"""Evaluates the expressions and templates of a flow file the slow and obvious way, for the oracle.

Jinja2 parses; everything that an expression means is here, written from the format's rules 9, 13, 14 and 15. Shares no
code with the product. What the rules leave open raises `Unclear`, so that no test claims more than the format says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import jinja2
from jinja2 import nodes as ast
from pydantic import BaseModel

__all__ = [
    "BARE",
    "Absent",
    "ExpressionError",
    "Unclear",
    "choose",
    "evaluate",
    "node_names",
    "read_attribute",
    "render",
]

BARE: Final = frozenset({"if", "when", "until", "over", "best_by"})
"""Keys of a flow file whose strings are bare expressions; every other string is a template."""

Lookup = Callable[[str], Any]
_PARSER: Final = jinja2.Environment()


class ExpressionError(Exception):
    """The expression has no value here: the node that asks for it fails."""


class Unclear(Exception):  # noqa: N818 - it is no error of the flow
    """The format's text does not say what this means."""


@dataclasses.dataclass(frozen=True)
class Absent:
    """What is not there. `skipped`: the output of a node that did not run; else a key that an existing value lacks."""

    name: str
    skipped: bool = False


def evaluate(expression: str, look_up: Lookup) -> Any:
    """The value of a bare expression; `Absent` is an error."""
    return _present(_Evaluator(look_up, strict=True).value(_parse_bare(expression)))


def choose(expression: str, look_up: Lookup) -> bool:
    """The truth of a bare expression where a boolean is asked for (rule 13)."""
    evaluator = _Evaluator(look_up, strict=True)
    return evaluator.truth(evaluator.value(_parse_bare(expression)))


def render(template: Any, look_up: Lookup) -> Any:
    """A template, or a list or map of templates; a lone `{{ x }}` keeps its type, anything else is text."""
    if isinstance(template, Mapping):
        return {key: render(each, look_up) for key, each in template.items()}
    if isinstance(template, list):
        return [render(each, look_up) for each in template]
    if not isinstance(template, str):
        return template
    body = _parse(template).body
    if not body:
        return template
    evaluator = _Evaluator(look_up, strict=False)
    parts = [part for output in body for part in _outputs(output)]
    if len(parts) == 1 and not isinstance(parts[0], ast.TemplateData):
        return _present(evaluator.value(parts[0]))
    return "".join(evaluator.text(part) for part in parts)


def node_names(value: Any, key: str = "") -> set[str]:
    """All names `x` of `nodes.x` in the strings of a value, whatever they stand in."""
    if isinstance(value, Mapping):
        return {name for inner, each in value.items() for name in node_names(each, inner)}
    if isinstance(value, list):
        return {name for each in value for name in node_names(each, key)}
    if not isinstance(value, str) or "nodes" not in value:
        return set()
    tree = _parse(f"{{{{ ({value}) }}}}" if key in BARE else value)
    return {found.attr for found in tree.find_all(ast.Getattr) if _is_name(found.node, "nodes")}


def read_attribute(value: Any, key: Any) -> Any:
    """A key of a map, a place of a list, or a field of an object."""
    if isinstance(value, Absent):
        return value
    if isinstance(value, Mapping):
        return value[key] if key in value else Absent(str(key))
    if isinstance(value, list) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else Absent(str(key))
    if isinstance(value, BaseModel):
        return getattr(value, key) if key in type(value).model_fields else Absent(str(key))
    if dataclasses.is_dataclass(value):
        return getattr(value, key) if key in {each.name for each in dataclasses.fields(value)} else Absent(str(key))
    return Absent(str(key))


@lru_cache(4096)
def _parse_bare(expression: str) -> ast.Expr:
    return _PARSER.parse(f"{{{{ ({expression}) }}}}").body[0].nodes[0]


@lru_cache(4096)
def _parse(template: str) -> ast.Template:
    return _PARSER.parse(template)


def _outputs(node: ast.Node) -> list[Any]:
    if not isinstance(node, ast.Output):
        raise Unclear(f"the oracle does not know {type(node).__name__}")
    return list(node.nodes)


def _is_name(node: ast.Node, name: str) -> bool:
    return isinstance(node, ast.Name) and node.name == name


def _present(value: Any) -> Any:
    if isinstance(value, Absent):
        raise ExpressionError(f"'{value.name}' is not there")
    return value


class _Evaluator:
    """One evaluation. `strict`: booleans are asked for under `and`, `or`, `not` and inline `if` as well."""

    def __init__(self, look_up: Lookup, strict: bool) -> None:
        self._look_up = look_up
        self._strict = strict

    def value(self, node: Any) -> Any:
        return getattr(self, f"_{type(node).__name__.lower()}", _unknown)(node)

    def text(self, node: Any) -> str:
        if isinstance(node, ast.TemplateData):
            return node.data
        value = _present(self.value(node))
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
        raise Unclear(f"how a {type(value).__name__} is printed")

    def truth(self, value: Any) -> bool:
        if isinstance(value, Absent) and value.skipped:
            return False
        if not isinstance(_present(value), bool):
            raise ExpressionError(f"a boolean is asked for, not {value!r}")
        return value

    def _is_true(self, value: Any) -> bool:
        if self._strict:
            return self.truth(value)
        if isinstance(value, Absent) and not value.skipped:
            raise Unclear("whether an absent key is false in a template")
        return not isinstance(value, Absent) and bool(value)

    def _const(self, node: ast.Const) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self._look_up(node.name)

    def _list(self, node: ast.List) -> Any:
        return [_present(self.value(each)) for each in node.items]

    def _dict(self, node: ast.Dict) -> Any:
        return {self.value(pair.key): _present(self.value(pair.value)) for pair in node.items}

    def _getattr(self, node: ast.Getattr) -> Any:
        return read_attribute(self.value(node.node), node.attr)

    def _getitem(self, node: ast.Getitem) -> Any:
        return read_attribute(self.value(node.node), self.value(node.arg))

    def _and(self, node: ast.And) -> Any:
        left = self.value(node.left)
        return self.value(node.right) if self._is_true(left) else left

    def _or(self, node: ast.Or) -> Any:
        left = self.value(node.left)
        return left if self._is_true(left) else self.value(node.right)

    def _not(self, node: ast.Not) -> Any:
        return not self._is_true(self.value(node.node))

    def _condexpr(self, node: ast.CondExpr) -> Any:
        return self.value(node.expr1 if self._is_true(self.value(node.test)) else node.expr2)

    def _add(self, node: ast.Add) -> Any:
        left, right = _present(self.value(node.left)), _present(self.value(node.right))
        try:
            return left + right
        except TypeError as error:
            raise ExpressionError(str(error)) from error

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.expr)
        for operand in node.ops:
            right = self.value(operand.expr)
            if not _compare(operand.op, left, right):
                return False
            left = right
        return True

    def _test(self, node: ast.Test) -> bool:
        value = self.value(node.node)
        if node.name == "defined":
            return not isinstance(value, Absent)
        if isinstance(value, Absent):
            raise Unclear(f"whether what is absent is {node.name}")
        if node.name == "none":
            return value is None
        raise Unclear(f"the oracle does not know the test {node.name}")

    def _filter(self, node: ast.Filter) -> Any:
        value = self.value(node.node)
        arguments = [_present(self.value(each)) for each in node.args]
        if node.name == "default":
            return arguments[0] if isinstance(value, Absent) else value
        value = _present(value)
        if node.name == "length" and isinstance(value, str | list | Mapping | set | frozenset):
            return len(value)
        if node.name in ("first", "last") and isinstance(value, list) and value:
            return value[0 if node.name == "first" else -1]
        raise Unclear(f"the oracle does not know the filter {node.name} of a {type(value).__name__}")


def _unknown(node: Any) -> Any:
    raise Unclear(f"the oracle does not know {type(node).__name__}")


def _compare(operator: str, left: Any, right: Any) -> bool:
    if operator in ("eq", "ne"):
        if isinstance(left, Absent) or isinstance(right, Absent):
            raise Unclear("whether what is absent equals something")
        return (left == right) is (operator == "eq")
    left, right = _present(left), _present(right)
    try:
        match operator:
            case "lt":
                return left < right
            case "lteq":
                return left <= right
            case "gt":
                return left > right
            case "gteq":
                return left >= right
            case "in":
                return left in right
            case _:
                return left not in right
    except TypeError as error:
        raise ExpressionError(str(error)) from error
