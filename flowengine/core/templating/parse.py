"""Parses templates for the checks, which never compile or evaluate them.

A *template* is text with `{{ … }}` and `{% … %}` in it; an *expression* is what stands between the braces
(`if`, `when`, `until`, `over`, `best_by`). Parsing finds every error that needs no values, and every name
that is read from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from jinja2 import nodes

from flowengine.core.templating.grammar import METHODS, Source, expression_tree, template_tree

# --- Names that a template reads from outside

GUARDING_FILTERS: Final = frozenset({"d", "default", "select", "reject"})
GUARDING_TESTS: Final = frozenset({"defined", "undefined"})
_NEEDING_TESTS: Final = frozenset({"divisibleby", "even", "odd", "<", "<=", ">", ">=", "lt", "le", "gt", "ge"})
_UNNEEDING: Final = frozenset({"eq", "ne"})
_COUNTING_FILTERS: Final = frozenset({"abs", "count", "float", "int", "length", "round", "wordcount"})
"""Filters that give a number for a text."""
_SHOWING_FILTERS: Final = frozenset(
    {"capitalize", "d", "default", "e", "escape", "indent", "lower", "string", "title", "tojson", "trim", "upper"}
)
"""Filters that give all that can be read in a value."""


class Reference(NamedTuple):
    """One read of an outer name, with the fields that follow it as far as they are literal."""

    path: tuple[str, ...]
    line: int
    column: int
    printed: bool
    """The value is needed here: it is printed, gone through or calculated with, so a value that is not
    there would be an error."""
    guarded: bool
    """It stands in `default(…)`, in `or`, in `is defined`, in the test of an `if`, or under an `if` (or
    behind an `and`) that tests it."""
    carried: bool = True
    """Whether its value may be part of what the template gives: it is not only compared, counted or tested."""
    whole: bool = True
    """It is given as it is, and always: not under a condition, in a loop, by an index, or cut by a filter."""
    compared: tuple[str, ...] = ()
    """Texts that stand on the other side of `==`, `!=` or `in`."""
    may_be_own: bool = False
    """A `set` under an `if` may have made the name one of the template's own."""


def collect(source: Source, tree: nodes.Node) -> tuple[Reference, ...]:
    """All references of a template or an expression, in the order of the text."""
    collector = _Collector()
    collector.visit(tree, isinstance(tree, nodes.Template), False)
    paths = sorted(collector.paths, key=lambda each: each[0])
    return tuple(
        Reference(path, *source.place(at), printed, guarded, carried, whole, compared, own)
        for at, path, printed, guarded, carried, whole, compared, own in paths
    )


def names_in_target(target: nodes.Node) -> list[str]:
    """The names that a `for`, `set` or `with` binds."""
    if isinstance(target, nodes.Tuple):
        return [name for each in target.items for name in names_in_target(each)]
    return [target.name] if isinstance(target, nodes.Name) else []


_PATHS: Final = (nodes.Name, nodes.Getattr, nodes.Getitem)


