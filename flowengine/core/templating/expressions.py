"""Turns the expressions of the syntax tree into closures, once.

Nothing is evaluated here: literals stay where they are, so a size bomb of constants goes off in an
evaluation, where the meter stops it. A closure takes the frame and gives the value.

Bare expressions (`if`, `when`, `until`, `over`, `best_by`) are compiled more strictly than templates, for they
decide what runs. A value that is read must be there, unless the run did not make it or `default` or `is defined`
stands round it; and where true or false is asked for, also under `and`, `or`, `not` and in the test of an inline
`if`, nothing else will do. As values (`a or b` in `over`, and in templates) `and` and `or` take what is not empty.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, cast

from jinja2 import nodes

from flowengine.core.templating.access import Missing, describe_kind, kind_of, read_item, slice_of
from flowengine.core.templating.arithmetic import OPERATORS, negative, positive
from flowengine.core.templating.compare import compare_with, compile_comparison, is_true
from flowengine.core.templating.filters import FILTERS, TAKES_MISSING, TESTS
from flowengine.core.templating.filters_list import get_of, listed_pairs, range_of
from flowengine.core.templating.frame import (
    Bindings,
    Closure,
    Frame,
    Slot,
    Step,
    computed_path,
    follow,
    local_path,
    outer_path,
)
from flowengine.core.templating.parse import GUARDING_FILTERS, GUARDING_TESTS
from flowengine.core.templating.text import excerpt, to_text
from flowengine.errors import TemplateError

_SHORT: Final = 10**18
_MAX_SEEN: Final = 20
_MAX_EXCERPT: Final = 300
"""Values, and characters of each, that are told of one evaluation."""
_READS: Final = (nodes.Call, nodes.Filter, nodes.Getattr, nodes.Getitem, nodes.Name)
"""The expressions whose value may not be there."""


class ExpressionCompiler:
    """Compiles expressions; `built` counts the parts made so far, which is what a loop's body costs.

    `bare`: what is compiled is a bare expression, not a part of a template.
    """

    def __init__(self, bindings: Bindings, *, bare: bool = False) -> None:
        self.bindings = bindings
        self.built: int = 0
        self._bare = bare
        self._guarded = False

    def expression(self, node: nodes.Node) -> Closure:
        """The closure of any expression."""
        self.built += 1
        closure = _BUILDERS[type(node).__name__](self, node)
        return _require_made(closure) if self._must_be_there(node) and not _is_told(node) else closure

    def boolean(self, node: nodes.Node) -> Closure:
        """The closure of an expression where true or false is asked for; in a template any value counts as one."""
        if not self._bare:
            source = self.expression(node)
            return lambda frame: is_true(source(frame))
        if isinstance(node, (nodes.And, nodes.Or)):
            left, right = self.boolean(node.left), self.boolean(node.right)
            if isinstance(node, nodes.And):
                return lambda frame: left(frame) and right(frame)
            return lambda frame: left(frame) or right(frame)
        if isinstance(node, nodes.CondExpr) and node.expr2 is not None:
            test, then, other = (self.boolean(each) for each in (node.test, node.expr1, node.expr2))
            return lambda frame: then(frame) if test(frame) else other(frame)
        if isinstance(node, (nodes.Compare, nodes.Not)):
            return self.expression(node)
        source, place = self.expression(node), f"{format_path(node)}: " if isinstance(node, _PATHS) else ""
        return lambda frame: _require_boolean(source(frame), place)

    @contextmanager
    def _guarding(self, guards: bool) -> Generator[None]:
        """Allows undefined values in this part, because an outer part checks them."""
        before, self._guarded = self._guarded, self._guarded or guards
        yield
        self._guarded = before

    def _must_be_there(self, node: nodes.Node) -> bool:
        return self._bare and not self._guarded and isinstance(node, _READS)

    def _telling(self, node: nodes.Node, source: Closure | str, steps: tuple[Step, ...] = ()) -> Closure:
        """Compiles an expression that decides: its reading goes to whoever asks for it, and must be there. A path that
        starts at an outer name is read here, for most decisions read nothing else."""
        text, must_be_there = describe_source(node), self._must_be_there(node)
        name, read = (source, None) if isinstance(source, str) else ("", source)

        def evaluate(frame: Frame) -> Any:
            if read is not None:
                value = read(frame)
            else:
                try:
                    value = frame.scope[name]
                except KeyError:
                    value = Missing(name, "no such name")
                value = follow(value, steps)
            readings = frame.readings
            if readings is not None and text not in readings and len(readings) < _MAX_SEEN:
                readings[text] = str(value) if type(value) is int and -_SHORT < value < _SHORT else _tell_value(value)
            if type(value) is Missing and must_be_there and not value.excused:
                raise value.error()
            return value

        return evaluate

    def path(self, node: Any) -> Closure:
        """A name or a value with literal fields and positions after it, as one closure."""
        start, steps = self._take_apart(node)
        if not self._bare:
            return _make_path(start, steps)
        if isinstance(start, str):
            return self._telling(node, start, steps)
        return self._telling(node, _make_path(start, steps))

    def _take_apart(self, node: Any) -> tuple[str | Slot | Closure, tuple[Step, ...]]:
        """The start of a path (an outer name, a name of the template, or a value), and what follows it."""
        keys: list[str | int] = []
        while True:
            if isinstance(node, nodes.Getattr):
                keys.append(node.attr)
            elif isinstance(node, nodes.Getitem) and _is_literal_key(node.arg):
                keys.append(cast(nodes.Const, node.arg).value)
            else:
                break
            node = node.node
        self.built += len(keys)
        keys.reverse()
        if not isinstance(node, nodes.Name):
            return self.expression(node), _steps(format_path(node), keys)
        return self.bindings.find(node.name) or node.name, _steps(node.name, keys)

    def item(self, node: nodes.Getitem) -> Closure:
        if isinstance(node.arg, nodes.Slice):
            return self._slice(node.node, node.arg)
        if _is_literal_key(node.arg):
            return self.path(node)
        source, key, text = self._unseen(node.node), self.expression(node.arg), f"{format_path(node.node)}[…]"

        def read(frame: Frame) -> Any:
            return read_item(source(frame), key(frame), text)

        return self._telling(node, read) if self._bare else read

    def _unseen(self, node: nodes.Expr) -> Closure:
        """The closure of what only a part is taken from: not all of it is told."""
        return _make_path(*self._take_apart(node)) if isinstance(node, nodes.Name) else self.expression(node)

    def _slice(self, node: nodes.Expr, cut: nodes.Slice) -> Closure:
        source = self.expression(node)
        start, stop, step = (self._optional(each) for each in (cut.start, cut.stop, cut.step))
        return lambda frame: slice_of(frame, source(frame), start(frame), stop(frame), step(frame))

    def _optional(self, node: nodes.Expr | None) -> Closure:
        return (lambda frame: None) if node is None else self.expression(node)

    def constant(self, node: nodes.Const) -> Closure:
        value = node.value
        return lambda frame: value

    def compile_list(self, node: nodes.List) -> Closure:
        parts = [self.expression(each) for each in node.items]
        return lambda frame: [part(frame) for part in parts]

    def compile_tuple(self, node: nodes.Tuple) -> Closure:
        parts = [self.expression(each) for each in node.items]
        return lambda frame: tuple([part(frame) for part in parts])

    def mapping(self, node: nodes.Dict) -> Closure:
        pairs = [(self.expression(each.key), self.expression(each.value)) for each in node.items]
        return lambda frame: {_key(key(frame)): value(frame) for key, value in pairs}

    def operation(self, node: nodes.BinExpr) -> Closure:
        left, right = self.expression(node.left), self.expression(node.right)
        operate = OPERATORS[type(node).__name__]
        return lambda frame: operate(frame, left(frame), right(frame))

    def sign(self, node: nodes.UnaryExpr) -> Closure:
        source = self.expression(node.node)
        apply = negative if isinstance(node, nodes.Neg) else positive
        return lambda frame: apply(source(frame))

    def concat(self, node: nodes.Concat) -> Closure:
        parts = [self.expression(each) for each in node.nodes]

        def evaluate(frame: Frame) -> str:
            texts = [to_text(frame, part(frame)) for part in parts]
            frame.text(sum(map(len, texts)))
            return "".join(texts)

        return evaluate

    def both(self, node: nodes.And) -> Closure:
        left, right = self.expression(node.left), self.expression(node.right)

        def evaluate(frame: Frame) -> Any:
            value = left(frame)
            return right(frame) if is_true(value) else value

        return evaluate

    def either(self, node: nodes.Or) -> Closure:
        left, right = self.expression(node.left), self.expression(node.right)

        def evaluate(frame: Frame) -> Any:
            value = left(frame)
            return value if is_true(value) else right(frame)

        return evaluate

    def negation(self, node: nodes.Not) -> Closure:
        source = self.boolean(node.node)
        return lambda frame: not source(frame)

    def choice(self, node: nodes.CondExpr) -> Closure:
        test, then = self.boolean(node.test), self.expression(node.expr1)
        other = _no_else if node.expr2 is None else self.expression(node.expr2)
        return lambda frame: then(frame) if test(frame) else other(frame)

    def compare(self, node: nodes.Compare) -> Closure:
        first = self.expression(node.expr)
        rest = [(each.op, self.expression(each.expr)) for each in node.ops]
        if len(rest) == 1 and isinstance(last := node.ops[0].expr, nodes.Const):
            return compare_with(rest[0][0], first, last.value)
        return compile_comparison(first, rest)

    def filter(self, node: nodes.Filter) -> Closure:
        function, takes_missing = FILTERS[node.name], node.name in TAKES_MISSING
        with self._guarding(node.name in GUARDING_FILTERS):
            source = self._input(node)
        arguments, keywords = self._arguments(node, refuse_missing=not takes_missing)

        def evaluate(frame: Frame) -> Any:
            value = source(frame)
            if type(value) is Missing and not takes_missing:
                raise value.error()
            values = [each(frame) for each in arguments]
            return function(frame, value, *values, **{name: each(frame) for name, each in keywords})

        return self._telling(node, evaluate) if self._bare else evaluate

    def test(self, node: nodes.Test) -> Closure:
        function = TESTS[node.name]
        with self._guarding(node.name in GUARDING_TESTS):
            source = self._input(node)
        arguments, _ = self._arguments(node, refuse_missing=False)
        return lambda frame: function(frame, source(frame), *[each(frame) for each in arguments])

    def _input(self, node: nodes.Filter | nodes.Test) -> Closure:
        assert node.node is not None  # only a filter block has none, and the rules refuse those
        return self.expression(node.node)

    def _arguments(self, node: Any, refuse_missing: bool) -> Any:
        wrap = _require_present if refuse_missing else _as_is
        keywords = [(each.key, wrap(self.expression(each.value))) for each in node.kwargs]
        return [wrap(self.expression(each)) for each in node.args], keywords

    def call(self, node: nodes.Call) -> Closure:
        arguments = [self.expression(each) for each in node.args]
        if isinstance(node.node, nodes.Name):
            return lambda frame: range_of(frame, [each(frame) for each in arguments])
        assert isinstance(node.node, nodes.Getattr)  # the rules let nothing else through
        with self._guarding(len(arguments) == 2):
            source = self.expression(node.node.node)
        method, text = node.node.attr, format_path(node.node.node)
        if method == "get":
            return lambda frame: get_of(source(frame), text, *[each(frame) for each in arguments])
        side = {"keys": 0, "values": 1}.get(method)
        return lambda frame: listed_pairs(frame, source(frame), side)


def _make_path(start: str | Slot | Closure, steps: tuple[Step, ...]) -> Closure:
    if isinstance(start, str):
        return outer_path(start, steps)
    return local_path(start, steps) if isinstance(start, Slot) else computed_path(start, steps)


def _no_else(frame: Frame) -> Missing:
    return Missing("the value", "`if` without `else`", excused=True)


_PATHS: Final = (nodes.Getattr, nodes.Getitem, nodes.Name)


def _is_told(node: nodes.Node) -> bool:
    """Tells whether it is told what it gives, which looks whether it is there."""
    return not isinstance(node, nodes.Call) and not (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    )


def _require_made(source: Closure) -> Closure:
    """A value that is there, or that the run did not make."""

    def evaluate(frame: Frame) -> Any:
        value = source(frame)
        if type(value) is Missing and not value.excused:
            raise value.error()
        return value

    return evaluate


def _require_boolean(value: Any, place: str) -> bool:
    if value is True or value is False:
        return value
    if type(value) is Missing:
        if value.excused:
            return False
        raise value.error()
    detail = "" if value is None else f": {excerpt(value)}"
    raise TemplateError(f"{place}expected true or false, got {describe_kind(value)}{detail}")


def format_path(node: nodes.Node) -> str:
    """A path roughly as its author wrote it, for messages."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{format_path(node.node)}.{node.attr}"
    if isinstance(node, nodes.Getitem):
        return f"{format_path(node.node)}[…]"
    return "(…)"


