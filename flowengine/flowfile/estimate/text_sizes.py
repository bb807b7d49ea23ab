"""Computes how long a template's text can become at most, in tokens, without rendering it.

It walks the syntax tree and asks for the size of each name that is read; what it does not understand (a
filter that may lengthen its text, arithmetic on lists) has no bound. Sizes are counts of our own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from jinja2 import nodes

from flowengine.core.templating import parse_expression, parse_template
from flowengine.errors import TemplateSyntaxError
from flowengine.flowfile.estimate.cost_bound import add, multiply, take_greater
from flowengine.models import count_tokens


class Size(NamedTuple):
    """The most that a value can be; None means no bound."""

    tokens: int | None
    """The tokens of the whole value, as text."""
    items: int | None = None
    """The number of items of a list."""

    def either(self, other: Size) -> Size:
        """The bound of a value that is one or the other."""
        return Size(take_greater(self.tokens, other.tokens), take_greater(self.items, other.items))

    def and_(self, other: Size) -> Size:
        """The bound of both, one after the other."""
        return Size(add(self.tokens, other.tokens))


UNKNOWN: Final = Size(None)
NOTHING: Final = Size(0, 0)
_WORD_SIZE: Final = Size(16)
"""A number, a boolean, a position."""

Lookup = Callable[[tuple[str, ...]], Size]
"""A path of names, such as ("nodes", "plan", "output") → its size."""


def size_of_value(value: Any) -> Size:
    """The size of a value that is known.

    >>> size_of_value([1, 2, 3]).items
    3
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str, indent=1)
    items = len(cast("list[Any]", value)) if isinstance(value, list | tuple) else None
    return Size(count_tokens(text), items)


def size_of_template(source: str, lookup: Lookup) -> Size:
    """The size of a template's value: text, or the value of a lone `{{ x }}`.

    >>> size_of_template("{{ inputs.word }}!", lambda path: Size(10)).tokens
    11
    """
    return _measure_source(parse_template, source, lookup)


def size_of_expression(source: str, lookup: Lookup) -> Size:
    """The size of a bare expression's value."""
    return _measure_source(parse_expression, source, lookup)


def _measure_source(parse: Callable[[str], Any], source: str, lookup: Lookup) -> Size:
    try:
        tree = parse(source).tree
    except TemplateSyntaxError:
        return UNKNOWN
    measure = _Measure(lookup, {})
    return measure.expression(tree) if isinstance(tree, nodes.Expr) else measure.body(tree.body)