class _Collector:
    """Walks the tree; `needed` and `guarded` say in what position a value stands."""

    def __init__(self) -> None:
        self.paths: list[tuple[int, tuple[str, ...], bool, bool, bool, bool, tuple[str, ...], bool]] = []
        self._compared: tuple[str, ...] = ()
        """The texts that the path visited next is compared with."""
        self._bound: list[dict[str, bool]] = [{}]
        """Names of each block; False where the `set` stands under an `if`, and may be passed by."""
        self._tested: list[tuple[str, ...]] = []
        self._answer_depth = self._parted = 0
        """Constructs round the node that give no text of it; and those that give it in part, or not always."""

    def visit(self, node: nodes.Node, needed: bool, guarded: bool) -> None:
        if isinstance(node, _PATHS) or _is_method(node):
            self._path(node, needed, guarded)
            return
        special = _SPECIAL.get(type(node).__name__)
        if special is not None:
            special(self, node, needed, guarded)
            return
        calculated = isinstance(node, nodes.BinExpr)
        self._parted += calculated
        for child in node.iter_child_nodes():
            self.visit(child, needed, guarded)
        self._parted -= calculated

    @contextmanager
    def giving(self, *, part: bool = False, answer: bool = False) -> Generator[None]:
        """Marks whether the visited part contributes its text, or only an answer about it."""
        self._parted += part
        self._answer_depth += answer
        yield
        self._parted -= part
        self._answer_depth -= answer

    def _path(self, node: Any, needed: bool, guarded: bool) -> None:
        steps: list[str] = []
        inner = guarded
        whole = not self._parted
        compared, self._compared = self._compared, ()
        while True:
            if isinstance(node, nodes.Getattr):
                steps.append(node.attr)
                node = node.node
            elif isinstance(node, nodes.Getitem):
                if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                    steps.append(node.arg.value)
                else:
                    steps.clear()
                    whole, compared = False, ()
                    with self.giving(answer=True):
                        self.visit(node.arg, True, guarded)
                node = node.node
            elif _is_method(node):
                inner = self._method(node, steps, needed, guarded) or inner
                whole, compared = False, ()
                node = node.node.node
            else:
                break
        if not isinstance(node, nodes.Name):
            self.visit(node, needed, inner)
        elif not any(names.get(node.name) for names in self._bound):
            path = (node.name, *reversed(steps))
            shielded = any(path[: len(tested)] == tested for tested in self._tested)
            own = any(node.name in names for names in self._bound)
            self.paths.append(
                (node.lineno, path, needed, inner or shielded, not self._answer_depth, whole, compared, own)
            )

    def _method(self, node: nodes.Call, steps: list[str], needed: bool, guarded: bool) -> bool:
        """`x.get("a")` is the step `a`, guarded where it has a default; other methods end the path."""
        for each in node.args:
            self.visit(each, needed, guarded)
        first = node.args[0] if node.args else None
        if isinstance(first, nodes.Const) and isinstance(first.value, str):
            steps.append(first.value)
        else:
            steps.clear()
        return len(node.args) == 2

    def on_filter(self, node: nodes.Filter, needed: bool, guarded: bool) -> None:
        guards = node.name in GUARDING_FILTERS
        if node.node is not None:
            with self.giving(part=node.name not in _SHOWING_FILTERS, answer=node.name in _COUNTING_FILTERS):
                self.visit(node.node, not guards, guarded or guards)
        with self.giving(part=True):
            for each in (*node.args, *node.kwargs):
                self.visit(each, needed or not guards, guarded)

    def on_test(self, node: nodes.Test, needed: bool, guarded: bool) -> None:
        with self.giving(answer=True):
            self.visit(node.node, node.name in _NEEDING_TESTS, guarded or node.name in GUARDING_TESTS)
            for each in node.args:
                self.visit(each, True, guarded)

    def on_or(self, node: nodes.Or, needed: bool, guarded: bool) -> None:
        self.visit(node.left, False, True)
        with self.giving(part=True):
            self.visit(node.right, needed, True)

    def on_and(self, node: nodes.And, needed: bool, guarded: bool) -> None:
        with self._shielding(node.left, guarded), self.giving(part=True):
            self.visit(node.right, needed, guarded)

    def on_not(self, node: nodes.Not, needed: bool, guarded: bool) -> None:
        with self.giving(answer=True):
            self.visit(node.node, False, guarded)

    def on_compare(self, node: nodes.Compare, needed: bool, guarded: bool) -> None:
        loose = all(each.op in _UNNEEDING for each in node.ops)
        lone = node.ops[0] if len(node.ops) == 1 else None
        with self.giving(answer=True):
            if lone is not None and isinstance(node.expr, _PATHS):
                self._compared = _texts_of(lone.expr, lone.op)
            self.visit(node.expr, not loose and node.ops[0].op not in ("in", "notin"), guarded)
            if lone is not None and isinstance(lone.expr, _PATHS) and loose:
                self._compared = _texts_of(node.expr, lone.op)
            for each in node.ops:
                self.visit(each.expr, not loose, guarded)

    def on_either(self, node: nodes.CondExpr, needed: bool, guarded: bool) -> None:
        with self._shielding(node.test, True), self.giving(part=True):
            for each in (node.expr1, node.expr2):
                if each is not None:
                    self.visit(each, needed, guarded)

    def on_if(self, node: nodes.If, needed: bool, guarded: bool) -> None:
        with self._shielding(node.test, True), self.giving(part=True):
            branches = [self._branch(node.body, needed, guarded)]
            for each in node.elif_:
                with self._shielding(each.test, True):
                    branches.append(self._branch(each.body, needed, guarded))
            branches.append(self._branch(node.else_, needed, guarded))
        for name in dict.fromkeys(name for names in branches for name in names):
            always = all(names.get(name) for names in branches)
            self._bound[-1][name] = always or self._bound[-1].get(name, False)

    def _branch(self, body: Iterable[nodes.Node], needed: bool, guarded: bool) -> Mapping[str, bool]:
        """The names that a branch sets."""
        with self._block([]) as names:
            for each in body:
                self.visit(each, needed, guarded)
        return names

    def on_for(self, node: nodes.For, needed: bool, guarded: bool) -> None:
        with self.giving(part=True):
            self.visit(node.iter, True, guarded)
            with self._block([*names_in_target(node.target), "loop"]):
                for each in (node.test, *node.body):
                    if each is not None:
                        with self.giving(answer=each is node.test):
                            self.visit(each, each is not node.test, guarded)
            self._statements(node.else_)

    def on_set(self, node: nodes.Assign, needed: bool, guarded: bool) -> None:
        with self.giving(part=True):
            self.visit(node.node, isinstance(node.target, nodes.Tuple), guarded)
        self._bound[-1].update(dict.fromkeys(names_in_target(node.target), True))

    def on_set_block(self, node: nodes.AssignBlock, needed: bool, guarded: bool) -> None:
        with self.giving(part=True):
            self._statements(node.body)
        self._bound[-1].update(dict.fromkeys(names_in_target(node.target), True))

    def on_with(self, node: nodes.With, needed: bool, guarded: bool) -> None:
        with self.giving(part=True):
            for each in node.values:
                self.visit(each, False, guarded)
        with self._block([name for target in node.targets for name in names_in_target(target)]):
            for each in node.body:
                self.visit(each, True, guarded)

    def _statements(self, body: Iterable[nodes.Node]) -> None:
        with self._block([]):
            for each in body:
                self.visit(each, True, False)

    @contextmanager
    def _block(self, names: Iterable[str]) -> Generator[Mapping[str, bool]]:
        bound = dict.fromkeys(names, True)
        self._bound.append(bound)
        yield bound
        self._bound.pop()

    @contextmanager
    def _shielding(self, test: nodes.Node, guarded: bool) -> Generator[None]:
        """Records that a test guards the values in its dependent part."""
        before = len(self.paths)
        with self.giving(answer=True):
            self.visit(test, False, guarded)
        size = len(self._tested)
        self._tested.extend(path for _, path, *_ in self.paths[before:])
        yield
        del self._tested[size:]


