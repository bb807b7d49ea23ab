"""The OpenAPI document, written from the table of operations and the schemas. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.server.api import OPERATIONS, Operation, Parameter
from flowengine.server.problems import MEDIA_TYPE
from flowengine.server.schemas import SCHEMAS, ref
from flowengine.version import __version__

__all__ = ["document"]

_EVERYWHERE: Mapping[int, tuple[str, str | None]] = {
    401: ("A token is needed.", "Problem"),
    503: ("The store cannot be used now.", "Problem"),
}


def document(root: str = "") -> Mapping[str, Any]:
    """OpenAPI 3.1; `root` is where the app is mounted."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path.replace(":path}", "}"), {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlowEngine", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _operation(each: Operation) -> Mapping[str, Any]:
    said: dict[str, Any] = {"operationId": each.id, "summary": each.summary}
    if each.parameters:
        said["parameters"] = [_parameter(parameter) for parameter in each.parameters]
    if each.body is not None:
        is_needed = bool(SCHEMAS[each.body]["required"])
        said["requestBody"] = {"required": is_needed, "content": {"application/json": {"schema": ref(each.body)}}}
    answers = {**each.answers, **_EVERYWHERE}
    said["responses"] = {str(status): _answer(each, *answers[status]) for status in sorted(answers)}
    return said


def _parameter(parameter: Parameter) -> Mapping[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "required": parameter.place == "path",
        "schema": {"type": parameter.type},
    }


def _answer(each: Operation, description: str, schema: str | None) -> Mapping[str, Any]:
    if schema is not None:
        media_type = MEDIA_TYPE if schema == "Problem" else each.media_type
        return {"description": description, "content": {media_type: {"schema": ref(schema)}}}
    if description.startswith("No more"):
        return {"description": description}
    return {"description": description, "content": {each.media_type: {}}}
