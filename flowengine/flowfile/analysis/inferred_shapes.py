"""Infers the fields of the values that expressions can name, as JSON Schemas.

Only what the file says: the output of a function is anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from flowengine.core import TRAITS, LLMResult, is_map
from flowengine.core.templating import lone_expression, parse_template
from flowengine.flowfile.analysis.flow_nodes import (
    NodePath,
    holders_of,
    home_of,
    is_agent,
    is_loop,
    is_map_node,
    is_subflow,
    level_of,
    setting_of,
)
from flowengine.flowfile.analysis.gaps import gaps_of
from flowengine.flowfile.analysis.references import last_of
from flowengine.flowfile.compile import EACH, LOOP_OUTPUT, ROUND
from flowengine.flowfile.schema import (
    BOOLEAN,
    EVALUATION,
    NUMBER,
    ROUTING,
    TEXT,
    FlowSpec,
    InputSpec,
    NodeSpec,
    Shape,
    object_shape,
    shape_of_model,
)

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec
    from flowengine.flowfile.kinds.map_kind import MapNodeSpec

NODE_FIELDS: Final = ("output", "result", "status", "error")
_SCALARS: Final = {"string": "a text", "number": "a number", "integer": "a number", "boolean": "a boolean"}


# --- nodes


def node_shape(spec: FlowSpec, level: NodePath, name: str, field: str) -> Shape | None:
    """Returns the shape of `nodes.<name>.<field>` for a node of a level; None if unknown."""
    node = level_of(spec, level)[name]
    if field in ("status", "error"):
        return TEXT
    if (*level, name) in gaps_of(spec).gives:
        return None
    if is_agent(node):
        shape = _agent_output(spec, node)
        return shape if field == "output" else shape_of_model(LLMResult, content=shape or {})
    if TRAITS[node.type].container or field == "output":
        return spec.remember(f"output of {'.'.join((*level, name))}", lambda each: _output(each, (*level, name), node))
    return None


def _agent_output(spec: FlowSpec, node: AgentNodeSpec) -> Shape | None:
    output = setting_of(spec, node, "output")
    return TEXT if output is None else output if is_map(output) else None


def _output(spec: FlowSpec, path: NodePath, node: NodeSpec) -> Shape | None:
    if is_map_node(node):
        return {"type": "array", "items": _result_shape(spec, path, node) or {}}
    if is_loop(node):
        return object_shape((*node.initial, *LOOP_OUTPUT), iterations=NUMBER, exhausted=BOOLEAN)
    if is_subflow(node):
        inner = spec.subflows.get(node.flow)
        return None if inner is None else object_shape(inner.outputs) if inner.outputs else {"type": "object"}
    return node.output_shape()


def _result_shape(spec: FlowSpec, path: NodePath, node: MapNodeSpec) -> Shape | None:
    """Returns the shape of an item's result."""
    in_work = spec.remember("maps whose result is looked at", lambda _: set[NodePath]())
    if node.on_item_error == "collect" or path in in_work or path in gaps_of(spec).find_levels():
        return None  # A failed item is something else; a map that goes over itself is refused elsewhere.
    in_work.add(path)
    try:
        if is_map(node.result):
            return object_shape(node.result)
        if isinstance(node.result, str):
            lone = _LONE.fullmatch(node.result.strip())
            return over_shape(spec, path, lone[1]) if lone else None
        last = last_of(spec, path) if node.result is None else ()
        return node_shape(spec, path, last[0], "output") if len(last) == 1 else None
    finally:
        in_work.discard(path)


_LONE: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.]*)\s*\}\}")


# --- paths


def shape_of(spec: FlowSpec, level: NodePath, path: tuple[str, ...]) -> Shape | None:
    """Returns the shape of a dotted name as read inside a level: `inputs.x`, `nodes.x.output.y`, …"""
    root, *fields = path
    root_shape = _ROOTS.get(root, _variable)(spec, level, path)
    if root_shape is None:
        return None
    shape, depth = root_shape
    for field in fields[depth:]:
        shape = item_of(shape, field) if is_map(shape) else None
    return shape


_Known = tuple[Shape | None, int] | None
"""A shape, and how many of the fields after the root lead to it."""


def _input(spec: FlowSpec, level: NodePath, path: tuple[str, ...]) -> _Known:
    declared = spec.inputs.get(path[1]) if len(path) > 1 else None
    return None if declared is None else (input_shape(declared), 1)


def _node(spec: FlowSpec, level: NodePath, path: tuple[str, ...]) -> _Known:
    if len(path) < 3:
        return None
    _, name, field, *_ = path
    home = home_of(spec, level, name)
    return None if home is None else (node_shape(spec, home, name, field), 2)


def _round(spec: FlowSpec, level: NodePath, path: tuple[str, ...]) -> _Known:
    for each in holders_of(spec, level):
        if is_loop(each.holder):
            return _variables(spec, each.path, each.holder), 0
    return None


def _variables(spec: FlowSpec, level: NodePath, holder: LoopNodeSpec) -> Shape | None:
    if level in gaps_of(spec).variables:
        return None
    return spec.remember(
        f"round of {'.'.join(level)}",
        lambda _: object_shape((*holder.initial, *ROUND), index=NUMBER, last=BOOLEAN),
    )


def _each(spec: FlowSpec, level: NodePath, path: tuple[str, ...]) -> _Known:
    return object_shape(EACH, index=NUMBER, total=NUMBER), 0


def _variable(spec: FlowSpec, level: NodePath, path: tuple[str, ...]) -> _Known:
    """The item of a map."""
    for each in holders_of(spec, level):
        if is_map_node(each.holder) and each.holder.as_ == path[0]:
            return _item(spec, each.path, each.holder.over), 0
    return None


