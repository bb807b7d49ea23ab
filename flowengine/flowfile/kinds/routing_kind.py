"""The kind `routing`: a model chooses a route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import model_validator

from flowengine.core import TRAITS
from flowengine.flowfile.compile import template, values
from flowengine.flowfile.schema import (
    ROUTING,
    AgentRef,
    ListOf,
    Maybe,
    ModelSettings,
    NodeCompiler,
    NodeId,
    NodeKind,
    OwnRoute,
    Prompt,
    Routes,
    Score,
    Shape,
    Template,
    WorkKeys,
    check_choices,
    routes_to,
    targets_of,
)

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode


class RoutingNodeSpec(WorkKeys, ModelSettings):
    """A model reads the last generation and chooses a route."""

    type: Literal["routing"]
    """Kind of the node."""
    instruction: Prompt
    """How to choose."""
    routes: Routes
    """Label → node, or {to, description}."""
    min_confidence: Maybe[Score] = None
    """Below it the fallback is taken; without a fallback the node fails."""
    fallback: Maybe[NodeId] = None
    """A label, or the id of a node: taken where the answer is none of the routes, or too unsure."""
    target: Maybe[Template] = None
    """The text to route; left out: the last generation."""
    attach: ListOf[Template] = ()
    """Files that the model sees with it: images, PDF, sound as such, text files as text."""
    agent: Maybe[AgentRef] = None
    """The agent that gives the model and its settings, if the node does not."""

    @model_validator(mode="after")
    def _chooses(self) -> RoutingNodeSpec:
        check_choices(self.routes)
        return self

    def own_routes(self) -> list[OwnRoute]:
        return routes_to(self.routes, self.fallback)

    def output_shape(self) -> Shape:
        return ROUTING


def make(node: RoutingNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import RoutingNode

    targets, fallback = targets_of(node.routes, node.fallback)
    target = None if node.target is None else template(node.target)
    attach = values(node.attach) if node.attach else None
    agent = compiler.routing_agent(node)
    return RoutingNode(agent, targets, fallback=fallback, target=target, attach=attach, **settings)


KIND: Final = NodeKind(RoutingNodeSpec, make, TRAITS["routing"])
