"""The shapes of outputs that are the same in every flow, as JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel

from flowengine.core.context import EvaluationResult, RoutingResult

__all__ = ["BOOLEAN", "EVALUATION", "NUMBER", "ROUTING", "TEXT", "Shape", "object_shape", "shape_of_model"]

Shape = dict[str, Any]

TEXT: Final[Shape] = {"type": "string"}
NUMBER: Final[Shape] = {"type": "number"}
BOOLEAN: Final[Shape] = {"type": "boolean"}


def object_shape(names: Iterable[str], **known: Shape) -> Shape:
    """An object with these fields; of those in `known` more is known than the name."""
    return {"type": "object", "properties": {name: known.get(name, {}) for name in names}}


def shape_of_model(model: type[BaseModel], **known: Shape) -> Shape:
    """An object with the fields of a class."""
    return object_shape(model.model_fields, **known)


ROUTING: Final = shape_of_model(RoutingResult, next_route=TEXT, confidence=NUMBER, reasoning=TEXT)
EVALUATION: Final = shape_of_model(EvaluationResult, score=NUMBER, passed=BOOLEAN, feedback=TEXT)
