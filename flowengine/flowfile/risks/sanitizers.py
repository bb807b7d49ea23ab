"""Finds what stands between untrusted text and the node that reads it: a person who saw it, or code that checked it.

Theory of operation:

1. A *closing* is a value, a node that shows or checks it, and the labels of that node after which it counts as seen.
   An approval closes what its message prints whole, for each choice but the one of `on_expire`; an evaluation by code
   (`call`) closes its target where it passes; a condition closes what it compares with literals.
2. A closing holds for a reader that runs only if one of these labels was taken: by the routes that lead to it, by its
   `when`, or because all that it waits for runs only then.
3. State may be written again after it was shown; then nothing is closed.

Values are named by `ValueName`: where they are from, and the fields that follow. What is closed at a value is closed at
all its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from jinja2 import nodes as syntax

from flowengine.core.templating import lone_expression, parse_expression, parse_template
from flowengine.engine import ON_ERROR
from flowengine.errors import TemplateSyntaxError
from flowengine.flowfile.analysis import (
    LevelAnalysis,
    NodePath,
    is_condition,
    is_evaluation,
    key_path,
    labels_of,
    nodes_of,
    reads_of,
    routes_of,
    runs_of,
)
from flowengine.flowfile.schema import FlowSpec, NodeSpec

ValueName: TypeAlias = tuple[Any, ...]
"""Kind of the value, its owner, and fields: `("out", ("draft",), "text")`."""

Names: TypeAlias = Callable[[NodePath, tuple[str, ...]], Iterable[ValueName]]
"""A node and a path of names as its texts have it → the values that this can be."""


class _Sanitizer(NamedTuple):
    by: NodePath
    """The node that shows or checks."""
    labels: frozenset[str] | None
    """The labels after which it holds; None: it is the reader's own `when`."""


class Sanitizers:
    """The nodes that check values of one file before other nodes read them."""

    def __init__(self, spec: FlowSpec, names: Names) -> None:
        self._spec = spec
        self._runs = runs_of(spec)
        self._behind: dict[tuple[NodePath, frozenset[str]], list[bool]] = {}
        self._of_value: dict[ValueName, list[_Sanitizer]] = {}
        for path, node in nodes_of(spec):
            for labels, paths in _closed_by(spec, path, node):
                value_names = {tuple(names(path, each)) for each in paths}
                for each in value_names:
                    if len(each) == 1:  # Of several that it could be, one alone was seen.
                        self._of_value.setdefault(each[0], []).append(_Sanitizer(path, labels))

    def __bool__(self) -> bool:
        return bool(self._of_value)

    def before(self, reader: NodePath, value: ValueName) -> Iterator[NodePath]:
        """The nodes that have shown or checked a value whenever a node runs, or one of the containers round it."""
        for depth in range(len(value), 1, -1):
            for closing in self._of_value.get(value[:depth], ()):
                by, labels = closing
                if labels is None:
                    if reader[: len(by)] == by:
                        yield by
                elif reader[: len(by) - 1] == by[:-1] and len(reader) >= len(by):
                    runs = self._runs[by[:-1]]
                    if self._is_behind(runs, by, labels)[runs.graph.index[reader[len(by) - 1]]]:
                        yield by

    def _is_behind(self, runs: LevelAnalysis, by: NodePath, labels: frozenset[str]) -> list[bool]:
        """Tells of each node of a level whether it runs only if a node has taken one of these labels."""
        if (by, labels) not in self._behind:
            self._behind[by, labels] = self._work_out(runs, by, labels)
        return self._behind[by, labels]

    def _work_out(self, runs: LevelAnalysis, by: NodePath, labels: frozenset[str]) -> list[bool]:
        graph, chooser = runs.graph, runs.graph.index[by[-1]]
        every = labels_of(self._spec, by[-1], by[:-1]) - {ON_ERROR}
        behind = [False] * len(graph)

        def follows(parent: int) -> bool:
            """Tells whether a node that needs this one to have succeeded is behind."""
            return behind[parent] or (parent == chooser and every <= labels)

        for number in range(chooser + 1, len(graph)):
            gates, parents = graph.gates.get(number, ()), graph.parents[number]
            join = graph.vertices[number].join
            failing = {gate for gate, opening in gates if ON_ERROR in opening}
            if gates and all(behind[gate] or (gate == chooser and opening <= labels) for gate, opening in gates):
                behind[number] = True
            elif join == "all":
                behind[number] = any(follows(each) for each in parents if each not in failing)
            elif join == "some" and not gates:
                behind[number] = bool(parents) and all(map(follows, parents))
            behind[number] = behind[number] or _asks_for(runs.nodes[number], by[-1], labels)
        return behind


