"""Templates as a run needs them: compiled once a source to a callable `(scope) -> value`.

Whoever calls one gives it a `Scope` and gets a value or a `TemplateError`. A value is rendered once: what
looks like a placeholder inside a value stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Any, Final, cast

from jinja2 import nodes

from flowengine.errors import TemplateError
from flowengine.templating.expressions import ExpressionCompiler
from flowengine.templating.frame import Bindings, Closure, Frame, Scope
from flowengine.templating.limits import Meter
from flowengine.templating.parse import lone_expression, parse_expression, parse_template
from flowengine.templating.statements import StatementCompiler
from flowengine.templating.undefined import Missing

__all__ = ["Scope", "compile_boolean", "compile_expression", "compile_template"]

_CACHED: Final = 2_048

Template = Callable[[Scope], Any]


@lru_cache(maxsize=_CACHED)
def compile_template(source: str) -> Template:
    """A template: text, but a lone `{{ x }}` keeps its type; a value that is not there is an error.

    >>> compile_template("{{ inputs.n + 1 }}")({"inputs": {"n": 1}})
    2
    >>> compile_template("n = {{ inputs.n }}")({"inputs": {"n": "{{ x }}"}})
    'n = {{ x }}'
    """
    parsed = parse_template(source)
    lone = lone_expression(parsed.tree)
    if lone is not None:
        return _value_of(lone, ExpressionCompiler(Bindings()).expression(lone), present=True)
    assert isinstance(parsed.tree, nodes.Template)  # a template that is no lone expression
    if parsed.is_static:
        text = "".join(_data(parsed.tree))
        return lambda scope: text
    return _text_of(parsed.tree)


@lru_cache(maxsize=_CACHED)
def compile_expression(source: str) -> Template:
    """A bare expression. It may give a `Missing` for what the run did not make: only the caller knows whether a
    value is needed.

    >>> compile_expression("nodes.plan.output | length")({"nodes": {"plan": {"output": [1, 2]}}})
    2
    """
    tree = _expression_tree(source)
    return _value_of(tree, ExpressionCompiler(Bindings(), bare=True).expression(tree), present=False)


@lru_cache(maxsize=_CACHED)
def compile_boolean(source: str) -> Callable[[Scope], bool]:
    """An expression that must give true or false; what the run did not make counts as false.

    >>> compile_boolean("inputs.flag")({"inputs": {"flag": "false"}})
    Traceback (most recent call last):
        ...
    flowengine.errors.TemplateError: inputs.flag: expected true or false, got a string: "false"
    """
    evaluate = ExpressionCompiler(Bindings(), bare=True).boolean(_expression_tree(source))
    return _guarded(lambda scope: evaluate(Frame(scope)))


def _expression_tree(source: str) -> nodes.Expr:
    tree = parse_expression(source).tree
    assert isinstance(tree, nodes.Expr)  # an expression's tree is one
    return tree


def _value_of(tree: nodes.Expr, evaluate: Closure, present: bool) -> Template:
    is_whole = _gives_no_new_list(tree)

    @_guarded
    def value(scope: Scope) -> Any:
        frame = Frame(scope)
        found = evaluate(frame)
        if present and type(found) is Missing:
            raise found.error()
        if not is_whole:
            _check_present(frame, found, set())
        return found

    return value


def _gives_no_new_list(tree: nodes.Node) -> bool:
    """Whether the value is one of the scope's own, or a boolean: then no missing value can be inside it."""
    while isinstance(tree, nodes.Getattr):
        tree = tree.node
    return isinstance(tree, (nodes.Name, nodes.Compare, nodes.Test, nodes.Not, nodes.Const))


def _text_of(tree: nodes.Template) -> Template:
    compiler = StatementCompiler()
    body = compiler.body(tree.body)
    slots = compiler.bindings.count

    @_guarded
    def text(scope: Scope) -> str:
        frame = Frame(scope, slots)
        for part in body:
            part(frame)
        return "".join(frame.out)

    return text


def _guarded(template: Template) -> Template:
    @wraps(template)
    def run(scope: Scope) -> Any:
        try:
            return template(scope)
        except RecursionError as error:
            raise TemplateError("the template or a value in it is nested too deep") from error

    return run


def _check_present(meter: Meter, value: Any, seen: set[int]) -> None:
    """A list that a template made must not carry a missing value into the run."""
    if type(value) not in (list, tuple, dict) or id(value) in seen:
        return
    seen.add(id(value))
    meter.spend(len(value))
    parts = cast("Iterable[Any]", value.values() if type(value) is dict else value)
    for each in parts:
        if type(each) is Missing:
            raise each.error()
        _check_present(meter, each, seen)


def _data(tree: nodes.Template) -> list[str]:
    outputs = [each for each in tree.body if isinstance(each, nodes.Output)]
    return [part.data for each in outputs for part in each.nodes if isinstance(part, nodes.TemplateData)]
