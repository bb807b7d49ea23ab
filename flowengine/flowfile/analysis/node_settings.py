"""Chooses the settings that hold for a node: its own before its agent's, and `defaults` where it has none.

The builder makes agents from this, and the checks find here which templates a node renders. It knows
no default of the agents themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from flowengine.flowfile.schema.agent_settings import AgentSettings, AgentSpec, ModelSettings
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.keys import BoundedKeys, NodeKeys, RetrySpec, WorkKeys
from flowengine.flowfile.schema.node_guards import is_agent, is_condition
from flowengine.flowfile.yaml.positions import KeyPath
from flowengine.models.call_options import OF_GENERATING, OPTIONS

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
    from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec

__all__ = ["agent_of", "agent_path", "options_of", "retry_of", "setting_of", "settings_of", "timeout_of"]

AskingNode: TypeAlias = "AgentNodeSpec | RoutingNodeSpec | EvaluationNodeSpec"

_OF_JUDGES: Final = frozenset(ModelSettings.model_fields) - {"temperature", *OF_GENERATING} | {"timeout"}
"""What routing and evaluation nodes take from an agent; its temperature is for generating."""
_OPTIONS: Final = (*OPTIONS, "model_options")


_JUDGING: Final = frozenset({"improve", "evaluate"})
"""A node that says one of them decides how it is judged, whatever its agent says."""


def agent_path(spec: FlowSpec, at: KeyPath, node: AskingNode) -> KeyPath | None:
    """Returns the key path of a node's agent; None if it has none."""
    if node.agent is not None:
        return ("agents", node.agent) if isinstance(node.agent, str) else (*at, "agent")
    if spec.defaults.agent is not None:
        return ("agents", spec.defaults.agent) if isinstance(spec.defaults.agent, str) else ("defaults", "agent")
    return None


def agent_of(spec: FlowSpec, node: AskingNode) -> AgentSpec | None:
    """The agent that a node names, holds, or gets from `defaults`."""
    given = node.agent if node.agent is not None else spec.defaults.agent
    return spec.agents.get(given) if isinstance(given, str) else given


def settings_of(spec: FlowSpec, node: AskingNode) -> AgentSpec:
    """The settings that hold for a node; only what was given somewhere is set. `timeout` is that of a model call.

    Routing and evaluation nodes take the model and how it is asked from the agent, but for its temperature and what
    else is for generating. Options go with the model that they were given for: a node that names another one than its
    agent takes none of the agent's.
    """
    agent = agent_of(spec, node)
    allowed = frozenset(AgentSpec.model_fields) if is_agent(node) else _OF_JUDGES
    merged: dict[str, Any] = {}
    if agent is not None:
        merged = {name: getattr(agent, name) for name in agent.model_fields_set if name in allowed}
    if is_agent(node) and node.model_fields_set & _JUDGING:
        merged = {name: value for name, value in merged.items() if name not in _JUDGING}
    if agent is not None and node.model is not None and node.model != agent.model:
        merged = {name: value for name, value in merged.items() if name not in _OPTIONS}
    shared = AgentSettings if is_agent(node) else ModelSettings
    merged |= {name: getattr(node, name) for name in shared.model_fields if name in node.model_fields_set}
    return AgentSpec.model_construct(**merged)


def options_of(settings: ModelSettings) -> dict[str, Any]:
    """The options of the model call that are said, as agents take them."""
    said = {name: getattr(settings, name) for name in _OPTIONS if getattr(settings, name, None) is not None}
    if settings.thinking is not None:
        said["thinking"] = settings.thinking.budget_tokens
    return said


def setting_of(spec: FlowSpec, node: AgentNodeSpec, name: str) -> Any:
    """One setting of an agent node, as `settings_of` has it."""
    if name in node.model_fields_set or (name in _JUDGING and node.model_fields_set & _JUDGING):
        return getattr(node, name)
    agent = agent_of(spec, node)
    return None if agent is None else getattr(agent, name)


def retry_of(spec: FlowSpec, node: NodeKeys) -> RetrySpec | None:
    """A node's retry, or the flow's default, which is only for what is known to have no external effect."""
    if not isinstance(node, WorkKeys):
        return None
    if node.retry is not None or node.known_effect() not in ("none", "idempotent") or not _takes_defaults(node):
        return node.retry
    return spec.defaults.retry


def timeout_of(spec: FlowSpec, node: NodeKeys) -> float | None:
    """A node's timeout in seconds, or the flow's default."""
    if not isinstance(node, BoundedKeys):
        return None
    return spec.defaults.timeout if node.timeout is None and _takes_defaults(node) else node.timeout


def _takes_defaults(node: NodeKeys) -> bool:
    """Agent, routing and evaluation nodes do, and those that call something."""
    return isinstance(node, WorkKeys) and not is_condition(node)
