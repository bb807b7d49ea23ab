"""Where a flow's models sit, and how others are put in their place: the one seam of the testing kit.

An agent takes a model object wherever it takes a model's name. So a flow under test is the flow itself,
with other models in its agents: prompts, retries, routes and records go their usual way, and nothing in
the product asks whether it is being tested. It knows nodes and agents, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.settings import CallSettings
from flowengine.context import Context
from flowengine.flow import Flow
from flowengine.llm.model import Model
from flowengine.llm.retrying import RetryingModel
from flowengine.nodes.agent import AgentNode, EvaluationNode, RoutingNode, Templated
from flowengine.nodes.container import ContainerNode, every_node
from flowengine.nodes.node import FlowNode
from flowengine.nodes.policy import wrapped

__all__ = ["Choose", "Part", "Seat", "seat_names", "with_models"]

Part: TypeAlias = Literal["", "evaluation", "routing"]

A = TypeVar("A", Agent, RoutingAgent, EvaluationAgent)


class Seat(NamedTuple):
    """Who asks a model.

    >>> str(Seat("draft")), str(Seat("draft", "evaluation"))
    ('draft', 'draft.evaluation')
    """

    node: str
    part: Part = ""
    """Of an agent that also judges or routes: the judge or the router inside; else empty."""

    def __str__(self) -> str:
        return f"{self.node}.{self.part}" if self.part else self.node


Choose: TypeAlias = Callable[[Seat, CallSettings], Model]
"""The model for a seat, from the settings of the agent that sits there."""


def with_models(flow: Flow, choose: Choose) -> Flow:
    """The flow with the models that `choose` gives, each in the place of a model, its retries and its fallbacks."""
    plan = flow.plan
    definitions = _nodes("", plan.definitions, choose)
    nodes = [wrapped(definitions[name]) for name in plan.graph.ids]
    return type(flow).of(replace(plan, definitions=definitions, nodes=nodes))


def seat_names(flow: Flow) -> Iterator[str]:
    """Every seat of the flow, by name; of a node inside a loop, a map or a subflow by its path (`polish.judge`)."""
    for name, node in every_node(flow.plan.definitions):
        agent = _prototype(_agent_of(node))
        if agent is not None:
            yield name
        if isinstance(agent, Agent):
            yield from [f"{name}.evaluation"] if agent.evaluator is not None else []
            yield from [f"{name}.routing"] if agent.router is not None else []


def _nodes(prefix: str, nodes: Mapping[str, FlowNode], choose: Choose) -> dict[str, FlowNode]:
    return {name: _node(f"{prefix}{name}", node, choose) for name, node in nodes.items()}


def _agent_of(node: FlowNode) -> Any:
    """The agent of a node, which may be templated; None where it asks no model."""
    if isinstance(node, EvaluationNode):
        return node.judge
    return node.agent if isinstance(node, AgentNode | RoutingNode) else None


def _prototype(agent: Any) -> Any:
    templated = cast("Templated[Any]", agent)
    return templated.prototype if isinstance(agent, Templated) else agent


def _node(name: str, node: FlowNode, choose: Choose) -> FlowNode:
    if isinstance(node, ContainerNode):
        return node.with_nodes(_nodes(f"{name}.", node.definitions, choose))
    agent = _agent_of(node)
    if agent is None:
        return node
    changed = copy(node)
    setattr(changed, "judge" if isinstance(node, EvaluationNode) else "agent", _seated(name, agent, choose))
    return changed


def _seated(node: str, agent: Any, choose: Choose) -> Any:
    """The agent with other models; of a templated one, each that is made from it."""
    if isinstance(agent, Templated):
        make: Callable[[Context], Any] = agent.__call__
        return Templated(_seated(node, _prototype(agent), choose), lambda context: _seated(node, make(context), choose))
    return _whole(node, agent, choose) if isinstance(agent, Agent) else _part(Seat(node), agent, choose)


def _whole(node: str, agent: Agent, choose: Choose) -> Agent:
    changed = _part(Seat(node), agent, choose)
    if agent.evaluator is not None:
        changed.evaluator = _part(Seat(node, "evaluation"), agent.evaluator, choose)
    if agent.router is not None:
        changed.router = _part(Seat(node, "routing"), agent.router, choose)
    return changed


def _part(seat: Seat, agent: A, choose: Choose) -> A:
    changed = copy(agent)
    # A policy of its own, without retries: the agent puts none round it.
    model = RetryingModel(choose(seat, agent.settings), 0)
    changed.settings = replace(agent.settings, model=model, fallbacks=())
    return changed
