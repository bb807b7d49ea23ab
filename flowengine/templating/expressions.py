"""Expressions of the syntax tree turned into closures, once.

Nothing is evaluated here: literals stay where they are, so a size bomb of constants goes off in an
evaluation, where the meter stops it. A closure takes the frame and gives the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from jinja2 import nodes

from flowengine.errors import TemplateError
from flowengine.templating.access import attribute, entry, item, kind_of, named, slice_of
from flowengine.templating.arguments import whole
from flowengine.templating.arithmetic import OPERATORS, negative, positive
from flowengine.templating.compare import truth
from flowengine.templating.comparison import comparison
from flowengine.templating.filters import FILTERS, TAKES_MISSING, TESTS
from flowengine.templating.filters_list import pairs_of
from flowengine.templating.frame import Bindings, Closure, Frame
from flowengine.templating.limits import Meter
from flowengine.templating.paths import Step, computed_path, local_path, outer_path
from flowengine.templating.text import to_text
from flowengine.templating.undefined import Missing

__all__ = ["ExpressionCompiler"]

_FARTHEST: Final = 10**15
"""Bounds of `range`."""


class ExpressionCompiler:
    """Compiles expressions; `built` counts the parts made so far, which is what a loop's body costs."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.built: int = 0

    def expression(self, node: nodes.Node) -> Closure:
        """The closure of any expression."""
        self.built += 1
        return _BUILDERS[type(node).__name__](self, node)

    def path(self, node: Any) -> Closure:
        """A name or a value with literal fields and positions after it, as one closure."""
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
            return computed_path(self.expression(node), _steps(written(node), keys))
        slot = self.bindings.find(node.name)
        steps = _steps(node.name, keys)
        return local_path(slot, steps) if slot else outer_path(node.name, steps)

    def item(self, node: nodes.Getitem) -> Closure:
        if isinstance(node.arg, nodes.Slice):
            return self._slice(node.node, node.arg)
        if _is_literal_key(node.arg):
            return self.path(node)
        source, key, text = self.expression(node.node), self.expression(node.arg), f"{written(node.node)}[…]"
        return lambda frame: item(source(frame), key(frame), text)

    def _slice(self, node: nodes.Expr, cut: nodes.Slice) -> Closure:
        source = self.expression(node)
        start, stop, step = (self._optional(each) for each in (cut.start, cut.stop, cut.step))
        return lambda frame: slice_of(frame, source(frame), start(frame), stop(frame), step(frame))

    def _optional(self, node: nodes.Expr | None) -> Closure:
        return (lambda frame: None) if node is None else self.expression(node)

    def constant(self, node: nodes.Const) -> Closure:
        value = node.value
        return lambda frame: value

    def listed(self, node: nodes.List) -> Closure:
        parts = [self.expression(each) for each in node.items]
        return lambda frame: [part(frame) for part in parts]

    def tupled(self, node: nodes.Tuple) -> Closure:
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
            return right(frame) if truth(value) else value

        return evaluate

    def either(self, node: nodes.Or) -> Closure:
        left, right = self.expression(node.left), self.expression(node.right)

        def evaluate(frame: Frame) -> Any:
            value = left(frame)
            return value if truth(value) else right(frame)

        return evaluate

    def negation(self, node: nodes.Not) -> Closure:
        source = self.expression(node.node)
        return lambda frame: not truth(source(frame))

    def choice(self, node: nodes.CondExpr) -> Closure:
        test, then = self.expression(node.test), self.expression(node.expr1)
        if node.expr2 is None:
            return lambda frame: then(frame) if truth(test(frame)) else Missing("the value", "`if` without `else`")
        other = self.expression(node.expr2)
        return lambda frame: then(frame) if truth(test(frame)) else other(frame)

    def compare(self, node: nodes.Compare) -> Closure:
        first = self.expression(node.expr)
        return comparison(first, [(each.op, self.expression(each.expr)) for each in node.ops])

    def filter(self, node: nodes.Filter) -> Closure:
        function, source, takes_missing = FILTERS[node.name], self._input(node), node.name in TAKES_MISSING
        arguments, keywords = self._arguments(node, refuse_missing=not takes_missing)

        def evaluate(frame: Frame) -> Any:
            value = source(frame)
            if type(value) is Missing and not takes_missing:
                raise value.error()
            given = [each(frame) for each in arguments]
            return function(frame, value, *given, **{name: each(frame) for name, each in keywords})

        return evaluate

    def test(self, node: nodes.Test) -> Closure:
        function, source = TESTS[node.name], self._input(node)
        arguments, _ = self._arguments(node, refuse_missing=False)
        return lambda frame: function(frame, source(frame), *[each(frame) for each in arguments])

    def _input(self, node: nodes.Filter | nodes.Test) -> Closure:
        assert node.node is not None  # only a filter block has none, and the rules refuse those
        return self.expression(node.node)

    def _arguments(self, node: Any, refuse_missing: bool) -> Any:
        wrap = _present if refuse_missing else _as_is
        keywords = [(each.key, wrap(self.expression(each.value))) for each in node.kwargs]
        return [wrap(self.expression(each)) for each in node.args], keywords

    def call(self, node: nodes.Call) -> Closure:
        arguments = [self.expression(each) for each in node.args]
        if isinstance(node.node, nodes.Name):
            return lambda frame: _range(frame, [each(frame) for each in arguments])
        assert isinstance(node.node, nodes.Getattr)  # the rules let nothing else through
        source, method, text = self.expression(node.node.node), node.node.attr, written(node.node.node)
        if method == "get":
            return lambda frame: _get(source(frame), text, *[each(frame) for each in arguments])
        side = {"keys": 0, "values": 1}.get(method)
        return lambda frame: _pairs(frame, source(frame), side)


