"""Runs agents as nodes: Context → agent → NodeResult. The only place where the two columns meet."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Unpack, cast

from flowengine.agents.agent import Agent
from flowengine.agents.caller import naming, subject_of
from flowengine.agents.context.provider import ContextProvider
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.model_environment import NamedModels, find_default, load_models, prepare_model
from flowengine.agents.prompt.prompt import Subject, text_of
from flowengine.agents.prompt.question_files import files_of
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.settings import check_share, is_settled_late
from flowengine.agents.tools.tool import Tool
from flowengine.core.argument_kinds import check_arguments
from flowengine.core.batching import AwaitsAnswer
from flowengine.core.context import Context, EvaluationResult, NodeResult
from flowengine.core.records import AwaitsPerson, Decided
from flowengine.core.run_scope import RunScope
from flowengine.core.user_code import USER_CODE
from flowengine.core.values import find_label
from flowengine.engine.graph import FALLBACK
from flowengine.engine.ports import Ended, Park
from flowengine.errors import DefinitionError, OutputError, RouteError, RunError, did_you_mean, refuse_other_kind
from flowengine.models.model import Model
from flowengine.models.open import DefaultModel
from flowengine.nodes.code_digest import digest_handed
from flowengine.nodes.gateway import asking_gateway_of, telling_gateway_of
from flowengine.nodes.node import FlowNode, NodeSettings, Value

if TYPE_CHECKING:
    from flowengine.agents.typed_contexts.typed import TypedContext

__all__ = [
    "AgentNode",
    "AskingNode",
    "EvaluationNode",
    "RoutingNode",
    "Templated",
    "contexts_of",
    "keeps_talk",
    "node_of_agent",
    "providers_of",
]

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
        chosen, stand_in = agent.settings.model, agent.settings.surroundings.stand_in
        return (stand_in or chosen or "") if isinstance(chosen, str | None) else chosen.name

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
            from flowengine.agents.tools.mcp.server_clients import check_library  # Most agents name no server.
            from flowengine.agents.tools.mcp.server_settings import header_values

            check_library()
            for server in agent.tooling.servers:
                header_values(server, agent.settings.surroundings.environ)
        for provider in () if agent.sources is None else agent.sources.providers:
            provider.prepare_models(NamedModels(agent.settings.surroundings))
    prepare_model(agent.settings, has_tools=isinstance(agent, Agent) and agent.may_call_tools)


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


class AgentNode(AskingNode):
    """Runs an agent on its prompt; `agent` may be worked out from the context (templated instructions).

    Without a `prompt` the user input is `result`, and in a first node the sole input's value
    (several inputs: as JSON). Where the agent routes, `targets` says which node a label leads to.
    """

    kind: ClassVar[str] = "agent"

    def __init__(
        self,
        agent: Agent | Templated[Agent],
        *,
        prompt: Value | None = None,
        shared_prompt: Value | None = None,
        attach: Value | None = None,
        targets: Mapping[str, str | None] | None = None,
        fallback: str | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        """`fallback`: the node for an answer without a usable route; `settings`: see `FlowNode`.

        `attach`: the files that the model sees with the prompt, one or a list.

        A node with `retry` takes no agent with tools that are `external` (rule 18): it would repeat their deeds.
        What servers have is known, and refused, once they run: before the first node of the run.
        """
        refuse_other_kind(agent, (Agent, Templated), "an AgentNode asks an Agent", DefinitionError)
        check_arguments(AgentNode.__init__, locals())
        super().__init__(**settings)
        self._repeats = self.retry is not None and self.retry.attempts > 1
        self.agent = agent
        if self._repeats:
            _refuse_external(tool for each in self.prototype.tooling.sets for tool in each.tools)
        self.prompt = prompt
        self.shared_prompt = shared_prompt
        self.attach = attach
        self._lead(targets or {}, fallback)

    @property
    def prototype(self) -> Agent:
        return prototype_of(self.agent)

    @property
    def evaluates(self) -> bool:
        return self.prototype.evaluator is not None

    @property
    def chooses(self) -> bool:
        return self.prototype.router is not None

    @property
    def remark(self) -> str:
        return "asks a person" if self.prototype.tooling.asks else ""

    @property
    def adds_up(self) -> Sequence[str]:
        from flowengine.agents.typed_contexts.manager import CHANGES_OF  # Few agents have typed contexts.

        return [f"{CHANGES_OF}{each.id}" for each in contexts_of([self]) if each.merge == "changes"]

    @property
    def checks_servers(self) -> bool:
        return self._repeats and bool(self.prototype.tooling.servers)

    async def check_servers(self, path: str, scope: RunScope) -> None:
        from flowengine.agents.tools.mcp.server_clients import serve  # Most agents name no server.

        agent = self.prototype
        with naming(agent.name):
            try:
                served = await serve(
                    agent.tooling.servers, scope, environ=agent.settings.surroundings.environ, ahead=True
                )
            except RunError:
                return  # A server that does not start now is told of by the node, if that runs.
            _refuse_external((tool for each in served.sets for tool in each.tools), node=path)

    async def _ask(self, context: Context) -> NodeResult:
        with USER_CODE:
            agent = self.agent if isinstance(self.agent, Agent) else self.agent(context)
            asked = user_input(context) if self.prompt is None else text_of(self.prompt(context))
            attachments = () if self.attach is None else files_of(self.attach(context))
            shared = "" if self.shared_prompt is None else text_of(self.shared_prompt(context))
        words, approvers = agent.words if agent.may_call_tools else None, agent.tooling.rules.approvers
        if is_settled_late(agent.generation, agent.improvement):
            gateway = asking_gateway_of(context, words, approvers)
        else:
            gateway = telling_gateway_of(context, words, approvers, is_last=agent.ends_with_answer)
        result, prompt, evaluation, routing, kept = await agent.respond(
            asked,
            earlier=context.messages,
            gateway=gateway,
            scope=context.runtime.scope,
            kept=None if agent.sources is None else context.runtime.kept,
            recorded=() if agent.sources is None else context.runtime.recorded,
            admit=partial(_refuse_external, node=context.current_node) if self._repeats else None,
            attachments=attachments,
            shared=shared,
        )
        route = None if routing is None else choose_label(routing.next_route, self._routes, self._fallback)
        if route is not None:
            context.runtime.note_with_next(Decided("route", route, among=tuple(self._routes)))
        return NodeResult(
            output=result.content,
            result=result,
            routing=routing,
            route=route,
            evaluation=evaluation,
            prompt=prompt,
            generation=result.content,
            kept=kept,
        )

    @property
    def code(self) -> Sequence[Any]:
        agent = self.prototype
        tools = [tool.function or tool.run for each in agent.tooling.sets for tool in each.tools]
        guardrails = (*agent.generation.input_guardrails, *agent.generation.output_guardrails)
        kept = None if agent.sources is None else agent.sources.contexts
        contexts = [] if kept is None else [type(each) for each in kept.context_list]
        improving = () if agent.improvement is None else (agent.improvement.callback,)
        return [*tools, *guardrails, *contexts, *(each for each in improving if each is not None)]

    def identity(self) -> Sequence[Any]:
        agent, values = self.prototype, (self.prompt, self.shared_prompt, self.attach)
        generation, shape = agent.generation, agent.generation.shape
        sources = () if agent.sources is None else agent.sources.names()
        improving = (
            None if agent.improvement is None else (agent.improvement.max_iterations, agent.improvement.patience)
        )
        return (
            *(agent.name, generation.instructions, generation.system_message, None if shape is None else shape.schema),
            *(_asked_with(agent), _judged_with(agent.evaluator), _routed_with(agent.router)),
            *([*agent.tooling.names()], [*sources], improving, values, self._fallback),
        )


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
            subject = _subject(context, self.target, self.attach)
        routing = await agent.route(subject, asking_gateway_of(context))
        label = choose_label(routing.next_route, self._routes, self._fallback)
        context.runtime.note_with_next(Decided("route", label, among=tuple(self._routes)))
        return NodeResult(output=routing, routing=routing, route=label)

    def identity(self) -> Sequence[Any]:
        return (_routed_with(self.prototype), self.target, self.attach, self._fallback)


class EvaluationNode(AskingNode):
    """Scores the last generation (or `target`) with an evaluation agent or a scorer in code.

    `judge` is an agent (or makes one from the context); `scorer(content) -> float | EvaluationResult`
    is code, sync or async. `passes` and `fails` are the nodes of its two routes.
    """

    kind: ClassVar[str] = "evaluation"
    sees_all = False

    def __init__(
        self,
        judge: EvaluationAgent | Templated[EvaluationAgent] | None = None,
        *,
        scorer: Callable[[Any], Any] | None = None,
        threshold: float = 0.7,
        passes: str | None = None,
        fails: str | None = None,
        target: Value | None = None,
        attach: Value | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        """Give `judge` or `scorer`; `threshold` is for a scorer in code. `settings`: see `FlowNode`."""
        check_arguments(EvaluationNode.__init__, locals())
        super().__init__(**settings)
        if (judge is None) == (scorer is None):
            raise DefinitionError("an evaluation node takes either a judge (an agent) or a scorer (code)")
        self.judge = judge
        self.scorer = scorer
        self.threshold = check_share("threshold", threshold)
        self.target = target
        self.attach = attach
        self._routes = {"pass": passes, "fail": fails}

    @property
    def prototype(self) -> EvaluationAgent | None:
        return None if self.judge is None else prototype_of(self.judge)

    @property
    def evaluates(self) -> bool:
        return True

    async def _ask(self, context: Context) -> NodeResult:
        given = None
        if self.scorer is not None:
            with USER_CODE:
                handed = self.handed(context)
                given = digest_handed(context, handed)
                answer = self.scorer(handed["content"])
                answer = await answer if isawaitable(answer) else answer
            evaluation = _score_of(answer, handed["content"], self.threshold)
        else:
            assert self.judge is not None  # There is no scorer.
            with USER_CODE:
                judge = self.judge if isinstance(self.judge, EvaluationAgent) else self.judge(context)
                subject = _subject(context, self.target, self.attach)
            evaluation = await judge.evaluate(subject, asking_gateway_of(context))
        route = "pass" if evaluation.passed else "fail"
        context.runtime.note_with_next(Decided("evaluation", route, (self._explain(evaluation),), tuple(self._routes)))
        return NodeResult(output=evaluation, evaluation=evaluation, route=route, given=given)

    def _explain(self, evaluation: EvaluationResult) -> Mapping[str, Any]:
        threshold = self.threshold if self.prototype is None else self.prototype.pass_threshold
        values = {"score": f"{evaluation.score:g}"}
        return {"expression": f"score >= {threshold:g}", "values": values, "answer": evaluation.passed}

    def handed(self, context: Context) -> Mapping[str, Any]:
        return {"content": _subject(context, self.target).content}

    @property
    def code(self) -> Sequence[Any]:
        return () if self.scorer is None else (self.scorer,)

    def identity(self) -> Sequence[Any]:
        return (self.threshold, _judged_with(self.prototype), self.target, self.attach)


def _asked_with(agent: Agent | RoutingAgent | EvaluationAgent) -> Sequence[Any]:
    chosen = agent.settings
    return (_model_name(chosen.model), chosen.temperature, chosen.max_tokens, dict(chosen.extra))


def _judged_with(judge: EvaluationAgent | None) -> Sequence[Any]:
    if judge is None:
        return ()
    return (_asked_with(judge), judge.instructions, dict(judge.criteria), judge.pass_threshold)


def _routed_with(router: RoutingAgent | None) -> Sequence[Any]:
    return () if router is None else (_asked_with(router), router.instruction, dict(router.routes))


def _model_name(model: str | Model | None) -> str:
    """The model as fingerprints have it: the same in every process."""
    return str(model) if model is None or isinstance(model, str) else f"{model.provider}/{model.name}"


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
    found = type(cast(Any, agent)).__name__
    raise DefinitionError(f"a flow is made of nodes and agents, found {found}; wrap a function in FunctionNode")


def _find_steps(form: str, routes: Iterable[str], step: str, steps: Collection[str]) -> Mapping[str, str]:
    """Route → the step of that name. `form`: how a node with other targets is written."""
    lost = [label for label in routes if label not in steps]
    if lost:
        targets = {label: label if label in steps else None for label in routes}
        leads = (
            f"routes {', '.join(lost)} of step '{step}' lead" if lost[1:] else f"route {lost[0]} of step '{step}' leads"
        )
        raise DefinitionError(
            f"the {leads} to no step{did_you_mean(lost[0], steps)}; give a step that name, or say where each leads: "
            f"{form.format(targets)}"
        )
    return {label: label for label in routes}


def _refuse_external(tools: Iterable[Tool], node: str | None = None) -> None:
    """A node that is run again must not do a second deed in the world (rule 18). `node`: it runs already."""
    external = next((tool.name for tool in tools if tool.effect == "external"), None)
    if external is None:
        return
    told = f"the tool '{external}' is external, so"
    if node is None:
        raise DefinitionError(f"{told} a node that may call it takes no `retry`")
    raise DefinitionError(
        f"{told} node '{node}', which may call it, must not be run again: give the node `retry: {{attempts: 1}}` "
        f"(without one it has that of `defaults`), or leave the tool out, one of a server with its `allow`; "
        f"what a server says of its tools counts with `trust_hints: true`"
    )


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


def _subject(context: Context, target: Value | None, attach: Value | None = None) -> Subject:
    """Returns the judged or routed text: the target, else the last generation, else the `result` or the input."""
    chosen = None if target is None else target(context)
    received = None
    if chosen is None and "_last_generation" not in context.shared_state:
        received = user_input(context)  # Not read before it is needed: `result` may be ambiguous.
    subject = subject_of(context, received, chosen)
    return subject if attach is None else subject._replace(attachments=files_of(attach(context)))


def _score_of(answer: Any, content: Any, threshold: float) -> EvaluationResult:
    if isinstance(answer, EvaluationResult):
        return answer
    if isinstance(answer, int | float) and not isinstance(answer, bool) and 0.0 <= answer <= 1.0:
        return EvaluationResult(content=content, score=answer, passed=answer >= threshold)
    raise OutputError(f"a scorer returns a number from 0.0 to 1.0 or an EvaluationResult, found {answer!r:.60}")
