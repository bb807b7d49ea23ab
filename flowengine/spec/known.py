"""What is known of the values that expressions can name: their fields, as JSON Schemas.

Only what the file says: the output of a function is anything.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from flowengine.context import EvaluationResult, LLMResult, RoutingResult
from flowengine.spec.schema import FlowSpec, InputSpec
from flowengine.spec.schema_nodes import AgentNodeSpec
from flowengine.spec.settings import setting_of
from flowengine.spec.shapes import fields_of, is_map, item_of

__all__ = ["EVALUATION", "NODE_FIELDS", "ROUTING", "input_shape", "node_shape", "unknown_field"]

Shape = dict[str, Any]

NODE_FIELDS: Final = ("output", "result", "status", "error")
TEXT: Final[Shape] = {"type": "string"}
_SCALARS: Final = {"string": "a text", "number": "a number", "integer": "a number", "boolean": "a boolean"}


def _model(model: type[BaseModel], **known: Shape) -> Shape:
    return {"type": "object", "properties": {name: known.get(name, {}) for name in model.model_fields}}


ROUTING: Final = _model(RoutingResult, next_route=TEXT, confidence={"type": "number"}, reasoning=TEXT)
EVALUATION: Final = _model(EvaluationResult, score={"type": "number"}, passed={"type": "boolean"}, feedback=TEXT)


def node_shape(spec: FlowSpec, name: str, field: str) -> Shape | None:
    """What is known of `nodes.<name>.<field>`; None: nothing."""
    node = spec.nodes[name]
    if field in ("status", "error"):
        return TEXT
    if isinstance(node, AgentNodeSpec):
        given = setting_of(spec, node, "output")
        shape = TEXT if given is None else given if is_map(given) else None
        return shape if field == "output" else _model(LLMResult, content=shape or {})
    if field == "result":
        return None
    return {"routing": ROUTING, "evaluation": EVALUATION, "condition": TEXT}.get(node.type)


def input_shape(declared: InputSpec) -> Shape | None:
    """What is known of an input."""
    if declared.schema_ is not None:
        return declared.schema_
    return None if declared.type is None else {"type": declared.type}


def unknown_field(shape: Shape | None, fields: tuple[str, ...]) -> tuple[str, frozenset[str] | str] | None:
    """The first field that a value of this shape does not have, with those it has (or with what it is instead)."""
    for field in fields:
        if not is_map(shape):
            return None
        kind = shape.get("type")
        if isinstance(kind, str) and kind in (*_SCALARS, "array"):
            return field, _SCALARS.get(kind, "a list")
        known = fields_of(shape)
        if known is not None and field not in known:
            return field, known
        shape = item_of(shape, field)
    return None
