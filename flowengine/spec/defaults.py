"""The values that hold where a flow file says nothing, read from the code that applies them.

The models of the file mark a key that was not given as None, because an agent, a `defaults` block or the project file
may still give it. What holds in the end is the default of a constructor. The reference in the docs shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.providers.long_term_memory import LongTermMemoryProvider
from flowengine.spec.schema_agent import AgentSettings, AgentSpec, Evaluate, McpServerSpec, MemorySpec
from flowengine.spec.schema_nodes import EvaluationNodeSpec, RoutingNodeSpec
from flowengine.tools.mcp_server import McpServer

__all__ = ["NO_DEFAULT", "default_of"]

NO_DEFAULT: Final = object()
"""The key has no default value: left out, there is nothing of it."""


class _Source(NamedTuple):
    """Where a model's defaults stand, and the keys that are called otherwise there."""

    constructor: Callable[..., Any]
    renamed: Mapping[str, str] = {}


_SOURCES: Final[Mapping[type[BaseModel], _Source]] = {
    RoutingNodeSpec: _Source(RoutingAgent),
    EvaluationNodeSpec: _Source(EvaluationAgent, {"threshold": "pass_threshold"}),
    AgentSettings: _Source(Agent),
    Evaluate: _Source(Agent, {"threshold": "evaluation_threshold", "max_iterations": "max_improvement_iterations"}),
    McpServerSpec: _Source(McpServer),
    MemorySpec: _Source(LongTermMemoryProvider),
}
_OTHERWISE: Final = frozenset({"timeout", "fallback", "routes", "model"})
"""Keys of nodes that mean something else to an agent, or whose default is a rule (see their descriptions)."""
_NOTHING: Final[tuple[Any, ...]] = (None, "", (), {})


def default_of(model: type[BaseModel], name: str) -> Any:
    """The value of a key that nothing gives, or `NO_DEFAULT`.

    >>> from flowengine.spec.schema_nodes import AgentNodeSpec
    >>> default_of(AgentNodeSpec, "temperature"), default_of(RoutingNodeSpec, "temperature")
    (0.7, 0.1)
    """
    field = model.model_fields[name]
    if field.is_required():
        return NO_DEFAULT
    given = field.get_default(call_default_factory=True)
    if isinstance(given, BaseModel):
        return NO_DEFAULT if not _says_anything(given) else given
    if given not in _NOTHING:
        return given
    found = _of_constructor(model, name)
    return NO_DEFAULT if found in _NOTHING else found


def _says_anything(value: BaseModel) -> bool:
    """Whether a part that is there by default is more than the defaults of its own keys, which its table shows."""
    return any(field.is_required() for field in type(value).model_fields.values())


def _of_constructor(model: type[BaseModel], name: str) -> Any:
    source = next((_SOURCES[each] for each in model.__mro__ if each in _SOURCES), None)
    if source is None or (name in _OTHERWISE and model not in (AgentSpec, McpServerSpec)):
        return None
    found = signature(source.constructor).parameters.get(source.renamed.get(name, name))
    return None if found is None or _is_made(found.default) else found.default


def _is_made(default: Any) -> bool:
    """Whether there is no value to show: the parameter is required, or its default is made anew for each object."""
    return default is Parameter.empty or type(default).__module__ == "dataclasses"