def _closed_by(
    spec: FlowSpec, path: NodePath, node: NodeSpec
) -> Iterator[tuple[frozenset[str] | None, list[tuple[str, ...]]]]:
    """The labels of a node after which values are closed, with these; None: while the node itself runs."""
    if node.when is not None:
        yield None, list(pinned_by(node.when))
    if node.type == "approval":
        at = (*key_path(path), "message")
        uses = (use for use in reads_of(spec).of_node[path] if use.text.path == at)
        printed = [use.reference.path for use in uses if use.reference.carried and use.reference.whole]
        texts = [each for each in printed if not _is_file(spec, each)]
        expiry_choice: Any = getattr(node, "on_expire", None)
        ways = {each.label: each.target for each in routes_of(spec, path[-1], path[:-1]) if each.label != ON_ERROR}
        if len(ways) < 2 or None in ways.values() or len(set(ways.values())) > 1:  # Else nobody is asked, only told.
            yield frozenset(ways) - {expiry_choice}, texts
    elif is_evaluation(node) and node.call is not None:
        target = ("shared_state", "_last_generation") if node.target is None else _lone_path(node.target)
        yield frozenset({"pass"}), [] if target is None else [target]
    elif is_condition(node):
        if node.if_ is not None:
            yield frozenset({"then"}), list(pinned_by(node.if_))
        if node.switch is not None:
            expression = _parse_expression(node.switch)
            switch_path = None if expression is None else _path_of(expression)
            yield frozenset(node.routes or ()), [] if switch_path is None else [switch_path]
        pins_by_label: dict[str, list[set[tuple[str, ...]]]] = {}
        for case in node.cases or ():
            pins_by_label.setdefault(case.route_label, []).append(set(pinned_by(case.if_)))
        for label, pin_sets in pins_by_label.items():
            yield frozenset({label}), list(pin_sets[0].intersection(*pin_sets))


def _is_file(spec: FlowSpec, path: tuple[str, ...]) -> bool:
    """Tells whether an input is read that is a file: its name is printed, and not what is in it."""
    declared = spec.inputs.get(path[1]) if path[0] == "inputs" and len(path) > 1 else None
    return declared is None if path == ("inputs",) else declared is not None and declared.type == "file"


# --- what an expression that is true says of the values in it


def pinned_by(expression: str) -> frozenset[tuple[str, ...]]:
    """The paths that are equal to a literal wherever an expression is true.

    >>> sorted(pinned_by("inputs.kind in ['a', 'b'] and nodes.x.output.ok == true and inputs.n > 3"))
    [('inputs', 'kind'), ('nodes', 'x', 'output', 'ok')]
    >>> pinned_by("inputs.kind == 'a' or inputs.other == 'b'")
    frozenset()
    """
    return frozenset(path for path, _ in _pins(_parse_expression(expression)))


def _asks_for(node: NodeSpec, approval: str, labels: frozenset[str]) -> bool:
    """Tells whether a node's `when` is true only for these choices of a node."""
    if node.when is None or approval not in node.when:
        return False
    paths = (("nodes", approval, "output", "choice"), ("prev_outputs", approval, "choice"))
    return any(path in paths and literals <= labels for path, literals in _pins(_parse_expression(node.when)))


Pin: TypeAlias = tuple[tuple[str, ...], frozenset[Any]]
"""A path, and the literals that it is one of."""


def _pins(tree: syntax.Node | None) -> set[Pin]:
    if isinstance(tree, syntax.And):
        return _pins(tree.left) | _pins(tree.right)
    if isinstance(tree, syntax.Or):
        one_side, other_side = _pins(tree.left), _pins(tree.right)
        return {(path, one | other) for path, one in one_side for same, other in other_side if path == same}
    if not isinstance(tree, syntax.Compare) or len(tree.ops) != 1:
        return set()
    operator, one_side, other_side = tree.ops[0].op, tree.expr, tree.ops[0].expr
    if operator == "eq":
        pairs = ((one_side, other_side), (other_side, one_side))
        return {(path, frozenset({literal})) for one, other in pairs for path, literal in _pin(one, other)}
    if operator == "in" and isinstance(other_side, syntax.List | syntax.Tuple):
        literals = [each.value for each in other_side.items if isinstance(each, syntax.Const)]
        path = _path_of(one_side)
        if path is not None and len(literals) == len(other_side.items):
            return {(path, frozenset(literals))}
    return set()


def _pin(value: syntax.Node, literal: syntax.Node) -> Iterator[tuple[tuple[str, ...], Any]]:
    path = _path_of(value)
    if path is not None and isinstance(literal, syntax.Const):
        yield path, literal.value


def _path_of(tree: syntax.Node) -> tuple[str, ...] | None:
    """The plain path of names that an expression is."""
    steps: list[str] = []
    while not isinstance(tree, syntax.Name):
        if isinstance(tree, syntax.Getattr):
            steps.append(tree.attr)
        elif isinstance(tree, syntax.Getitem) and isinstance(tree.arg, syntax.Const):
            if not isinstance(tree.arg.value, str):
                return None
            steps.append(tree.arg.value)
        else:
            return None
        tree = tree.node
    return (tree.name, *reversed(steps))


def _parse_expression(expression: str) -> syntax.Node | None:
    try:
        return lone_expression(parse_expression(expression).tree)
    except TemplateSyntaxError:
        return None


def _lone_path(template: str) -> tuple[str, ...] | None:
    """The path that a template alone prints."""
    try:
        tree = lone_expression(parse_template(template).tree)
    except TemplateSyntaxError:
        return None
    return None if tree is None else _path_of(tree)
