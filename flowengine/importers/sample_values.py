"""Makes up values that fit a flow's templates, so that a flow test can be written without running anything.

What shape a value must have is read from what the templates take of it: `nodes.a.output.rows[0].name` wants a list of
objects. The values say nothing of what the source would give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from jinja2 import nodes

from flowengine.core.templating import parse_expression, parse_template
from flowengine.errors import TemplateSyntaxError
from flowengine.importers.form import FlowStep, ImportedFlow
from flowengine.importers.source_tree import as_list, as_map

_EXPRESSIONS: Final = frozenset({"when", "if", "until", "over", "switch", "best_by"})
_ITEM, _JSON, _VALUE = "[]", "<json>", "<value>"
Tree = dict[str, Any]
_NUMERIC: Final = frozenset({"int", "float", "round", "abs"})


class Shapes:
    """The parts of inputs and outputs that one flow's texts read."""

    def __init__(self, flow: ImportedFlow) -> None:
        self._tree: Tree = {}
        self._bound: dict[str, tuple[str, ...]] = {}
        for step in flow.steps:
            self._read_step(step)
        for text in flow.outputs.values():
            self._read(text, False)

    def of(self, *path: str, otherwise: Any) -> Any:
        """A value for what stands at a path, such as `nodes`, `a`, `output`."""
        at: Any = self._tree
        for part in path:
            at = cast("Tree", at).get(part)
            if at is None:
                return otherwise
        return _value(at, otherwise)

    def _read_step(self, step: FlowStep, names: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._bound = dict(names or {})
        for key, value in step.to_node().items():
            if key != "nodes":
                self._read_any(key, value)
        inner = dict(self._bound)
        over = step.keys.get("over")
        if step.kind == "map" and isinstance(over, str):
            self._bound = dict(names or {})
            if (path := self._expression_path(over)) is not None:
                self._note((*path, _ITEM))
                inner[str(step.keys.get("as", "item"))] = (*path, _ITEM)
        for each in step.body:
            self._read_step(each, inner)

    def _read_any(self, key: str, value: Any) -> None:
        if isinstance(value, str):
            self._read(value, key in _EXPRESSIONS)
        elif isinstance(value, Mapping):
            for name, each in cast("Mapping[str, Any]", value).items():
                self._read_any(name, each)
        elif isinstance(value, list):
            for each in cast("list[Any]", value):
                self._read_any("", each)

    def _expression_path(self, text: str) -> tuple[str, ...] | None:
        try:
            return self._path(parse_expression(text).tree)
        except TemplateSyntaxError:
            return None

    def _read(self, text: str, is_expression: bool) -> None:
        try:
            tree = (parse_expression if is_expression else parse_template)(text).tree
        except TemplateSyntaxError:
            return  # The checks tell it.
        before = dict(self._bound)
        self._walk(tree)
        self._bound = before

    def _walk(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.For):
            if (path := self._path(node.iter)) is not None:
                self._note((*path, _ITEM))
                if isinstance(node.target, nodes.Name):
                    self._bound[node.target.name] = (*path, _ITEM)
        elif isinstance(node, nodes.Compare) and len(node.ops) == 1 and node.ops[0].op == "eq":
            path, other = self._path(node.expr), node.ops[0].expr
            if path is not None and isinstance(other, nodes.Const):
                self._note(path)[_VALUE] = other.value
        elif isinstance(node, nodes.Filter) and node.name in _NUMERIC and node.node is not None:
            if (path := self._path(node.node)) is not None:
                self._note(path)[_VALUE] = 1
        elif isinstance(node, nodes.Expr) and (path := self._path(node)) is not None:
            self._note(path)
            return
        for child in node.iter_child_nodes():
            self._walk(child)

    def _path(self, node: nodes.Node) -> tuple[str, ...] | None:
        if isinstance(node, nodes.Name):
            return self._bound.get(node.name, (node.name,))
        if isinstance(node, nodes.Getattr):
            inner = self._path(node.node)
            return None if inner is None else (*inner, node.attr)
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            inner = self._path(node.node)
            key = _ITEM if isinstance(node.arg.value, int) else str(node.arg.value)
            return None if inner is None else (*inner, key)
        if isinstance(node, nodes.Filter) and node.node is not None:
            inner = self._path(node.node)
            if inner is not None and node.name == "from_json":
                return (*inner, _JSON)
            if inner is not None and node.name in ("first", "last"):
                return (*inner, _ITEM)
            return inner if node.name in ("default", "d") else None
        return None

    def _note(self, path: tuple[str, ...]) -> Tree:
        at = self._tree
        for part in path:
            at = at.setdefault(part, {})
        return at


def _value(tree: Tree, otherwise: Any) -> Any:
    if _VALUE in tree and len(tree) == 1:
        return tree[_VALUE]
    if _JSON in tree:
        return json.dumps(_value(tree[_JSON], {}))
    if _ITEM in tree:
        return [_value(tree[_ITEM], "sample")]
    fields = {key: _value(each, f"sample {key}") for key, each in tree.items() if key != _VALUE}
    return fields or otherwise


def sample_of_schema(schema: Any, name: str = "value", depth: int = 0) -> Any:
    """A value that a JSON Schema takes, as far as it is a plain one.

    >>> sample_of_schema({"type": "object", "properties": {"score": {"type": "integer"}}})
    {'score': 1}
    """
    if not isinstance(schema, Mapping) or depth > 8:
        return {}
    keywords = cast("Mapping[str, Any]", schema)
    for key in ("const", "default"):
        if key in keywords:
            return keywords[key]
    if choices := as_list(keywords.get("enum")):
        return choices[0]
    for key in ("anyOf", "oneOf"):
        if choices := as_list(keywords.get(key)):
            return sample_of_schema(choices[0], name, depth + 1)
    kind = _first_type(keywords.get("type", "object" if "properties" in keywords else "string"))
    if kind == "object":
        return {key: sample_of_schema(each, key, depth + 1) for key, each in as_map(keywords.get("properties")).items()}
    if kind == "array":
        return [sample_of_schema(keywords.get("items", {"type": "string"}), name, depth + 1)]
    plain: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "null": None}
    return plain.get(kind, f"sample {name}")


def _first_type(kinds: Any) -> str:
    names = as_list(kinds) or ["string" if kinds == [] else kinds]
    return str(names[0])
