"""Has what nodes share whose work is an agent's: models that are prepared, routes, and waiting for a person."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from flowengine.agents import (
    Agent,
    EvaluationAgent,
    NamedModels,
    RoutingAgent,
    find_default,
    load_models,
    prepare_model,
    subject_of,
)
from flowengine.agents.prompt import Subject, files_of, text_of
from flowengine.core import AwaitsAnswer, AwaitsPerson, Context, NodeResult, find_label
from flowengine.engine import FALLBACK, Ended, Park
from flowengine.errors import RouteError
from flowengine.models import DefaultModel, Model
from flowengine.nodes.node import FlowNode, Value

A = TypeVar("A", Agent, RoutingAgent, EvaluationAgent)


class Templated(Generic[A]):
    """An agent that is made anew for each run of its node; `prototype` has all but the rendered texts."""

    def __init__(self, prototype: A, make: Callable[[Context], A]) -> None:
        self.prototype = prototype
        self._make = make

    def __call__(self, context: Context) -> A:
        return self._make(context)


def prototype_of(agent: A | Templated[A]) -> A:
    """The agent itself, or the one that has all of a templated one but the rendered texts."""
    return agent.prototype if isinstance(agent, Templated) else agent


class AskingNode(FlowNode):
    """A node whose work is an agent's; it is put aside while that waits for a person or for a batch."""

    _routes: Mapping[str, str | None]

    @property
    @abstractmethod
    def prototype(self) -> Agent | RoutingAgent | EvaluationAgent | None:
        """The agent, without rendered texts where it is templated; None where a function does the work."""

    @abstractmethod
    async def _ask(self, context: Context) -> NodeResult: ...

    def _lead(self, targets: Mapping[str, str | None], fallback: str | None) -> None:
        """Sets where its labels lead; `fallback`: the node for an answer without a usable one."""
        self._fallback = fallback
        self._routes = {**targets, **({} if fallback is None else {FALLBACK: fallback})}

    @property
    def routes(self) -> Mapping[str, str | None]:
        return self._routes

    @property
    def model_name(self) -> str:
        agent = self.prototype
        if agent is None:
            return ""
        model, stand_in = agent.settings.model, agent.settings.surroundings.stand_in
        return (stand_in or model or "") if isinstance(model, str | None) else model.name

    @property
    def default_model(self) -> DefaultModel | None:
        agents = () if self.prototype is None else _agents_of(self.prototype)
        return next(filter(None, (find_default(each.settings) for each in agents)), None)

    def prepare(self) -> None:
        if self.prototype is not None:
            _prepare(self.prototype)

    async def load_models(self) -> None:
        for each in () if self.prototype is None else _agents_of(self.prototype):
            await load_models(each.settings)

    async def run(self, context: Context, /) -> Ended:
        try:
            return await self._ask(context)
        except (AwaitsPerson, AwaitsAnswer):
            return Park()


def _agents_of(agent: Agent | RoutingAgent | EvaluationAgent) -> Sequence[Agent | RoutingAgent | EvaluationAgent]:
    """An agent, with its judge and its router."""
    inner = (agent.evaluator, agent.router) if isinstance(agent, Agent) else ()
    return [agent, *filter(None, inner)]


def _prepare(agent: Agent | RoutingAgent | EvaluationAgent) -> None:
    """Open every model that an agent will ask, those of judge, router and context providers included; and see that
    there is a library for its MCP servers, and what their headers are made of."""
    if isinstance(agent, Agent):
        for inner in _agents_of(agent)[1:]:
            _prepare(inner)
        if agent.tooling.servers:
            from flowengine.agents.tools.mcp import check_library, header_values  # Most agents name no server.

            check_library()
            for server in agent.tooling.servers:
                header_values(server, agent.settings.surroundings.environ)
        for provider in () if agent.sources is None else agent.sources.providers:
            provider.prepare_models(NamedModels(agent.settings.surroundings))
    prepare_model(agent.settings, has_tools=isinstance(agent, Agent) and agent.may_call_tools)


def identify_asking(agent: Agent | RoutingAgent | EvaluationAgent) -> Sequence[Any]:
    settings = agent.settings
    return (_model_name(settings.model), settings.temperature, settings.max_tokens, dict(settings.extra))


def identify_judge(judge: EvaluationAgent | None) -> Sequence[Any]:
    if judge is None:
        return ()
    return (identify_asking(judge), judge.instructions, dict(judge.criteria), judge.pass_threshold)


def identify_router(router: RoutingAgent | None) -> Sequence[Any]:
    return () if router is None else (identify_asking(router), router.instruction, dict(router.routes))


def _model_name(model: str | Model | None) -> str:
    """The model as fingerprints have it: the same in every process."""
    return str(model) if model is None or isinstance(model, str) else f"{model.provider}/{model.name}"


def user_input(context: Context) -> str:
    """Returns the user input of an agent without a prompt (rule 7)."""
    if context.has_result:
        return text_of(context.result)
    inputs = dict(context.inputs)
    if len(inputs) == 1:
        return text_of(next(iter(inputs.values())))
    return text_of(inputs) if inputs else ""


def choose_label(answer: str, routes: Mapping[str, str | None], fallback: str | None) -> str:
    """The label of the route that an answer takes; the agent has checked it against its labels."""
    label = find_label(answer, routes)
    if label is not None:
        return label
    if fallback is not None and find_label(answer, (fallback,)):
        return FALLBACK
    raise RouteError(f"the route '{answer}' leads to no declared label; allowed are: {', '.join(routes)}")


def subject_of_node(context: Context, target: Value | None, attach: Value | None = None) -> Subject:
    """Returns the judged or routed text: the target, else the last generation, else the `result` or the input."""
    value = None if target is None else target(context)
    received = None
    if value is None and "_last_generation" not in context.shared_state:
        received = user_input(context)  # Not read before it is needed: `result` may be ambiguous.
    subject = subject_of(context, received, value)
    return subject if attach is None else subject._replace(attachments=files_of(attach(context)))