def _item(spec: FlowSpec, level: NodePath, over: str) -> Shape | None:
    """Returns the shape of the items of a map's list, if `over` is a plain path."""

    def item(spec: FlowSpec) -> Shape | None:
        list_shape = over_shape(spec, level[:-1], over)
        items = list_shape.get("items") if is_map(list_shape) else None
        return items if is_map(items) else None

    return spec.remember(f"item of {'.'.join(level)}", item)


def over_shape(spec: FlowSpec, level: NodePath, over: str) -> Shape | None:
    """Returns the shape of an expression that is a plain path of names."""
    plain = _PLAIN.fullmatch(over.strip())
    return shape_of(spec, level, tuple(plain[0].split("."))) if plain else None


_PLAIN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def labels_of_value(spec: FlowSpec, level: NodePath, expression: str) -> list[str] | None:
    """The labels of all values that an expression can give: of a boolean, or of one of an `enum`; None if unknown."""
    shape = over_shape(spec, level, expression) or {}
    values: Any = [False, True] if shape.get("type") == "boolean" else shape.get("enum")
    root, _, name = expression.strip().partition(".")
    if root == "inputs" and name in spec.inputs:
        values = spec.inputs[name].enum or values
    if not isinstance(values, list):
        return None
    scalars = [each for each in cast("list[Any]", values) if isinstance(each, bool | str | int)]
    return [str(each).lower() if isinstance(each, bool) else str(each) for each in scalars]


_ROOTS: Final[Mapping[str, Callable[[FlowSpec, NodePath, tuple[str, ...]], _Known]]] = {
    "inputs": _input,
    "nodes": _node,
    "round": _round,
    "each": _each,
    "routing_result": lambda spec, level, path: (ROUTING, 0),
    "evaluation_result": lambda spec, level, path: (EVALUATION, 0),
}


def outputs_schema(spec: FlowSpec) -> Shape:
    """Returns the JSON Schema of a successful run's outputs, as far as known.

    An output of which nothing is known has an empty schema. A flow that declares no outputs gives those of its last
    nodes that ran, so none of them is required.
    """
    if not spec.outputs:
        return {"type": "object"}
    shapes = {name: _value_shape(spec, value) for name, value in spec.outputs.items()}
    return {"type": "object", "properties": shapes, "required": list(shapes), "additionalProperties": False}


def lone_path(value: Any) -> tuple[str, ...] | None:
    """The path of names that a template is and nothing else, as in `{{ nodes.reply.output }}`; else None."""
    match = _LONE.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else tuple(match[1].split("."))


def _value_shape(spec: FlowSpec, value: Any) -> Shape:
    """Returns the shape of a value of the file, with its templates rendered."""
    if is_map(value):
        inner = {name: _value_shape(spec, each) for name, each in value.items()}
        return {"type": "object", "properties": inner, "required": list(inner), "additionalProperties": False}
    if not isinstance(value, str):
        return {"type": "array"} if isinstance(value, list) else {"const": value}
    path = lone_path(value)
    if path is not None:
        shape = shape_of(spec, (), path) or {}
        return {} if _has_reference(shape) else shape
    return {} if lone_expression(parse_template(value).tree) is not None else TEXT


def _has_reference(schema: Any) -> bool:
    """Tells whether a schema refers to parts of itself, from its root: as a part of another it would mean other
    things.
    """
    if isinstance(schema, list):
        return any(map(_has_reference, cast("list[Any]", schema)))
    return is_map(schema) and ("$ref" in schema or any(map(_has_reference, schema.values())))


def input_shape(input_spec: InputSpec) -> Shape | None:
    """Returns the shape of an input."""
    if input_spec.schema_ is not None:
        return input_spec.schema_
    if input_spec.type == "file":
        return _FILE
    return None if input_spec.type is None else {"type": input_spec.type}


_FILE: Final[Shape] = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("blob", "media_type", "name")},
        "size": {"type": "integer"},
    },
}


def unknown_field(shape: Shape | None, fields: tuple[str, ...]) -> tuple[str, Collection[str]] | None:
    """The first field that a value of this shape does not have, with those it has (or with what it is instead)."""
    for field in fields:
        if not is_map(shape):
            return None
        kind = shape.get("type")
        if isinstance(kind, str) and kind in (*_SCALARS, "array"):
            return field, _SCALARS.get(kind, "a list")
        names = fields_of(shape)
        if names is not None and field not in names:
            return field, names
        shape = item_of(shape, field)
    return None


_COMBINING: Final = ("anyOf", "allOf", "oneOf", "prefixItems", "$ref", "patternProperties", "if")
"""Words of a schema beside which `properties` need not be all that a value may have."""


def fields_of(schema: Any) -> Collection[str] | None:
    """The fields that a value of this schema has; None where it may have others or is not described.

    >>> sorted(fields_of({"type": "object", "properties": {"a": {}, "b": {}}}))
    ['a', 'b']
    """
    if not is_map(schema):
        return None
    open_ended = schema.get("additionalProperties", False) not in (False, None)
    combined = any(word in schema for word in _COMBINING)
    if schema.get("type", "object") != "object" or "properties" not in schema or open_ended or combined:
        return None
    return cast("dict[str, Any]", schema["properties"]).keys()


def item_of(schema: Any, field: str) -> Any:
    """The schema of one field of a value, or None where nothing is known of it."""
    properties = schema.get("properties") if is_map(schema) else None
    return properties.get(field) if is_map(properties) else None
