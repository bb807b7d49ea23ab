"""Prints the reference of the flow format, made from the models that load it.

`python -m flowengine.flowfile.schema.reference` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, signature
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel

from flowengine.agents import Agent, EvaluationAgent, RoutingAgent
from flowengine.agents.context import OURS, LongTermMemoryProvider, provider_class
from flowengine.agents.tools.mcp import McpServer
from flowengine.core import TRAITS, is_map
from flowengine.core.templating import FILTERS, TESTS
from flowengine.flowfile.checks import CODES
from flowengine.flowfile.compile import DESCRIBED
from flowengine.flowfile.kinds.condition_kind import CaseSpec
from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec
from flowengine.flowfile.schema.agent_settings import (
    AgentRouting,
    AgentSettings,
    AgentSpec,
    Evaluate,
    Guardrails,
    Improve,
    McpServerSpec,
    MemorySpec,
)
from flowengine.flowfile.schema.editor_schema import json_schema
from flowengine.flowfile.schema.fields import Route
from flowengine.flowfile.schema.flow_file import Defaults, FlowSpec, InputSpec, LimitsSpec, StateSpec
from flowengine.flowfile.schema.keys import NodeLimitsSpec, OnErrorSpec, RetrySpec
from flowengine.flowfile.schema.node_kinds import spec_of
from flowengine.flowfile.schema.notify_keys import ChannelKeys

# --- The values that hold where a flow file says nothing, read from the code that applies them

NO_DEFAULT: Final = object()
"""The key has no default value: left out, there is nothing of it."""


class _Source(NamedTuple):
    """The position of a model's defaults, and the keys that have other names there."""

    constructor: Callable[..., Any]
    renamed: Mapping[str, str] = {}


_SOURCES: Final[Mapping[type[BaseModel], _Source]] = {
    RoutingNodeSpec: _Source(RoutingAgent),
    EvaluationNodeSpec: _Source(EvaluationAgent, {"threshold": "pass_threshold"}),
    AgentSettings: _Source(Agent),
    Evaluate: _Source(
        Agent,
        {
            "threshold": "evaluation_threshold",
            "max_iterations": "max_improvement_iterations",
            "patience": "improvement_patience",
        },
    ),
    McpServerSpec: _Source(McpServer),
    MemorySpec: _Source(LongTermMemoryProvider),
}
_OTHERWISE: Final = frozenset({"timeout", "fallback", "routes", "model", "history_size"})
"""Keys of nodes that mean something else to an agent, or whose default is a rule (see their descriptions)."""
_NOTHING: Final[tuple[Any, ...]] = (None, "", (), {})


def default_of(model: type[BaseModel], name: str) -> Any:
    """The value of a key that nothing gives, or `NO_DEFAULT`.

    >>> from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    >>> default_of(AgentNodeSpec, "temperature"), default_of(RoutingNodeSpec, "temperature")
    (0.7, 0.1)
    """
    field = model.model_fields[name]
    if field.is_required():
        return NO_DEFAULT
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return NO_DEFAULT if not _says_anything(default) else default
    if default not in _NOTHING:
        return default
    parameter_default = _of_constructor(model, name)
    return NO_DEFAULT if parameter_default in _NOTHING else parameter_default


def _says_anything(value: BaseModel) -> bool:
    """Tells whether a part that is there by default is more than the defaults of its own keys, which its table
    shows.
    """
    return any(field.is_required() for field in type(value).model_fields.values())


def _of_constructor(model: type[BaseModel], name: str) -> Any:
    source = next((_SOURCES[each] for each in model.__mro__ if each in _SOURCES), None)
    if source is None or (name in _OTHERWISE and model not in (AgentSpec, McpServerSpec)):
        return None
    parameter = signature(source.constructor).parameters.get(source.renamed.get(name, name))
    return None if parameter is None or _is_made(parameter.default) else parameter.default