def _texts_of(node: nodes.Expr, sign: str) -> tuple[str, ...]:
    """The texts that stand on one side of a comparison, as constants."""
    values = node.items if isinstance(node, (nodes.List, nodes.Tuple)) and sign in ("in", "notin") else []
    values = [node] if sign in _UNNEEDING else values
    constants = (each.value for each in values if isinstance(each, nodes.Const))
    return tuple(each for each in constants if isinstance(each, str))


def _is_method(node: Any) -> bool:
    return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS


def _range(collector: _Collector, node: nodes.Call, needed: bool, guarded: bool) -> None:
    with collector.giving(answer=True):
        for each in node.args:
            collector.visit(each, True, guarded)


_SPECIAL: Final[dict[str, Callable[[_Collector, Any, bool, bool], None]]] = {
    "And": _Collector.on_and,
    "Assign": _Collector.on_set,
    "AssignBlock": _Collector.on_set_block,
    "Call": _range,
    "Compare": _Collector.on_compare,
    "CondExpr": _Collector.on_either,
    "Filter": _Collector.on_filter,
    "For": _Collector.on_for,
    "If": _Collector.on_if,
    "Not": _Collector.on_not,
    "Or": _Collector.on_or,
    "Test": _Collector.on_test,
    "With": _Collector.on_with,
}


