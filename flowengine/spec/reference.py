"""The reference of the flow format, made from the models that load it: `python -m flowengine.spec.reference`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from flowengine.spec.json_schema import json_schema
from flowengine.spec.schema_nodes import NODE_TYPES
from flowengine.spec.shapes import is_map

__all__ = ["reference"]

_HEAD: Final = """\
# The flow format, version 1

Made from the models that load a flow (`python -m flowengine.spec.reference`); the tests compare it with them.
Unknown keys are errors; keys that begin with `x-` are the author's. A key without a default that is not marked
as required may be left out.
"""
_ORDER: Final = (
    ("A flow", ""),
    ("An input", "InputSpec"),
    ("A key of shared state", "StateSpec"),
    ("Defaults", "Defaults"),
    ("Limits of a run", "Limits"),
    ("Limits of a part", "NodeLimits"),
)
_AFTER: Final = (
    ("A route", "Route"),
    ("A case of a condition", "CaseSpec"),
    ("An agent", "AgentSpec"),
    ("`improve` of an agent", "Improve"),
    ("`evaluate` of an agent", "Evaluate"),
    ("`routing` of an agent", "AgentRouting"),
    ("`guardrails` of an agent", "Guardrails"),
    ("An MCP server", "McpServerSpec"),
    ("`retry`", "RetrySpec"),
)


def reference() -> str:
    """The document, in Markdown."""
    schema = json_schema()
    definitions: Mapping[str, Any] = schema["definitions"]
    lines = [_HEAD]
    for title, name in _ORDER:
        lines += _section(f"## {title}", schema if not name else definitions[name])
    lines.append("## Nodes\n")
    lines.append(f"`type` is one of {', '.join(f'`{each}`' for each in NODE_TYPES)}; left out, a node is an agent.\n")
    for name, model in NODE_TYPES.items():
        lines += _section(f"### `{name}`", definitions[model.__name__])
    lines.append("## Parts\n")
    for title, name in _AFTER:
        if name in definitions:
            lines += _section(f"### {title}", definitions[name])
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, definition: Mapping[str, Any]) -> Iterator[str]:
    definition = _object(definition)
    yield f"{title}\n"
    if definition.get("description"):
        yield f"{_cell(definition['description'])}\n"
    yield "| key | value | |"
    yield "|---|---|---|"
    required = set(definition.get("required", ()))
    for key, field in cast("Mapping[str, Any]", definition.get("properties", {})).items():
        needed = " **Required.**" if key in required else ""
        yield f"| `{key}` | {_cell(_shape(field))} | {_cell(field.get('description', ''))}{needed} |"
    yield ""


def _object(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of alternatives the one with keys."""
    for each in cast("list[Mapping[str, Any]]", definition.get("anyOf", [])):
        if "properties" in each:
            return {"description": definition.get("description", ""), **each}
    return definition


def _shape(field: Mapping[str, Any]) -> str:
    """What goes there, in a few words."""
    if "$ref" in field:
        return _name(field["$ref"])
    if "enum" in field:
        return " \\| ".join(f"`{each}`" for each in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_shape(each) for each in field["anyOf"] if each.get("type") != "null"))
    kind = field.get("type", "any value")
    if kind == "array":
        return f"list of {_shape(field['items'])}" if "items" in field else "list"
    if kind == "object":
        inner: Any = field.get("additionalProperties")
        values = _shape(inner) if is_map(inner) and inner else ""
        return f"map to {values}" if values and values != "any value" else "map"
    shown = {"string": "text", "integer": "whole number", "boolean": "`true` \\| `false`"}
    return shown.get(kind, str(kind)) + _bounds(field)


def _bounds(field: Mapping[str, Any]) -> str:
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", above {low}" if "exclusiveMinimum" in field else f", at least {low}"
    return ""


def _name(target: str) -> str:
    name = target.rpartition("/")[2].removesuffix("Spec")
    return {"Node": "a node", "NodeLimits": "limits of a part"}.get(name, f"{name[0].lower()}{name[1:]}")


def _cell(text: str) -> str:
    return " ".join(str(text).split())


if __name__ == "__main__":
    print(reference(), end="")