@dataclass(frozen=True)
class _Measure:
    lookup: Lookup
    local: Mapping[str, Size]
    """Names that the template itself makes."""

    def body(self, parts: list[nodes.Node]) -> Size:
        total = NOTHING
        if len(parts) == 1 and isinstance(parts[0], nodes.Output) and len(parts[0].nodes) == 1:
            return self.expression(parts[0].nodes[0])
        for part in parts:
            total = total.and_(self.statement(part))
        return total

    def statement(self, part: nodes.Node) -> Size:
        if isinstance(part, nodes.Output):
            total = NOTHING
            for each in part.nodes:
                total = total.and_(self.expression(each))
            return total
        if isinstance(part, nodes.If):
            size = self.body(part.body).either(self.body(part.else_))
            for each in part.elif_:
                size = size.either(self.body(each.body))
            return size
        return self.loop(part) if isinstance(part, nodes.For) else UNKNOWN

    def loop(self, part: nodes.For) -> Size:
        """Each item is written as often as the body names it, all items together are the list; the rest comes
        once an item."""
        over = self.expression(part.iter)
        if over.items is None or over.tokens is None or not isinstance(part.target, nodes.Name):
            return UNKNOWN
        name = part.target.name
        rest = _Measure(self.lookup, {**self.local, name: NOTHING, "loop": _WORD_SIZE}).body(part.body)
        whole = _Measure(self.lookup, {**self.local, name: Size(over.tokens), "loop": _WORD_SIZE}).body(part.body)
        if rest.tokens is None or whole.tokens is None:
            return UNKNOWN
        each = rest.tokens * over.items + (whole.tokens - rest.tokens)
        return Size(each).either(self.body(part.else_))

    def expression(self, part: nodes.Node) -> Size:
        path = _read_path(part)
        if path is not None and path[:2] not in _NEIGHBOURS:
            size = self.local[path[0]] if path[0] in self.local else self.lookup(path)
            return size if isinstance(part, nodes.Name | nodes.Getattr) else Size(size.tokens)
        measure = _MEASURES.get(type(part))
        return UNKNOWN if measure is None else measure(self, part)

    def either(self, part: nodes.BinExpr) -> Size:
        return self.expression(part.left).either(self.expression(part.right))

    def both(self, part: nodes.BinExpr) -> Size:
        return self.expression(part.left).and_(self.expression(part.right))

    def choice(self, part: nodes.CondExpr) -> Size:
        return self.expression(part.expr1).either(NOTHING if part.expr2 is None else self.expression(part.expr2))

    def measure_concat(self, part: nodes.Concat) -> Size:
        total = NOTHING
        for each in part.nodes:
            total = total.and_(self.expression(each))
        return total

    def measure_filter(self, part: nodes.Filter) -> Size:
        if part.node is None or part.kwargs:
            return UNKNOWN
        size, arguments = self.expression(part.node), [self.expression(each) for each in part.args]
        if part.name in _WORDS:
            return _WORD_SIZE.either(arguments[0]) if arguments else _WORD_SIZE
        if part.name in _ALTERNATIVE:
            return size.either(arguments[0]) if arguments else size
        if part.name == "join" and arguments and size.items is not None:
            return Size(add(size.tokens, multiply(size.items, arguments[0].tokens)))
        if part.name in _REORDERING:
            return UNKNOWN if size.items is None else size
        if part.name in _KEEPS_SIZE or (part.name == "join" and not arguments):
            return Size(size.tokens)
        return Size(multiply(3, size.tokens)) if part.name == "tojson" and not arguments else UNKNOWN

    def measure_list(self, part: nodes.List) -> Size:
        total = Size(len(part.items) * 2 + 2)
        for each in part.items:
            total = total.and_(self.expression(each))
        return Size(total.tokens, len(part.items))


_MEASURES: Final[Mapping[type[nodes.Node], Callable[[_Measure, Any], Size]]] = {
    nodes.TemplateData: lambda measure, part: Size(count_tokens(part.data)),
    nodes.Const: lambda measure, part: size_of_value(part.value),
    nodes.Or: _Measure.either,
    nodes.And: _Measure.either,
    nodes.CondExpr: _Measure.choice,
    nodes.Concat: _Measure.measure_concat,
    nodes.Filter: _Measure.measure_filter,
    nodes.List: _Measure.measure_list,
    nodes.Not: lambda measure, part: _WORD_SIZE,
    nodes.Compare: lambda measure, part: _WORD_SIZE,
    nodes.Test: lambda measure, part: _WORD_SIZE,
}

_NEIGHBOURS: Final = (("loop", "previtem"), ("loop", "nextitem"))
"""Items of a loop beside its own one; nothing is known of them."""
_REORDERING: Final = frozenset({"list", "reverse", "sort", "unique"})
_KEEPS_SIZE: Final = frozenset({"trim", "first", "last", "string"})
_ALTERNATIVE: Final = frozenset({"default", "d"})
_WORDS: Final = frozenset({"length", "count", "int", "float", "round"})


def _read_path(part: nodes.Node) -> tuple[str, ...] | None:
    """`nodes.plan.output` and `inputs['x'][0]`, as far as it is one; a position in a list is left out."""
    if isinstance(part, nodes.Name):
        return (part.name,)
    if isinstance(part, nodes.Getattr):
        above = _read_path(part.node)
        return None if above is None else (*above, part.attr)
    if isinstance(part, nodes.Getitem) and isinstance(part.arg, nodes.Const):
        above = _read_path(part.node)
        key = part.arg.value
        return None if above is None else (*above, key) if isinstance(key, str) else above
    return None