@dataclass(frozen=True, slots=True)
class ParsedTemplate:
    """A template or an expression that is known to be well formed.

    >>> parsed = parse_template("Rewrite {{ nodes.plan.output.text | upper }}")
    >>> parsed.references[0].path
    ('nodes', 'plan', 'output', 'text')
    """

    references: tuple[Reference, ...]
    """Every read of an outer name, in the order of the text."""
    is_lone: bool
    """A template that is nothing but one `{{ x }}`: its value keeps its type. True for expressions."""
    is_static: bool
    """A template without any expression or statement."""
    tree: nodes.Template | nodes.Expr = field(repr=False, compare=False)
    """Jinja's syntax tree, for the compiler, which must not change it."""
    open_choices: tuple[tuple[int, int], ...] = ()
    """Line and column of each printed `x if y` without `else`: it is an error where `y` does not hold."""

    @property
    def bound_names(self) -> list[str]:
        """The names that `for`, `set` and `with` bind in it.

        >>> parse_template("{% for a, b in c %}{% with d = a %}{{ e }}{% endwith %}{% endfor %}").bound_names
        ['a', 'b', 'd']
        """
        return [*dict.fromkeys(each.name for each in self.tree.find_all(nodes.Name) if each.ctx != "load")]


def parse_template(source: str) -> ParsedTemplate:
    """Parse text with placeholders; raises `TemplateSyntaxError`."""
    text = Source(source)
    tree = template_tree(text)
    choices = tuple(text.place(each.lineno) for each in _open_choices(tree))
    return ParsedTemplate(collect(text, tree), lone_expression(tree) is not None, _is_static(tree), tree, choices)


def parse_expression(source: str) -> ParsedTemplate:
    """Parse a bare expression; raises `TemplateSyntaxError`.

    >>> [each.path for each in parse_expression("shared_state.counter < inputs['limit']").references]
    [('shared_state', 'counter'), ('inputs', 'limit')]
    """
    text = Source(source)
    tree = expression_tree(text)
    return ParsedTemplate(collect(text, tree), True, False, tree)


def lone_expression(tree: nodes.Node) -> nodes.Expr | None:
    """The expression of a template that is nothing but `{{ x }}`."""
    if isinstance(tree, nodes.Expr):
        return tree
    body = tree.body if isinstance(tree, nodes.Template) else []
    if len(body) == 1 and isinstance(output := body[0], nodes.Output) and len(output.nodes) == 1:
        expression = output.nodes[0]
        return None if isinstance(expression, nodes.TemplateData) else expression
    return None


def _open_choices(tree: nodes.Template) -> Iterator[nodes.CondExpr]:
    for output in tree.find_all(nodes.Output):
        for each in output.nodes:
            if isinstance(each, nodes.CondExpr) and each.expr2 is None:
                yield each


def _is_static(tree: nodes.Template) -> bool:
    """True for text and comments: what is left has no value in it."""
    return all(
        isinstance(each, nodes.Output) and all(isinstance(part, nodes.TemplateData) for part in each.nodes)
        for each in tree.body
    )
