"""The reference of the flow format, made from the models that load it: `python -m flowengine.spec.reference`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from pydantic import BaseModel

from flowengine.providers.registry import provider_class
from flowengine.providers.table import OURS
from flowengine.spec.codes import CODES
from flowengine.spec.defaults import NO_DEFAULT, default_of
from flowengine.spec.fields import Route
from flowengine.spec.json_schema import json_schema
from flowengine.spec.names import DESCRIBED
from flowengine.spec.schema import Defaults, FlowSpec, InputSpec, Limits, StateSpec
from flowengine.spec.schema_agent import (
    AgentRouting,
    AgentSpec,
    Evaluate,
    Guardrails,
    Improve,
    McpServerSpec,
    MemorySpec,
)
from flowengine.spec.schema_keys import NodeLimits, OnErrorSpec, RetrySpec
from flowengine.spec.schema_nodes import NODE_TYPES, CaseSpec
from flowengine.spec.shapes import is_map
from flowengine.templating.filters import FILTERS, TESTS

__all__ = ["reference"]

_HEAD: Final = """\
# The flow format, version 1

Made from the models that load a flow (`python -m flowengine.spec.reference`); the tests compare it with them.
Unknown keys are errors; keys that begin with `x-` are the author's. A key that is not marked as required may be left
out; "default" is the value that then holds, and `–` says that there is none. What the keys mean together is said by
[the rules](flow-format.md).
"""
_ORDER: Final[Mapping[str, type[BaseModel]]] = {
    "A flow": FlowSpec,
    "An input": InputSpec,
    "A key of shared state": StateSpec,
    "Defaults": Defaults,
    "Limits of a run": Limits,
    "Limits of a part": NodeLimits,
}
_AFTER: Final[Mapping[str, type[BaseModel]]] = {
    "A route": Route,
    "A case of a condition": CaseSpec,
    "An agent": AgentSpec,
    "`improve` of an agent": Improve,
    "`evaluate` of an agent": Evaluate,
    "`routing` of an agent": AgentRouting,
    "`guardrails` of an agent": Guardrails,
    "`memory` of an agent": MemorySpec,
    "An MCP server": McpServerSpec,
    "`retry`": RetrySpec,
}
_ON_ERROR: Final = """\
### `on_error`

| value | what a failure of the node means |
|---|---|
| `fail` (default) | The node has failed, and so has the run: only nodes with `join: always` still start. |
| `skip` | The node counts as skipped with the cause `error`; what depends on it decides by its `join`. |
| `{then: <node id>}` | The failure is handled: the node named is run, `nodes.<id>.error` tells it what happened. |
"""


def reference() -> str:
    """The document, in Markdown."""
    schema = json_schema()
    definitions: Mapping[str, Any] = schema["definitions"]
    lines = [_HEAD]
    for title, model in _ORDER.items():
        lines += _section(f"## {title}", schema if model is FlowSpec else definitions[model.__name__], model)
    lines.append("## Nodes\n")
    lines.append(f"`type` is one of {', '.join(f'`{each}`' for each in NODE_TYPES)}; left out, a node is an agent.\n")
    for name, model in NODE_TYPES.items():
        lines += _section(f"### `{name}`", definitions[model.__name__], model)
    lines.append("## Parts\n")
    for title, model in _AFTER.items():
        lines += _section(f"### {title}", definitions[model.__name__], model)
    lines += [_ON_ERROR, *_providers(), *_names(), *_filters(), *_codes()]
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, definition: Mapping[str, Any], model: type[BaseModel]) -> Iterator[str]:
    definition = _object(definition)
    yield f"{title}\n"
    if definition.get("description"):
        yield f"{_cell(definition['description'])}\n"
    yield "| key | value | default | |"
    yield "|---|---|---|---|"
    required = set(definition.get("required", ()))
    fields = {field.alias or name: name for name, field in model.model_fields.items()}
    for key, field in cast("Mapping[str, Any]", definition.get("properties", {})).items():
        default = "**required**" if key in required else _default(default_of(model, fields[key]), _shape(field))
        yield f"| `{key}` | {_cell(_shape(field))} | {default} | {_cell(field.get('description', ''))} |"
    yield ""


def _default(value: Any, shape: str = "") -> str:
    if value is NO_DEFAULT or value == "":
        return "–"
    if isinstance(value, float) and shape == "text":  # A duration is written as a text.
        return f"`{value:g}s`"
    if isinstance(value, OnErrorSpec):
        return f"`{value.action}`"
    if isinstance(value, bool | str):
        return f"`{str(value).lower() if isinstance(value, bool) else value}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, cast('tuple[Any, ...]', value)))}]`"
    return f"`{value:g}`"


def _providers() -> Iterator[str]:
    """The settings of each context provider, from the schemas by which they are checked."""
    yield "## Context providers\n"
    yield "What `context` of an agent may name, each with its settings (`- conversation: {max_items: 5}`).\n"
    for name in OURS:
        schema = provider_class(name).get_config_schema()
        yield f"### `{name}`\n\n{_cell(schema['description'])}.\n"
        yield "| setting | value | default | |"
        yield "|---|---|---|---|"
        for key, each in schema["parameters"].items():
            default = each["default"]
            shown = "**required**" if each.get("required") else _default(NO_DEFAULT if default is None else default)
            yield f"| `{key}` | {each['type'].replace('|', ' or ')} | {shown} | {_cell(each['description'])} |"
        yield ""


def _names() -> Iterator[str]:
    yield "## Names in templates and expressions\n"
    yield "| name | where | what it is |"
    yield "|---|---|---|"
    for name, (where, what) in DESCRIBED.items():
        yield f"| `{name}` | {where} | {what} |"
    yield ""


def _filters() -> Iterator[str]:
    yield "## Filters and tests\n"
    yield "Those of Jinja2 that work on data, with its meaning, and `split`, `from_json` and `regex_replace`. All are"
    yield "bounded in size and time.\n"
    yield f"Filters: {', '.join(f'`{each}`' for each in sorted(FILTERS))}.\n"
    yield f"Tests (`is …`): {', '.join(f'`{each}`' for each in sorted(TESTS))}.\n"


def _codes() -> Iterator[str]:
    yield "## Codes of problems\n"
    yield "`flowengine explain CODE` says what each means, why it is refused, and shows text that earns it.\n"
    yield "| code | problem |"
    yield "|---|---|"
    for code, each in CODES.items():
        yield f"| {code} | {_cell(each.title)} |"
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
        if list(field.get("properties", ())) == ["file"]:
            return "`{file: path}`"
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
