"""Runs an agent as a node: Context → agent → NodeResult."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Unpack

from flowengine.agents import Agent, is_settled_late, naming
from flowengine.agents.prompt import files_of, text_of
from flowengine.agents.tools import Tool
from flowengine.core import USER_CODE, Context, Decided, NodeResult, RunScope, check_arguments
from flowengine.errors import DefinitionError, RunError, refuse_other_kind
from flowengine.nodes.asking_node import (
    AskingNode,
    Templated,
    choose_label,
    identify_asking,
    identify_judge,
    identify_router,
    prototype_of,
    user_input,
)
from flowengine.nodes.gateway import asking_gateway_of, telling_gateway_of
from flowengine.nodes.node import NodeSettings, Value


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
        from flowengine.agents.typed_contexts import CHANGES_OF  # Few agents have typed contexts.

        sources = self.prototype.sources
        contexts = () if sources is None or sources.contexts is None else sources.contexts.fresh().context_list
        return [f"{CHANGES_OF}{each.id}" for each in contexts if each.merge == "changes"]

    @property
    def checks_servers(self) -> bool:
        return self._repeats and bool(self.prototype.tooling.servers)

    async def check_servers(self, path: str, scope: RunScope) -> None:
        from flowengine.agents.tools.mcp import serve  # Most agents name no server.

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
            question = user_input(context) if self.prompt is None else text_of(self.prompt(context))
            attachments = () if self.attach is None else files_of(self.attach(context))
            shared = "" if self.shared_prompt is None else text_of(self.shared_prompt(context))
        words, approvers = agent.words if agent.may_call_tools else None, agent.tooling.rules.approvers
        if is_settled_late(agent.generation, agent.improvement):
            gateway = asking_gateway_of(context, words, approvers)
        else:
            gateway = telling_gateway_of(context, words, approvers, is_last=agent.ends_with_answer)
        result, prompt, evaluation, routing, kept_values = await agent.respond(
            question,
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
            kept=kept_values,
        )

    @property
    def asks_by_default(self) -> bool:
        return self.prototype.tooling.asks

    @property
    def code(self) -> Sequence[Any]:
        agent = self.prototype
        tools = [tool.function or tool.run for each in agent.tooling.sets for tool in each.tools]
        guardrails = (*agent.generation.input_guardrails, *agent.generation.output_guardrails)
        manager = None if agent.sources is None else agent.sources.contexts
        contexts = [] if manager is None else [type(each) for each in manager.context_list]
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
            *(identify_asking(agent), identify_judge(agent.evaluator), identify_router(agent.router)),
            *([*agent.tooling.names()], [*sources], improving, values, self._fallback),
        )


def _refuse_external(tools: Iterable[Tool], node: str | None = None) -> None:
    """A node that is run again must not do a second deed in the world (rule 18). `node`: it runs already."""
    external = next((tool.name for tool in tools if tool.effect == "external"), None)
    if external is None:
        return
    beginning = f"the tool '{external}' is external, so"
    if node is None:
        raise DefinitionError(f"{beginning} a node that may call it takes no `retry`")
    raise DefinitionError(
        f"{beginning} node '{node}', which may call it, must not be run again: give the node `retry: {{attempts: 1}}` "
        f"(without one it has that of `defaults`), or leave the tool out, one of a server with its `allow`; "
        f"what a server says of its tools counts with `trust_hints: true`"
    )
