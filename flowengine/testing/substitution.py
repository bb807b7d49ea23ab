"""A flow with other nodes in the places of its own, those inside loops, maps and subflows too.

Nothing here knows what is put in: models are `seats`' matter, functions and tools are `fakes`'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias, cast

from flowengine.context import Context
from flowengine.flow import Flow
from flowengine.nodes.agent import AgentNode, EvaluationNode, RoutingNode, Templated
from flowengine.nodes.container import ContainerNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.policy import wrapped

__all__ = ["Change", "agent_of", "prototype_of", "replace_agent", "replace_nodes"]

Change: TypeAlias = Callable[[str, FlowNode], FlowNode]
"""What stands in the place of a node that holds no others, from its path and the node."""


def replace_nodes(flow: Flow, change: Change) -> Flow:
    """The flow with what `change` gives in the place of each node."""
    plan = flow.plan
    definitions = _replace_all("", plan.definitions, change)
    nodes = [wrapped(definitions[name]) for name in plan.graph.ids]
    return type(flow).of(replace(plan, definitions=definitions, nodes=nodes))


def agent_of(node: FlowNode) -> Any:
    """The agent of a node, which may be templated; None where it asks no model."""
    if isinstance(node, EvaluationNode):
        return node.judge
    return node.agent if isinstance(node, AgentNode | RoutingNode) else None


def prototype_of(agent: Any) -> Any:
    """The agent itself, or the one that a templated agent is made from."""
    templated = cast("Templated[Any]", agent)
    return templated.prototype if isinstance(agent, Templated) else agent


def replace_agent(node: FlowNode, change: Callable[[Any], Any]) -> FlowNode:
    """The node with its agent changed; of a templated one, each that is made from it. As it is without an agent."""
    agent = agent_of(node)
    if agent is None:
        return node
    changed = copy(node)
    setattr(changed, "judge" if isinstance(node, EvaluationNode) else "agent", _changed(agent, change))
    return changed


def _replace_all(prefix: str, nodes: Mapping[str, FlowNode], change: Change) -> dict[str, FlowNode]:
    return {name: _replaced(f"{prefix}{name}", node, change) for name, node in nodes.items()}


def _replaced(name: str, node: FlowNode, change: Change) -> FlowNode:
    if isinstance(node, ContainerNode):
        return node.with_nodes(_replace_all(f"{name}.", node.definitions, change))
    return change(name, node)


def _changed(agent: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(agent, Templated):
        make: Callable[[Context], Any] = agent.__call__
        return Templated(change(prototype_of(agent)), lambda context: change(make(context)))
    return change(agent)
