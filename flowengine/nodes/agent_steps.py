"""Makes the nodes of agents that are given as steps of a flow, and says what the agents among nodes draw on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from flowengine.agents import Agent, EvaluationAgent, RoutingAgent
from flowengine.agents.context import ContextProvider
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.routing_node import RoutingNode

if TYPE_CHECKING:
    from flowengine.agents.typed_contexts import TypedContext


def providers_of(nodes: Iterable[FlowNode]) -> Iterator[ContextProvider]:
    """The context providers of all agents among some nodes."""
    for node in nodes:
        if isinstance(node, AgentNode) and node.prototype.sources is not None:
            yield from node.prototype.sources.providers


def keeps_talk(nodes: Iterable[FlowNode]) -> bool:
    """Whether an agent among some nodes has a conversation, typed contexts or a provider that may keep something."""
    sources = (node.prototype.sources for node in nodes if isinstance(node, AgentNode))
    return any(each is not None and (each.providers or each.contexts is not None) for each in sources)


def contexts_of(nodes: Iterable[FlowNode]) -> Iterator[TypedContext[Any]]:
    """The typed contexts of all agents among some nodes, with the data that they begin with."""
    for node in nodes:
        sources = node.prototype.sources if isinstance(node, AgentNode) else None
        if sources is not None and sources.contexts is not None:
            yield from sources.contexts.fresh().context_list


def node_of_agent(agent: Agent | RoutingAgent | EvaluationAgent, step: str, steps: Collection[str]) -> FlowNode:
    """The node that runs an agent as the step of a flow; each of its routes leads to the step of that name.

    Raises `DefinitionError` for a route that has no step: whoever wants one that leads nowhere says so with a node.
    """
    if isinstance(agent, Agent):
        routes = {} if agent.router is None else agent.router.routes
        return AgentNode(agent, targets=_find_steps("AgentNode(agent, targets={})", routes, step, steps))
    if isinstance(agent, RoutingAgent):
        return RoutingNode(agent, _find_steps("RoutingNode(agent, {})", agent.routes, step, steps))
    if isinstance(cast(Any, agent), EvaluationAgent):
        return EvaluationNode(agent)
    type_name = type(cast(Any, agent)).__name__
    raise DefinitionError(f"a flow is made of nodes and agents, found {type_name}; wrap a function in FunctionNode")


def _find_steps(form: str, routes: Iterable[str], step: str, steps: Collection[str]) -> Mapping[str, str]:
    """Route → the step of that name. `form`: how a node with other targets is written."""
    orphans = [label for label in routes if label not in steps]
    if orphans:
        targets = {label: label if label in steps else None for label in routes}
        leads = (
            f"routes {', '.join(orphans)} of step '{step}' lead"
            if orphans[1:]
            else f"route {orphans[0]} of step '{step}' leads"
        )
        raise DefinitionError(
            f"the {leads} to no step{did_you_mean(orphans[0], steps)}; give a step that name, or say where each leads: "
            f"{form.format(targets)}"
        )
    return {label: label for label in routes}