def _tell_value(value: Any) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    return "nothing" if type(value) is Missing else excerpt(value, _MAX_EXCERPT)


def describe_source(node: nodes.Node) -> str:
    """Formats an expression roughly as written.

    >>> from flowengine.core.templating.parse import parse_expression
    >>> describe_source(parse_expression("nodes.draft['output'] | length").tree)
    'nodes.draft.output | length'
    """
    if isinstance(node, nodes.Filter):
        parentheses = "(…)" if node.args or node.kwargs else ""
        return f"{'(…)' if node.node is None else describe_source(node.node)} | {node.name}{parentheses}"
    if isinstance(node, nodes.Getitem) and _is_literal_key(node.arg):
        key = cast(nodes.Const, node.arg).value
        return f"{describe_source(node.node)}.{key}" if isinstance(key, str) else f"{describe_source(node.node)}[{key}]"
    if isinstance(node, nodes.Getattr):
        return f"{describe_source(node.node)}.{node.attr}"
    return format_path(node)


def _is_literal_key(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and type(node.value) in (str, int)


def _steps(start: str, keys: list[str | int]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for key in keys:
        start += f".{key}" if isinstance(key, str) else f"[{key}]"
        steps.append((key, start[:200]))
    return tuple(steps)


def _require_present(source: Closure) -> Closure:
    def evaluate(frame: Frame) -> Any:
        value = source(frame)
        if type(value) is Missing:
            raise value.error()
        return value

    return evaluate


def _as_is(source: Closure) -> Closure:
    return source


def _key(key: Any) -> Any:
    if isinstance(key, Missing):
        raise key.error()
    if kind_of(key) not in ("string", "number", "boolean", "null"):
        raise TemplateError(f"{describe_kind(key)} cannot be a key")
    return key


_BUILDERS: Final[dict[str, Callable[[ExpressionCompiler, Any], Closure]]] = {
    "And": ExpressionCompiler.both,
    "Call": ExpressionCompiler.call,
    "Compare": ExpressionCompiler.compare,
    "Concat": ExpressionCompiler.concat,
    "CondExpr": ExpressionCompiler.choice,
    "Const": ExpressionCompiler.constant,
    "Dict": ExpressionCompiler.mapping,
    "Filter": ExpressionCompiler.filter,
    "Getattr": ExpressionCompiler.path,
    "Getitem": ExpressionCompiler.item,
    "List": ExpressionCompiler.compile_list,
    "Name": ExpressionCompiler.path,
    "Neg": ExpressionCompiler.sign,
    "Not": ExpressionCompiler.negation,
    "Or": ExpressionCompiler.either,
    "Pos": ExpressionCompiler.sign,
    "Test": ExpressionCompiler.test,
    "Tuple": ExpressionCompiler.compile_tuple,
    **dict.fromkeys(OPERATORS, ExpressionCompiler.operation),
}
