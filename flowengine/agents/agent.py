"""Defines the agent, as users make and run it.

It knows how the flat arguments become the settings of the parts, and what of a turn goes into the
context. The steps of a turn, prompts, calls, judging and routing are other modules' matter.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Unpack

from flowengine.agents.caller import context_of, naming, open_caller
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.prompt import open_files
from flowengine.agents.routing import router_of
from flowengine.agents.settings import (
    PATIENCE,
    PROCESS,
    CallSettings,
    Generation,
    Guardrail,
    Improvement,
    ImprovementCallback,
    ModelChoice,
    Surroundings,
    UsualTemperature,
    arguments_of,
    call_settings,
    check_functions,
    check_share,
)
from flowengine.agents.standalone import DirectGateway, StreamingGateway, run_sync
from flowengine.agents.structured import OutputModel, shape_of
from flowengine.agents.tool_loop import Admit
from flowengine.agents.tooling import ServerChoice, ToolChoice, tooling_of
from flowengine.agents.turn import check_input, open_turn, turn_of
from flowengine.agents.turn_parts import AgentParts, Response, TurnRequest
from flowengine.core import Context, FileValue, Gateway, RunScope, load_messages
from flowengine.errors import DefinitionError, InputError, names_arguments, refuse_other_kind
from flowengine.models import OF_GENERATING, Message, Model, ModelOptions, PromptCaching

if TYPE_CHECKING:
    from flowengine.agents.context import ContextProvider
    from flowengine.agents.skills import SkillChoice
    from flowengine.agents.skills.sandbox import Sandbox
    from flowengine.agents.sources import ContextChoice, MemoryChoice, ProviderConfig, Sources
    from flowengine.agents.typed_contexts import ContextManager

_TEMPERATURE: Final = UsualTemperature(0.7)


class Agent:
    """Generates with a model; judges, improves and routes what it generated where that is set.

    >>> from flowengine.models.scripted import ScriptedModel
    >>> agent = Agent("greeter", "Greet the user.", model=ScriptedModel(["Hello, Ann!"]))
    >>> context = agent.run("I am Ann")
    >>> str(context.result)
    'Hello, Ann!'
    >>> print(context.shared_state["_last_prompt"])
    Greet the user.
    <BLANKLINE>
    User input: I am Ann
    """

    @names_arguments
    def __init__(
        self,
        name: str,
        generation_instructions: str,
        *,
        model: ModelChoice = None,
        temperature: float | None = _TEMPERATURE,
        max_tokens: int | None = None,
        timeout: float | None = None,
        system_message: str | None = None,
        max_retries: int = 3,
        output_model: OutputModel | None = None,
        orchestration_mode: bool = False,
        evaluation_instructions: str | None = None,
        evaluation_criteria: Mapping[str, str] | None = None,
        evaluation_model: ModelChoice = None,
        evaluation_threshold: float = 0.7,
        max_improvement_iterations: int = 3,
        improvement_patience: int | None = PATIENCE,
        improvement_callback: ImprovementCallback | None = None,
        routing_instruction: str | None = None,
        routes: Mapping[str, str] | None = None,
        fallback: str | None = None,
        min_confidence: float | None = None,
        fallbacks: Sequence[str | Model] = (),
        input_guardrails: Sequence[Guardrail] = (),
        output_guardrails: Sequence[Guardrail] = (),
        tools: Sequence[ToolChoice] = (),
        mcp_servers: Sequence[ServerChoice] = (),
        approve: Sequence[str] = (),
        approvers: Sequence[str] = (),
        max_tool_rounds: int = 10,
        max_parallel_tools: int = 8,
        context_providers: Sequence[ContextProvider] = (),
        context_providers_config: ProviderConfig | None = None,
        contexts: Sequence[ContextChoice] | ContextManager = (),
        memory: MemoryChoice | None = None,
        skills: SkillChoice | None = None,
        skill_sandbox: Sandbox | None = None,
        context_budget: int | None = None,
        session_history: list[str] | None = None,
        history_size: int = 10,
        locale: str = "en",
        prompt_cache: PromptCaching | None = None,
        surroundings: Surroundings = PROCESS,
        **options: Unpack[ModelOptions],
    ) -> None:
        """Settings of the parts, checked here; no model is looked for before the first run.

        - `model`: a name or a model; None for the default one. `fallbacks` are asked in turn after it.
        - `orchestration_mode`: judge and improve up to `max_improvement_iterations` times, or until
          `improvement_patience` improvements in a row have brought no better score (None: never for that). Without it,
          `evaluation_instructions` or `evaluation_criteria` ask for one evaluation.
        - `evaluation_threshold`: the score, 0.0–1.0, from which a generation passes.
        - `routing_instruction` with `routes` (label → description): choose a route in the end;
          `fallback` and `min_confidence` as in `RoutingAgent`.
        - `tools`: functions, `Tool`s and `ToolSet`s that the model may call while it generates, and
          `mcp_servers`, started for each run (of the flow, whose agents share them): up to
          `max_tool_rounds` times in one generation, after which it answers with what it has.
          `max_parallel_tools` calls run at once.
        - `approve`: names of tools (`refund`, of a server `crm.delete` or `crm.*`) whose calls wait for a person's
          consent, which only an agent in a flow can; `approvers`: who alone may give it.
        - `context_providers`, and those of `context_providers_config` (YAML or its list), bring what stands under
          `Context:` in the prompt, in their order. `contexts` are typed contexts: their text is there too, and
          their tools are the model's. Standing alone the agent keeps them; in a flow each run has its own.
        - `memory`: a file, or settings of a `LongTermMemoryProvider`: what was said before and is near to the input.
          An agent alone keeps it at once, a flow once its run has succeeded.
        - `skills`: folders of skills, or a store; their names are in the prompt, the rest is for the model to
          load. `skill_sandbox`: where their scripts run.
        - `context_budget`: tokens that a prompt may have, by count; by default what the model's window leaves.
        - `session_history`: a list that the caller owns. Its newest `history_size` entries enter the
          prompt; each exchange is appended to it, and what is older is removed from it. Without one the agent
          remembers nothing but what the context that it is given holds.
        - `prompt_cache`: `auto` marks what stays of a prompt for the vendor's cache, `off` does not.
        - `surroundings`: where keys and servers' secrets are looked up, and what holds for the vendors.
        - `options`: of the model call: `top_p`, `seed`, `stop`, `reasoning_effort`, `verbosity`, `thinking`,
          `presence_penalty`, `frequency_penalty`, `service_tier`, `parallel_tool_calls`, and what else the vendor
          takes. Where `top_p`, `reasoning_effort` or `thinking` is said, a temperature that is not is the vendor's.
        """
        with naming(name):
            self.name = name
            self.words = load_messages(locale)
            self.settings: CallSettings = call_settings(Agent, locals())
            self.generation = Generation(
                instructions=generation_instructions,
                system_message="" if system_message is None else system_message,
                shape=None if output_model is None else shape_of(output_model),
                input_guardrails=check_functions("input_guardrails", input_guardrails),
                output_guardrails=check_functions("output_guardrails", output_guardrails),
                history=session_history,
                history_size=history_size,
            )
            self.tooling = tooling_of(
                *(tools, mcp_servers, max_tool_rounds, max_parallel_tools),
                *(approve, surroundings.approve_external, approvers),
            )
            self.sources = _sources(
                providers=context_providers,
                config=context_providers_config,
                contexts=[contexts] if not isinstance(contexts, Sequence) else contexts,
                memory=memory,
                skills=skills,
                sandbox=skill_sandbox,
                budget=context_budget,
            )
            self._check_tools()
            improvement = Improvement(max_improvement_iterations, improvement_patience, improvement_callback)
            self.improvement = _improvement(improvement, is_wanted=orchestration_mode)
            check_share("evaluation_threshold", evaluation_threshold)
        shared: dict[str, Any] = {
            "max_retries": max_retries,
            "timeout": timeout,
            "fallbacks": self.settings.fallbacks,
            "locale": locale,
            "surroundings": surroundings,
            "prompt_cache": prompt_cache,
        }
        # Options go with the model that they were given for: another one for judging gets none of them.
        call_options: dict[str, Any] = {name: value for name, value in options.items() if name not in OF_GENERATING}
        judge: dict[str, Any] = {"model": model, **call_options}
        if evaluation_model is not None:
            judge = {"model": evaluation_model}
        self.evaluator: EvaluationAgent | None = None
        if orchestration_mode or evaluation_instructions or evaluation_criteria:
            judged_by = (evaluation_instructions, evaluation_criteria, evaluation_threshold)
            self.evaluator = EvaluationAgent(f"{name}.evaluation", *judged_by, **shared | judge)
        elif evaluation_model is not None:
            raise DefinitionError(
                f"agent '{name}': evaluation_model needs orchestration_mode, evaluation_instructions or "
                "evaluation_criteria to be set"
            )
        self.router = router_of(
            name, routing_instruction, routes, fallback, min_confidence, model=model, **shared, **call_options
        )

    async def run_async(
        self,
        input_text: str,
        context: Context | None = None,
        *,
        gateway: Gateway | None = None,
        attach: Sequence[Any] = (),
        **options: Any,
    ) -> Context:
        """Answer, and return a new context with the `result` (an `LLMResult`).

        `attach`: files that the model sees with the text: a `Path`, bytes, or a file of a run.

        The context given stays as it is; its `messages` are what the chat goes on from, and those of the new one hold
        this exchange too (not where a `session_history` or a conversation provider keeps it). `options`
        are for the generation calls of this run: `temperature`, `max_tokens`, `timeout`, what else
        the vendor takes; and `model`, which then stands in for every model of the agent.
        """
        chat = context_of(context)
        files = await open_files(attach) if attach else ()
        response = await self.respond(
            input_text, earlier=chat.messages, gateway=gateway, scope=chat.runtime.scope, attachments=files, **options
        )
        return response.added_to(chat, self._question_of_chat(input_text))

    def run(
        self, input_text: str, context: Context | None = None, *, attach: Sequence[Any] = (), **options: Any
    ) -> Context:
        """`run_async` for synchronous code, inside or outside a running event loop."""

        async def run() -> Context:
            # Not in the context's scope: this may be another event loop.
            chat = context_of(context)
            files = await open_files(attach) if attach else ()
            response = await self.respond(input_text, earlier=chat.messages, attachments=files, **options)
            return response.added_to(chat, self._question_of_chat(input_text))

        return run_sync(run)

    def _check_tools(self) -> None:
        if self.sources is None and not self.tooling.servers:
            self.tooling.check_rules(self.tooling.sets)
        if self.sources is not None and self.sources.contexts is not None:
            self.tooling.check_names(self.sources.contexts.tool_sets())

    def _question_of_chat(self, input_text: str) -> str | None:
        """The input, where the context carries the chat; None where a history or a provider of the agent's does."""
        providers = () if self.sources is None else self.sources.providers
        if self.generation.history is not None or any(each.provider_name == "conversation" for each in providers):
            return None
        return input_text

    async def respond(
        self,
        input_text: str,
        *,
        earlier: Sequence[Any] = (),
        gateway: Gateway | None = None,
        scope: RunScope | None = None,
        admit: Admit | None = None,
        kept: Mapping[str, Any] | None = None,
        recorded: Sequence[Any] = (),
        attachments: tuple[FileValue, ...] = (),
        shared: str = "",
        **options: Any,
    ) -> Response:
        """`run_async` without a context: for a caller that keeps its own state.

        `scope` holds the servers that the agents of a run share. `admit` is asked about the tools of servers
        before the model is: what it raises ends the run. `kept`: what the node's ancestors keep, in a run, in
        which providers and typed contexts begin with that; `recorded`: what an interrupted attempt of it told.
        `shared`: how the input begins in other runs of the agent too, for the vendor's cache.
        """
        refuse_other_kind(input_text, str, f"agent '{self.name}' answers a text", InputError)
        gateway = DirectGateway() if gateway is None else gateway
        opening = TurnRequest(input_text, earlier, gateway, options, scope, admit, kept, recorded, attachments, shared)
        parts = self._parts()
        with naming(self.name):
            settings = self.settings_for(options)
            if self.tooling or self.sources is not None:
                async with open_turn(parts, settings, opening) as turn:
                    return await turn.respond()
            await check_input(parts, opening)
            caller = await open_caller(settings, gateway, self.words, self.tooling.loops(self.words))
            return await turn_of(parts, opening, caller).respond()

    @property
    def may_call_tools(self) -> bool:
        """Whether its model may be offered any."""
        sources = self.sources
        brings = sources is not None and (sources.skills or (sources.contexts and sources.contexts.context_list))
        return bool(brings) or bool(self.tooling.sets or self.tooling.servers)

    @property
    def ends_with_answer(self) -> bool:
        """Whether its model's first answer is its own: nobody's code, no tool and no other question comes after it."""
        generation = self.generation
        has_more = self.sources is not None or self.may_call_tools or generation.output_guardrails or generation.shape
        return not (has_more or self.evaluator is not None or self.router is not None)

    def _parts(self) -> AgentParts:
        return AgentParts(
            self.name,
            self.words,
            self.tooling,
            self.sources,
            self.generation,
            self.evaluator,
            self.improvement,
            self.router,
        )

    def settings_for(self, options: Mapping[str, Any]) -> CallSettings:
        """The call settings of a run that is given these options."""
        return self.settings.with_options(options, arguments_of(Agent)) if options else self.settings

    def clear_context(self) -> None:
        """Have the context providers forget what they remember of the agent's interactions."""
        if self.sources is not None:
            run_sync(self.sources.clear)

    @staticmethod
    def get_context_provider_schemas() -> dict[str, dict[str, Any]]:
        """Name → schema of every context provider that there is."""
        from flowengine.agents.context import ContextProviderFactory

        return ContextProviderFactory.get_available_providers()

    @asynccontextmanager
    async def stream(
        self,
        input_text: str,
        context: Context | None = None,
        *,
        gateway: StreamingGateway | None = None,
        attach: Sequence[Any] = (),
        **options: Any,
    ) -> AsyncGenerator[AsyncIterator[str | Context]]:
        """The answer piece by piece, and last the context that `run_async` would return.

        `async with agent.stream("...") as pieces`; leaving it early cancels the call. Where the
        answer is settled only when all of it is there (an output model, orchestration mode, output
        guardrails), it comes as one piece: nothing is shown that is taken back. What a model says
        before it calls a tool is shown as it is said, with a blank line after it; it is no part of the
        result. `attach` as in `run_async`.
        """
        refuse_other_kind(input_text, str, f"agent '{self.name}' answers a text", InputError)
        chat = context_of(context)
        gateway = DirectGateway() if gateway is None else gateway
        with naming(self.name):
            settings = self.settings_for(options)
        files = await open_files(attach) if attach else ()
        request = TurnRequest(input_text, chat.messages, gateway, options, chat.runtime.scope, attachments=files)
        async with (
            open_turn(self._parts(), settings, request) as turn,
            aclosing(turn.pieces(gateway)) as pieces,
            aclosing(self._yield_public(pieces, chat, self._question_of_chat(input_text))) as public_pieces,
        ):
            yield public_pieces

    def messages(self, input_text: str, earlier: Sequence[Any] = ()) -> tuple[Message, ...]:
        """The agent's own part of the prompt for an input: nothing is asked, neither models nor providers."""
        return self._parts().messages(input_text, earlier)

    async def _yield_public(
        self, pieces: AsyncIterator[str | Response], context: Context, question: str | None
    ) -> AsyncGenerator[str | Context]:
        with naming(self.name):
            async for piece in pieces:
                yield piece.added_to(context, question) if isinstance(piece, Response) else piece


def _improvement(settings: Improvement, *, is_wanted: bool) -> Improvement | None:
    """The settings, which are checked by now, where the agent improves; a callback for nothing is an error."""
    if settings.callback is not None and not is_wanted:
        raise DefinitionError("improvement_callback is used in orchestration mode only: set orchestration_mode")
    return settings if is_wanted else None


def _sources(**arguments: Any) -> Sources | None:
    """Builds the agent's sources of context; without sources, imports none of their modules."""
    if all(each is None or (isinstance(each, list | tuple) and not each) for each in arguments.values()):
        return None
    from flowengine.agents.sources import sources_of

    return sources_of(**arguments)
