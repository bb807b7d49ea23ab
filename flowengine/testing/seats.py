"""Where a flow's models sit, and how others are put in their place: the one seam of the testing kit.

An agent takes a model object wherever it takes a model's name. So a flow under test is the flow itself,
with other models in its agents: prompts, retries, routes and records go their usual way, and nothing in
the product asks whether it is being tested. It knows nodes and agents, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.settings import CallSettings
from flowengine.flow import Flow
from flowengine.llm.model import Model
from flowengine.llm.retrying import RetryingModel
from flowengine.nodes.container import every_node
from flowengine.testing.substitution import agent_of, prototype_of, replace_agent, replace_nodes

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
    return replace_nodes(flow, lambda name, node: replace_agent(node, lambda agent: _seated(name, agent, choose)))


def seat_names(flow: Flow) -> Iterator[str]:
    """Every seat of the flow, by name; of a node inside a loop, a map or a subflow by its path (`polish.judge`)."""
    for name, node in every_node(flow.plan.definitions):
        agent = prototype_of(agent_of(node))
        if agent is not None:
            yield name
        if isinstance(agent, Agent):
            yield from [f"{name}.evaluation"] if agent.evaluator is not None else []
            yield from [f"{name}.routing"] if agent.router is not None else []


def _seated(node: str, agent: Any, choose: Choose) -> Any:
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
