"""The text and the tags of a template (`for`, `if`, `set`, `with`) turned into closures that emit text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from jinja2 import nodes

from flowengine.errors import TemplateError
from flowengine.templating.access import named, sequence
from flowengine.templating.compare import truth
from flowengine.templating.expressions import ExpressionCompiler
from flowengine.templating.frame import UNSET, Bindings, Closure, Frame, Loop, Slot
from flowengine.templating.text import to_text
from flowengine.templating.undefined import Missing

__all__ = ["StatementCompiler"]

Bind = Callable[[Frame, Any], None]


class StatementCompiler(ExpressionCompiler):
    """Compiles the body of a template; names are bound by the rule in `references`."""

    def __init__(self) -> None:
        super().__init__(Bindings())

    def body(self, statements: Iterable[nodes.Node]) -> list[Closure]:
        return [self._statement(each) for each in statements]

    def _statement(self, node: nodes.Node) -> Closure:
        self.built += 1
        return _BUILDERS[type(node).__name__](self, node)

    def output(self, node: nodes.Output) -> Closure:
        parts = [each.data if isinstance(each, nodes.TemplateData) else self.expression(each) for each in node.nodes]

        def run(frame: Frame) -> None:
            for part in parts:
                frame.emit(part if isinstance(part, str) else to_text(frame, part(frame)))

        return run

    def condition(self, node: nodes.If) -> Closure:
        branches = [(self.expression(each.test), self.body(each.body)) for each in (node, *node.elif_)]
        otherwise = self.body(node.else_)

        def run(frame: Frame) -> None:
            for test, body in branches:
                if truth(test(frame)):
                    return _run(body, frame)
            _run(otherwise, frame)

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
            items = sequence(frame, source(frame))
            if test is not None:
                items = [each for each in items if iteration.passes(frame, each, test, cost)]
            iteration.run(frame, items, cost)
            if not items:
                _run(otherwise, frame)

        return run

    def assignment(self, node: nodes.Assign) -> Closure:
        source, bind = self.expression(node.node), self._target(node.target)
        return lambda frame: bind(frame, source(frame))

    def captured(self, node: nodes.AssignBlock) -> Closure:
        body, bind = self._block(node.body), self._target(node.target)

        def run(frame: Frame) -> None:
            outside, frame.out = frame.out, []
            _run(body, frame)
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
            _run(body, frame)

        return run

    def _block(self, statements: Iterable[nodes.Node]) -> list[Closure]:
        """Statements whose names end with them."""
        self.bindings.open()
        body = self.body(statements)
        self.bindings.close()
        return body

    def _target(self, target: nodes.Node) -> Bind:
        if isinstance(target, nodes.Tuple):
            return _unpacking([self._target(each) for each in target.items])
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
        return truth(test(frame))

    def run(self, frame: Frame, items: Sequence[Any], cost: int) -> None:
        for at, each in enumerate(items):
            frame.spend(cost)
            frame.slots[self._fresh] = self._clean
            self._bind(frame, each)
            if self._loop is not None:
                frame.slots[self._loop.at] = _loop(items, at)
            for part in self._body:
                part(frame)


def _loop(items: Sequence[Any], at: int) -> Loop:
    size = len(items)
    before = items[at - 1] if at else Missing("loop.previtem", "this is the first item", excused=True)
    after = items[at + 1] if at + 1 < size else Missing("loop.nextitem", "this is the last item", excused=True)
    return Loop(at + 1, at, size - at, size - at - 1, at == 0, at + 1 == size, size, before, after)


def _run(body: list[Closure], frame: Frame) -> None:
    for part in body:
        part(frame)


def _unpacking(targets: list[Bind]) -> Bind:
    def bind(frame: Frame, value: Any) -> None:
        parts = cast("Sequence[Any]", value) if isinstance(value, tuple) else sequence(frame, value)
        if len(parts) != len(targets):
            raise TemplateError(f"{named(value)} of {len(parts)} items cannot be unpacked into {len(targets)} names")
        for each, part in zip(targets, parts, strict=True):
            each(frame, part)

    return bind


_BUILDERS: Final[dict[str, Callable[[StatementCompiler, Any], Closure]]] = {
    "Assign": StatementCompiler.assignment,
    "AssignBlock": StatementCompiler.captured,
    "For": StatementCompiler.loop,
    "If": StatementCompiler.condition,
    "Output": StatementCompiler.output,
    "With": StatementCompiler.with_,
}
