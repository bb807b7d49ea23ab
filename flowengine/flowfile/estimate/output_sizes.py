"""Computes how long what the nodes of one flow give can become at most: in tokens, and for lists in items.

An answer is as long as its model may write; what is put together of answers, inputs and the file's own texts
is as long as these. What a function gives, and what state holds, has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

from flowengine.core import TRAITS, Context, is_map
from flowengine.core.templating import Reference, parse_expression, parse_template
from flowengine.errors import FlowEngineError
from flowengine.flowfile.analysis import (
    NodePath,
    edges_of,
    home_of,
    is_agent,
    is_condition,
    is_judging,
    is_subflow,
    last_of,
    level_of,
    levels_of,
    over_shape,
    setting_of,
    shape_of,
    strings_in,
)
from flowengine.flowfile.compile import expression, values
from flowengine.flowfile.estimate.text_sizes import (
    NOTHING,
    UNKNOWN,
    Size,
    size_of_expression,
    size_of_template,
    size_of_value,
)
from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec
from flowengine.flowfile.kinds.map_kind import MapNodeSpec
from flowengine.flowfile.schema import FlowSpec, NodeSpec

# --- Values known before a run


class Foreseen(NamedTuple):
    """A value, which may be None."""

    value: Any


def foreseen_value(tree: Any, inputs: Mapping[str, Any]) -> Foreseen | None:
    """Any value with templates in its strings; None where it is not known before.

    >>> foreseen_value({"n": "{{ inputs.n }}"}, {"n": 3}), foreseen_value("{{ nodes.a.output }}", {"n": 3})
    (Foreseen(value={'n': 3}), None)
    """
    try:
        if not all(
            _is_known_read(each, inputs) for _, text in strings_in(tree) for each in parse_template(text).references
        ):
            return None
        return Foreseen(values(tree)(Context(inputs=inputs)))
    except FlowEngineError:
        return None


def foreseen_expression(source: str, inputs: Mapping[str, Any]) -> Foreseen | None:
    """Evaluates an expression in advance; None if its value is unknown before the run."""
    try:
        if not all(_is_known_read(each, inputs) for each in parse_expression(source).references):
            return None
        return Foreseen(expression(source)(Context(inputs=inputs)))
    except FlowEngineError:
        return None


def _is_known_read(read: Reference, inputs: Mapping[str, Any]) -> bool:
    return len(read.path) > 1 and read.path[0] == "inputs" and read.path[1] in inputs


Names = tuple[str, ...]

_WORD_SIZE: Final = Size(16)
_PRINTED: Final = 2
"""Tokens for each of a structured answer, which is printed with blanks that its model need not write."""
_WORDS_OF_JUDGES: Final = frozenset({"score", "passed", "confidence"})
_TEXTS_OF_JUDGES: Final = frozenset({"feedback", "suggestions", "criteria_scores", "reasoning", "next_route"})


class OutputSizes:
    """Sizes of one flow's values. `inputs`: those whose value is known; `answers`: how long the model of a node
    may answer; `subflows`: the sizes of the flow that a node runs."""

    def __init__(
        self,
        spec: FlowSpec,
        inputs: Mapping[str, Any],
        answers: Callable[[NodePath], int | None],
        subflows: Callable[[NodePath], OutputSizes],
    ) -> None:
        self._spec = spec
        self._inputs = self.inputs = inputs
        self._answers = answers
        self._subflows = subflows
        self._sizes: dict[NodePath, Size] = {}
        self._under_way: set[NodePath] = set()

    def template(self, source: str, level: NodePath, node: str | None = None) -> Size:
        """The size of a template that is read inside a level, by a node of it where that matters."""
        return size_of_template(source, partial(self._read, level, node))

    def values(self, tree: Any, level: NodePath, node: str | None = None) -> Size:
        """The size of any value with templates in its strings."""
        if isinstance(tree, str):
            return self.template(tree, level, node)
        if not isinstance(tree, dict | list | tuple):
            return size_of_value(tree)
        parts: list[Any] = [*tree.items()] if isinstance(tree, dict) else [*tree]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType] - any value of a file
        total = Size(2)
        for each in parts:
            total = total.and_(self.values(each, level, node)).and_(Size(2))
        return Size(total.tokens, None if isinstance(tree, dict) else len(parts))

    def outputs(self) -> Size:
        """The size of all outputs of the flow together."""
        return self.values(self._spec.outputs, ()) if self._spec.outputs else UNKNOWN

    def over(self, path: NodePath) -> Size:
        """The size of the list that a map goes over."""
        node = level_of(self._spec, path[:-1])[path[-1]]
        assert isinstance(node, MapNodeSpec)
        items = foreseen_expression(node.over, self._inputs)
        if items is not None:
            return size_of_value(items.value)
        size = size_of_expression(node.over, partial(self._read, path[:-1], path[-1]))
        shape = over_shape(self._spec, path[:-1], node.over)
        most = shape.get("maxItems") if is_map(shape) else None
        return Size(size.tokens, most) if isinstance(most, int) and size.items is None else size

    def size_received(self, level: NodePath, node: str) -> Size:
        """The size of `result`, which a node receives from its predecessors."""
        size, is_received = NOTHING, False
        nodes = level_of(self._spec, level)
        for source, target, _ in edges_of(self._spec, level):
            if target == node and source in nodes:
                is_received = True
                passing = TRAITS[nodes[source].type].transparent
                size = size.either(self.size_received(level, source) if passing else self.output((*level, source)))
        return size if is_received else self._first(level)

    def output(self, path: NodePath) -> Size:
        """The size of a node's output."""
        if path in self._under_way:
            return UNKNOWN  # What grows from round to round.
        if path not in self._sizes:
            self._under_way.add(path)
            self._sizes[path] = self._size_of_node(path, level_of(self._spec, path[:-1])[path[-1]])
            self._under_way.discard(path)
        return self._sizes[path]

    # --- names ------------------------------------------------------------------------------------

    def _read(self, level: NodePath, node: str | None, path: Names) -> Size:
        root, *fields = path
        if root == "inputs":
            return self._input(fields)
        if root == "nodes" and len(path) > 2:
            return self._node(level, path)
        if root == "result" and node is not None:
            return self.size_received(level, node)
        if root in ("each", "run"):
            return _WORD_SIZE
        if root == "round":
            return self._round(level, fields)
        if root in ("evaluation_result", "routing_result"):
            return _WORD_SIZE if fields and fields[0] in _WORDS_OF_JUDGES else UNKNOWN
        return self._item(level, root)

    def _input(self, fields: list[str]) -> Size:
        if not fields:
            return self._all_inputs()
        if fields[0] not in self._inputs:
            return UNKNOWN
        value: Any = self._inputs
        for field in fields:
            if not isinstance(value, Mapping):  # A file, or a list, of which the position of an item is not told.
                return Size(size_of_value(value).tokens)
            value = cast("Mapping[str, Any]", value).get(field)
        return size_of_value(value)

    def _all_inputs(self) -> Size:
        return size_of_value(dict(self._inputs)) if set(self._inputs) == set(self._spec.inputs) else UNKNOWN

    def _node(self, level: NodePath, path: Names) -> Size:
        _, name, field, *fields = path
        home = home_of(self._spec, level, name)
        if home is None or field == "error":
            return UNKNOWN
        node = level_of(self._spec, home)[name]
        if field == "status":
            return _WORD_SIZE
        if is_judging(node):
            return self._size_of_judgement((*home, name), field, fields)
        if field == "result" and not is_agent(node):
            return UNKNOWN
        size = self.output((*home, name))
        if not fields:
            return size
        shape = shape_of(self._spec, level, path)
        most = shape.get("maxItems") if is_map(shape) else None
        return Size(size.tokens, most if isinstance(most, int) else None)

    def _size_of_judgement(self, path: NodePath, field: str, fields: list[str]) -> Size:
        if field == "output" and fields and fields[0] in _WORDS_OF_JUDGES:
            return _WORD_SIZE
        return Size(self._answers(path)) if field == "output" and fields and fields[0] in _TEXTS_OF_JUDGES else UNKNOWN

    def _round(self, level: NodePath, fields: list[str]) -> Size:
        """A variable of the nearest loop: as it begins, or as the round before carried it."""
        path = self._holder(level, LoopNodeSpec)
        if path is None or not fields:
            return UNKNOWN
        if fields[0] in ("index", "last"):
            return _WORD_SIZE
        return self._variable(path, fields[0])

    def _variable(self, path: NodePath, name: str) -> Size:
        loop = level_of(self._spec, path[:-1])[path[-1]]
        assert isinstance(loop, LoopNodeSpec)
        key = (*path, "=", name)
        if key in self._under_way:
            return UNKNOWN
        self._under_way.add(key)
        size = self.values(loop.initial.get(name, ""), path[:-1], path[-1])
        size = size.either(self.values(loop.carry.get(name, ""), path))
        self._under_way.discard(key)
        return size

    def _item(self, level: NodePath, name: str) -> Size:
        """One item is no longer than the list."""
        for depth in range(len(level), 0, -1):
            holder = levels_of(self._spec)[level[:depth]].holder
            if isinstance(holder, MapNodeSpec) and holder.as_ == name:
                return Size(self.over(level[:depth]).tokens)
        return UNKNOWN

    def _first(self, level: NodePath) -> Size:
        """Returns what the first nodes of a level receive: the inputs, or the item."""
        holder = levels_of(self._spec)[level].holder
        if holder is None:
            return self._all_inputs()
        return self._item(level, holder.as_) if isinstance(holder, MapNodeSpec) else UNKNOWN

    def _holder(self, level: NodePath, kind: type[Any]) -> NodePath | None:
        levels = levels_of(self._spec)
        paths = (level[:depth] for depth in range(len(level), 0, -1))
        return next((path for path in paths if isinstance(levels[path].holder, kind)), None)

    # --- outputs ----------------------------------------------------------------------------------

    def _size_of_node(self, path: NodePath, node: NodeSpec) -> Size:
        if is_agent(node):
            answer, is_text = self._answers(path), setting_of(self._spec, node, "output") is None
            return Size(answer if is_text or answer is None else _PRINTED * answer)
        if is_condition(node):
            return _WORD_SIZE
        if isinstance(node, MapNodeSpec):
            return self._size_of_map(path, node)
        if isinstance(node, LoopNodeSpec):
            total = Size(32)
            for name in {**node.initial, **node.carry}:
                total = total.and_(self._variable(path, name))
            return total
        return self._subflows(path).outputs() if is_subflow(node) else UNKNOWN

    def _size_of_map(self, path: NodePath, node: MapNodeSpec) -> Size:
        items = self.over(path).items
        if node.result is not None:
            each = self.values(node.result, path)
        else:
            last = last_of(self._spec, path)
            each = self.output((*path, last[0])) if len(last) == 1 else UNKNOWN
        return Size(None if each.tokens is None or items is None else items * (each.tokens + 2) + 2, items)
