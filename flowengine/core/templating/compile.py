"""Compiles templates, once a source, to a callable `(scope) -> value`.

The caller gives it a `Scope` and gets a value or a `TemplateError`. A value is rendered once: what
looks like a placeholder inside a value stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any, Final, Protocol, cast

from jinja2 import nodes

from flowengine.core.templating.access import Missing, describe_kind, read_sequence
from flowengine.core.templating.compare import is_true
from flowengine.core.templating.expressions import ExpressionCompiler
from flowengine.core.templating.frame import UNSET, Bindings, Closure, Frame, Loop, Scope, Slot
from flowengine.core.templating.limits import Meter
from flowengine.core.templating.parse import lone_expression, parse_expression, parse_template
from flowengine.core.templating.text import to_text
from flowengine.errors import TemplateError

# --- Text and tags as closures

Bind = Callable[[Frame, Any], None]


class StatementCompiler(ExpressionCompiler):
    """Compiles the body of a template; names are bound by the rule in `references`."""

    def __init__(self, encode: Callable[[str], str] | None = None) -> None:
        super().__init__(Bindings())
        self._encode = encode

    def body(self, statements: Iterable[nodes.Node]) -> list[Closure]:
        return [self._statement(each) for each in statements]

    def _statement(self, node: nodes.Node) -> Closure:
        self.built += 1
        return _BUILDERS[type(node).__name__](self, node)

    def output(self, node: nodes.Output) -> Closure:
        parts = [each.data if isinstance(each, nodes.TemplateData) else self.expression(each) for each in node.nodes]
        encode = self._encode
        if encode is not None:

            def run_encoded(frame: Frame) -> None:
                for part in parts:
                    frame.emit(part if isinstance(part, str) else encode(to_text(frame, part(frame))))

            return run_encoded

        def run(frame: Frame) -> None:
            for part in parts:
                frame.emit(part if isinstance(part, str) else to_text(frame, part(frame)))

        return run

    def condition(self, node: nodes.If) -> Closure:
        branches = [(self.expression(each.test), self.body(each.body)) for each in (node, *node.elif_)]
        otherwise = self.body(node.else_)

        def run(frame: Frame) -> None:
            for test, body in branches:
                if is_true(test(frame)):
                    return _run_all(body, frame)
            _run_all(otherwise, frame)

        return run

    def loop(self, node: nodes.For) -> Closure:
        source = self.expression(node.iter)
        before, first_slot = self.built, self.bindings.count
        self.bindings.open()
        bind = self._target(node.target)
        test = None if node.test is None else self.expression(node.test)
        loop = self.bindings.declare("loop")
        body = self.body(node.body)
        self.bindings.close()
        fresh = slice(first_slot, self.bindings.count)
        iteration = _Iteration(bind, loop if loop.at in self.bindings.read else None, body, fresh)
        cost, otherwise = self.built - before + 1, self._block(node.else_)

        def run(frame: Frame) -> None:
            items = read_sequence(frame, source(frame))
            if test is not None:
                items = [each for each in items if iteration.passes(frame, each, test, cost)]
            iteration.run(frame, items, cost)
            if not items:
                _run_all(otherwise, frame)

        return run

    def assignment(self, node: nodes.Assign) -> Closure:
        source, bind = self.expression(node.node), self._target(node.target)
        return lambda frame: bind(frame, source(frame))

    def compile_capture(self, node: nodes.AssignBlock) -> Closure:
        body, bind = self._block(node.body), self._target(node.target)

        def run(frame: Frame) -> None:
            outside, frame.out = frame.out, []
            _run_all(body, frame)
            text, frame.out = "".join(frame.out), outside
            bind(frame, text)

        return run

    def with_(self, node: nodes.With) -> Closure:
        sources = [self.expression(each) for each in node.values]
        self.bindings.open()
        targets = [self._target(each) for each in node.targets]
        body = self.body(node.body)
        self.bindings.close()

        def run(frame: Frame) -> None:
            values = [source(frame) for source in sources]
            for bind, value in zip(targets, values, strict=True):
                bind(frame, value)
            _run_all(body, frame)

        return run

    def _block(self, statements: Iterable[nodes.Node]) -> list[Closure]:
        """Statements whose names end with them."""
        self.bindings.open()
        body = self.body(statements)
        self.bindings.close()
        return body

    def _target(self, target: nodes.Node) -> Bind:
        if isinstance(target, nodes.Tuple):
            return _make_unpacking([self._target(each) for each in target.items])
        assert isinstance(target, nodes.Name)  # the rules let nothing else through
        at = self.bindings.declare(target.name).at

        def bind(frame: Frame, value: Any) -> None:
            frame.slots[at] = value

        return bind


class _Iteration:
    """The body of a loop, with what is set anew for every item."""

    def __init__(self, bind: Bind, loop: Slot | None, body: list[Closure], fresh: slice) -> None:
        self._bind = bind
        self._loop = loop
        self._body = body
        self._fresh = fresh
        self._clean = [UNSET] * (fresh.stop - fresh.start)

    def passes(self, frame: Frame, each: Any, test: Closure, cost: int) -> bool:
        frame.spend(cost)
        self._bind(frame, each)
        return is_true(test(frame))

    def run(self, frame: Frame, items: Sequence[Any], cost: int) -> None:
        for at, each in enumerate(items):
            frame.spend(cost)
            frame.slots[self._fresh] = self._clean
            self._bind(frame, each)
            if self._loop is not None:
                frame.slots[self._loop.at] = _make_loop(items, at)
            for part in self._body:
                part(frame)


def _make_loop(items: Sequence[Any], at: int) -> Loop:
    size = len(items)
    before = items[at - 1] if at else Missing("loop.previtem", "this is the first item", excused=True)
    after = items[at + 1] if at + 1 < size else Missing("loop.nextitem", "this is the last item", excused=True)
    return Loop(at + 1, at, size - at, size - at - 1, at == 0, at + 1 == size, size, before, after)


def _run_all(body: list[Closure], frame: Frame) -> None:
    for part in body:
        part(frame)


def _make_unpacking(targets: list[Bind]) -> Bind:
    def bind(frame: Frame, value: Any) -> None:
        parts = cast("Sequence[Any]", value) if isinstance(value, tuple) else read_sequence(frame, value)
        if len(parts) != len(targets):
            raise TemplateError(
                f"{describe_kind(value)} of {len(parts)} items cannot be unpacked into {len(targets)} names"
            )
        for each, part in zip(targets, parts, strict=True):
            each(frame, part)

    return bind


_BUILDERS: Final[dict[str, Callable[[StatementCompiler, Any], Closure]]] = {
    "Assign": StatementCompiler.assignment,
    "AssignBlock": StatementCompiler.compile_capture,
    "For": StatementCompiler.loop,
    "If": StatementCompiler.condition,
    "Output": StatementCompiler.output,
    "With": StatementCompiler.with_,
}


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
        return _compile_value(lone, ExpressionCompiler(Bindings()).expression(lone), present=True)
    assert isinstance(parsed.tree, nodes.Template)  # a template that is no lone expression
    if parsed.is_static:
        text = "".join(_data(parsed.tree))
        return lambda scope: text
    return _compile_text(parsed.tree)


@lru_cache(maxsize=_CACHED)
def compile_encoded(source: str, encode: Callable[[str], str]) -> Callable[[Scope], str]:
    """A template whose printed values are encoded; a `TemplateError` for one with tags, or that is a lone value.

    >>> from urllib.parse import quote
    >>> compile_encoded("/orders/{{ inputs.id }}/", lambda text: quote(text, safe=""))({"inputs": {"id": "a/b"}})
    '/orders/a%2Fb/'
    """
    tree = parse_template(source).tree
    if lone_expression(tree) is not None or not isinstance(tree, nodes.Template):
        raise TemplateError("a lone value has nothing round it")
    if not all(isinstance(each, nodes.Output) for each in tree.body):
        raise TemplateError("only `{{ … }}` may stand here, and no `{% … %}`")
    return _compile_text(tree, encode)


@lru_cache(maxsize=_CACHED)
def compile_expression(source: str) -> Template:
    """A bare expression. It may give a `Missing` for what the run did not make: only the caller knows whether a
    value is needed.

    >>> compile_expression("nodes.plan.output | length")({"nodes": {"plan": {"output": [1, 2]}}})
    2
    """
    tree = _expression_tree(source)
    return _compile_value(tree, ExpressionCompiler(Bindings(), bare=True).expression(tree), present=False)


class Predicate(Protocol):
    """A compiled expression that decides."""

    def __call__(self, scope: Scope, readings: dict[str, str] | None = None, /) -> bool: ...


@lru_cache(maxsize=_CACHED)
def compile_predicate(source: str) -> Predicate:
    """An expression that must give true or false; what the run did not make counts as false. What it reads is put into
    the second argument, where that is a dict: path → the value, as JSON that may be cut.

    >>> readings = {}
    >>> compile_predicate("inputs.n > 3 and inputs.x")({"inputs": {"n": 2, "x": True}}, readings), readings
    (False, {'inputs.n': '2'})
    >>> compile_predicate("inputs.flag")({"inputs": {"flag": "false"}})
    Traceback (most recent call last):
        ...
    flowengine.errors.TemplateError: inputs.flag: expected true or false, got a string: "false"
    """
    evaluate = ExpressionCompiler(Bindings(), bare=True).boolean(_expression_tree(source))

    def decide(scope: Scope, readings: dict[str, str] | None = None, /) -> bool:
        try:
            return evaluate(Frame(scope, readings))
        except RecursionError as error:
            raise _too_deep() from error

    return decide


def _expression_tree(source: str) -> nodes.Expr:
    tree = parse_expression(source).tree
    assert isinstance(tree, nodes.Expr)  # an expression's tree is one
    return tree


def _compile_value(tree: nodes.Expr, evaluate: Closure, present: bool) -> Template:
    is_whole = _gives_no_new_list(tree)

    @_guard
    def value(scope: Scope) -> Any:
        frame = Frame(scope)
        result = evaluate(frame)
        if present and type(result) is Missing:
            raise result.error()
        if not is_whole:
            _check_present(frame, result, set())
        return result

    return value


def _gives_no_new_list(tree: nodes.Node) -> bool:
    """Tells whether the value is one of the scope's own, or a boolean: then no missing value can be inside it."""
    while isinstance(tree, nodes.Getattr):
        tree = tree.node
    return isinstance(tree, (nodes.Name, nodes.Compare, nodes.Test, nodes.Not, nodes.Const))


