"""Lets a routing agent choose one of the routes of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from flowengine.agents import RoutingAgent
from flowengine.core import USER_CODE, Context, Decided, NodeResult, check_arguments, find_label
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.nodes.asking_node import (
    AskingNode,
    Templated,
    choose_label,
    identify_router,
    prototype_of,
    subject_of_node,
)
from flowengine.nodes.gateway import asking_gateway_of
from flowengine.nodes.node import NodeSettings, Value


def _check_routes(agent: RoutingAgent, targets: Mapping[str, str | None], *, needs_all: bool) -> None:
    for label in agent.routes if needs_all else ():  # Its answer would be paid for, and lead to an error.
        if find_label(label, targets) is None:
            text = f"no target for the route '{label}' of agent '{agent.name}'; None, where it leads nowhere"
            raise DefinitionError(text)
    for label in targets:
        if find_label(label, agent.routes) is None:
            text = f"agent '{agent.name}' has no route '{label}'{did_you_mean(label, agent.routes)}"
            raise DefinitionError(text)


class RoutingNode(AskingNode):
    """Asks a routing agent for a label; `targets` says which node a label leads to (None: nowhere).

    `target`: what is routed; by default the last generation, else the `result` received.
    """

    kind: ClassVar[str] = "routing"

    def __init__(
        self,
        agent: RoutingAgent | Templated[RoutingAgent],
        targets: Mapping[str, str | None],
        *,
        fallback: str | None = None,
        target: Value | None = None,
        attach: Value | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        check_arguments(RoutingNode.__init__, locals())
        if isinstance(agent, RoutingAgent):
            _check_routes(agent, targets, needs_all=fallback is None)
        super().__init__(**settings)
        self.agent = agent
        self.target = target
        self.attach = attach
        self._lead(targets, fallback)

    @property
    def prototype(self) -> RoutingAgent:
        return prototype_of(self.agent)

    @property
    def chooses(self) -> bool:
        return True

    async def _ask(self, context: Context) -> NodeResult:
        with USER_CODE:
            agent = self.agent if isinstance(self.agent, RoutingAgent) else self.agent(context)
            subject = subject_of_node(context, self.target, self.attach)
        routing = await agent.route(subject, asking_gateway_of(context))
        label = choose_label(routing.next_route, self._routes, self._fallback)
        context.runtime.note_with_next(Decided("route", label, among=tuple(self._routes)))
        return NodeResult(output=routing, routing=routing, route=label)

    def identity(self) -> Sequence[Any]:
        return (identify_router(self.prototype), self.target, self.attach, self._fallback)