def _is_made(default: Any) -> bool:
    """Tells whether there is no value to show: the parameter is required, or its default is made anew for each
    object.
    """
    return default is Parameter.empty or type(default).__module__ == "dataclasses"


_HEAD: Final = """\
# The flow format, version 1

Made from the models that load a flow (`python -m flowengine.flowfile.schema.reference`); tests compare it with them.
Unknown keys are errors; keys that begin with `x-` are the author's. A key that is not marked as required may be left
out; "default" is the value that then holds, and `–` says that there is none. What the keys mean together is said by
[the rules](flow-format.md). What `context` of an agent may name is on the page of [providers](providers.md).
"""
_ORDER: Final[Mapping[str, type[BaseModel]]] = {
    "A flow": FlowSpec,
    "An input": InputSpec,
    "A key of shared state": StateSpec,
    "Defaults": Defaults,
    "LimitsSpec of a run": LimitsSpec,
    "LimitsSpec of a part": NodeLimitsSpec,
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
    "A channel of `notify`": ChannelKeys,
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
    lines.append(f"`type` is one of {', '.join(f'`{each}`' for each in TRAITS)}; left out, a node is an agent.\n")
    for name in TRAITS:
        lines += _section(f"### `{name}`", definitions[spec_of(name).__name__], spec_of(name))
    lines.append("## Parts\n")
    for title, model in _AFTER.items():
        lines += _section(f"### {title}", definitions[model.__name__], model)
    lines += [_ON_ERROR, *_names(), *_filters(), *_codes()]
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


def providers_section() -> str:
    """The settings of each context provider, from the schemas by which they are checked."""
    return "\n".join(_providers()).rstrip() + "\n"


def _providers() -> Iterator[str]:
    yield "## Context providers\n"
    yield "What `context` of an agent may name, each with its settings (`- conversation: {max_items: 5}`).\n"
    for name in OURS:
        schema = provider_class(name).get_config_schema()
        yield f"### `{name}`\n\n{_cell(schema['description'])}.\n"
        yield "| setting | value | default | |"
        yield "|---|---|---|---|"
        for key, each in schema["parameters"].items():
            default = each["default"]
            text = "**required**" if each.get("required") else _default(NO_DEFAULT if default is None else default)
            yield f"| `{key}` | {each['type'].replace('|', ' or ')} | {text} | {_cell(each['description'])} |"
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
    yield "bounded in size and time. [What each of them takes](filters.md).\n"
    yield f"Filters: {', '.join(f'`{each}`' for each in sorted(FILTERS))}.\n"
    yield f"Tests (`is …`): {', '.join(f'`{each}`' for each in sorted(TESTS))}.\n"


def _codes() -> Iterator[str]:
    yield "## Codes of problems\n"
    yield "`flowengine explain CODE` says what each means, why it is refused, and shows text that earns it, as does the"
    yield "page of [errors](errors.md).\n"
    yield "| code | problem |"
    yield "|---|---|"
    for code, each in CODES.items():
        yield f"| {code} | {_cell(each.title)} |"
    yield ""


def _object(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the one of several alternatives that has keys."""
    for each in cast("list[Mapping[str, Any]]", definition.get("anyOf", [])):
        if "properties" in each:
            return {"description": definition.get("description", ""), **each}
    return definition


def _shape(field: Mapping[str, Any]) -> str:
    """Describes the expected value in a few words."""
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
    words = {"string": "text", "integer": "whole number", "boolean": "`true` \\| `false`"}
    return words.get(kind, str(kind)) + _bounds(field)


def _bounds(field: Mapping[str, Any]) -> str:
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", above {low}" if "exclusiveMinimum" in field else f", at least {low}"
    return ""


def _name(target: str) -> str:
    name = target.rpartition("/")[2].removesuffix("Spec")
    return {"Node": "a node", "NodeLimitsSpec": "limits of a part"}.get(name, f"{name[0].lower()}{name[1:]}")


def _cell(text: str) -> str:
    return " ".join(str(text).split())


if __name__ == "__main__":
    print(reference(), end="")
