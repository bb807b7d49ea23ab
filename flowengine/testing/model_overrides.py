"""Puts other models in the place of a flow's own: the one seam of the testing kit.

An agent takes a model object wherever it takes a model's name. So a flow under test is the flow itself,
with other models in its agents: prompts, retries, routes and records go their usual way, and nothing in
the product asks whether it is being tested. It knows nodes and agents, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from flowengine.agents import Agent, CallSettings, EvaluationAgent, RoutingAgent
from flowengine.core import Context
from flowengine.flow import Flow
from flowengine.models import Model
from flowengine.models.wrappers import RetryingModel
from flowengine.nodes import AskingNode, ContainerNode, EvaluationNode, FlowNode, Templated, wrap_node

# --- Replaced nodes and agents

Change: TypeAlias = Callable[[str, FlowNode], FlowNode]
"""A function from the path of a node that holds no others, and the node, to what replaces it."""


def replace_nodes(flow: Flow, change: Change) -> Flow:
    """The flow with what `change` gives in the place of each node, without notices of its questions."""
    plan = flow.plan
    definitions = _replace_all("", plan.definitions, change)
    nodes = [wrap_node(definitions[name]) for name in plan.graph.ids]
    return type(flow).of(replace(plan, definitions=definitions, nodes=nodes, notifier=None))


def replace_agent(node: FlowNode, change: Callable[[Any], Any]) -> FlowNode:
    """The node with its agent changed; of a templated one, each that is made from it. As it is without an agent."""
    if not isinstance(node, AskingNode) or node.prototype is None:
        return node
    changed, name = copy(node), "judge" if isinstance(node, EvaluationNode) else "agent"
    setattr(changed, name, _change_agent(getattr(node, name), change))
    return changed


def _replace_all(prefix: str, nodes: Mapping[str, FlowNode], change: Change) -> dict[str, FlowNode]:
    return {name: _replace_node(f"{prefix}{name}", node, change) for name, node in nodes.items()}


def _replace_node(name: str, node: FlowNode, change: Change) -> FlowNode:
    if isinstance(node, ContainerNode):
        return node.with_nodes(_replace_all(f"{name}.", node.definitions, change))
    return change(name, node)


def _change_agent(agent: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(agent, Templated):
        make: Callable[[Context], Any] = agent.__call__
        return Templated(change(cast("Templated[Any]", agent).prototype), lambda context: change(make(context)))
    return change(agent)


Part: TypeAlias = Literal["", "evaluation", "routing"]

A = TypeVar("A", Agent, RoutingAgent, EvaluationAgent)


class ModelSlot(NamedTuple):
    """One place in a flow that asks a model.

    >>> str(ModelSlot("draft")), str(ModelSlot("draft", "evaluation"))
    ('draft', 'draft.evaluation')
    """

    node: str
    part: Part = ""
    """The judge or the router inside of an agent that also judges or routes; else empty."""

    def __str__(self) -> str:
        return f"{self.node}.{self.part}" if self.part else self.node


Choose: TypeAlias = Callable[[ModelSlot, CallSettings], Model]
"""The model for a seat, from the settings of the agent that sits there."""


def with_models(flow: Flow, choose: Choose) -> Flow:
    """The flow with the models that `choose` gives, each in the place of a model, its retries and its fallbacks."""
    return replace_nodes(
        flow, lambda name, node: replace_agent(node, lambda agent: _override_models(name, agent, choose))
    )


def seat_names(flow: Flow) -> Iterator[str]:
    """Every seat of the flow, by name; of a node inside a loop, a map or a subflow by its path (`polish.judge`)."""
    for name, node in flow.plan.all_nodes.items():
        agent = node.prototype if isinstance(node, AskingNode) else None
        if agent is not None:
            yield name
        if isinstance(agent, Agent):
            yield from [f"{name}.evaluation"] if agent.evaluator is not None else []
            yield from [f"{name}.routing"] if agent.router is not None else []


def _override_models(node: str, agent: Any, choose: Choose) -> Any:
    return (
        _override_agent(node, agent, choose)
        if isinstance(agent, Agent)
        else _override_part(ModelSlot(node), agent, choose)
    )


def _override_agent(node: str, agent: Agent, choose: Choose) -> Agent:
    changed = _override_part(ModelSlot(node), agent, choose)
    if agent.evaluator is not None:
        changed.evaluator = _override_part(ModelSlot(node, "evaluation"), agent.evaluator, choose)
    if agent.router is not None:
        changed.router = _override_part(ModelSlot(node, "routing"), agent.router, choose)
    return changed


def _override_part(seat: ModelSlot, agent: A, choose: Choose) -> A:
    changed = copy(agent)
    # A policy of its own, without retries: the agent puts none round it.
    model = RetryingModel(choose(seat, agent.settings), 0)
    changed.settings = replace(agent.settings, model=model, fallbacks=())
    return changed