def written(node: nodes.Node) -> str:
    """A path roughly as its author wrote it, for messages."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{written(node.node)}.{node.attr}"
    if isinstance(node, nodes.Getitem):
        return f"{written(node.node)}[…]"
    return "(…)"


def _is_literal_key(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and type(node.value) in (str, int)


def _steps(start: str, keys: list[str | int]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for key in keys:
        start += f".{key}" if isinstance(key, str) else f"[{key}]"
        steps.append((key, start[:200]))
    return tuple(steps)


def _present(source: Closure) -> Closure:
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
        raise TemplateError(f"{named(key)} cannot be a key")
    return key


def _range(meter: Meter, arguments: list[Any]) -> list[int]:
    bounds = [whole(each, "a bound of range()", -_FARTHEST, _FARTHEST) for each in arguments]
    if len(bounds) == 3 and bounds[2] == 0:
        raise TemplateError("the step of range() cannot be 0")
    numbers = range(*bounds)
    meter.items(len(numbers))
    return list(numbers)


def _get(value: Any, text: str, key: Any, *default: Any) -> Any:
    """`mapping.get(key, default)`; without a default an absent key is as missing as anywhere else."""
    path = f"{text}.get(…)"
    if isinstance(key, Missing):
        raise key.error()
    kind = kind_of(value)
    if kind == "mapping":
        found = entry(value, key, path)
    elif kind in ("object", "missing") and isinstance(key, str):
        found = attribute(value, key, path)
    else:
        raise TemplateError(f"{path}: {named(value)} is no mapping")
    return default[0] if default and isinstance(found, Missing) else found


def _pairs(meter: Meter, value: Any, side: int | None) -> list[Any]:
    if isinstance(value, Missing):
        raise value.error()
    pairs = pairs_of(meter, value)
    return pairs if side is None else [pair[side] for pair in pairs]


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
    "List": ExpressionCompiler.listed,
    "Name": ExpressionCompiler.path,
    "Neg": ExpressionCompiler.sign,
    "Not": ExpressionCompiler.negation,
    "Or": ExpressionCompiler.either,
    "Pos": ExpressionCompiler.sign,
    "Test": ExpressionCompiler.test,
    "Tuple": ExpressionCompiler.tupled,
    **dict.fromkeys(OPERATORS, ExpressionCompiler.operation),
}