def _compile_text(tree: nodes.Template, encode: Callable[[str], str] | None = None) -> Template:
    compiler = StatementCompiler(encode)
    body = compiler.body(tree.body)
    slots = compiler.bindings.count

    @_guard
    def text(scope: Scope) -> str:
        frame = Frame(scope)
        frame.begin_text(slots)
        for part in body:
            part(frame)
        return "".join(frame.out)

    return text


def _guard(template: Template) -> Template:
    @wraps(template)
    def run(scope: Scope) -> Any:
        try:
            return template(scope)
        except RecursionError as error:
            raise _too_deep() from error

    return run


def _too_deep() -> TemplateError:
    return TemplateError("the template or a value in it is nested too deep")


def _check_present(meter: Meter, value: Any, visited: set[int]) -> None:
    """A list that a template made must not carry a missing value into the run."""
    if type(value) not in (list, tuple, dict) or id(value) in visited:
        return
    visited.add(id(value))
    meter.spend(len(value))
    parts = cast("Iterable[Any]", value.values() if type(value) is dict else value)
    for each in parts:
        if type(each) is Missing:
            raise each.error()
        _check_present(meter, each, visited)


def _data(tree: nodes.Template) -> list[str]:
    outputs = [each for each in tree.body if isinstance(each, nodes.Output)]
    return [part.data for each in outputs for part in each.nodes if isinstance(part, nodes.TemplateData)]
