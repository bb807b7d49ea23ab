"""The agent: one generation with what surrounds it, from guardrails to routing.

It knows the order of the steps and what of them goes into the context. Prompts, calls, judging,
improving and routing are other modules' matter, and each has its settings from here: the flat
arguments of `Agent` are a front for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any, cast

from flowengine.agents.caller import Caller, naming, open_caller
from flowengine.agents.catalogue import catalogue
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.guardrails import check_guardrails
from flowengine.agents.orchestration import Attempt, Draft, Verdict, improve, judged
from flowengine.agents.prompt import (
    Subject,
    exchange,
    generation_messages,
    guidance,
    improvement_messages,
    prompt_text,
    text_of,
)
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.settings import (
    CallSettings,
    Generation,
    Guardrail,
    Improvement,
    ImprovementCallback,
    ModelChoice,
    arguments_of,
    call_settings,
    check_share,
)
from flowengine.agents.structured import OutputModel, shape_of
from flowengine.agents.sync import run_sync
from flowengine.context import Context, EvaluationResult, LLMResult
from flowengine.errors import DefinitionError, RunError
from flowengine.llm.messages import Message, from_dict
from flowengine.llm.model import Model
from flowengine.records import Gateway

__all__ = ["Agent"]


class Agent:
    """Generates with a model; judges, improves and routes what it generated where that is set.

    >>> from flowengine.llm.scripted import ScriptedModel
    >>> agent = Agent("greeter", "Greet the user.", model=ScriptedModel(["Hello, Ann!"]))
    >>> context = agent.run("I am Ann")
    >>> str(context.result)
    'Hello, Ann!'
    >>> print(context.shared_state["_last_prompt"])
    Greet the user.
    <BLANKLINE>
    User input: I am Ann
    """

    def __init__(
        self,
        name: str,
        generation_instructions: str,
        *,
        model: ModelChoice = None,
        temperature: float | None = 0.7,
        max_tokens: int | None = None,
        timeout: float = 120.0,
        system_message: str | None = None,
        max_retries: int = 3,
        output_model: OutputModel | None = None,
        orchestration_mode: bool = False,
        evaluation_instructions: str | None = None,
        evaluation_criteria: Mapping[str, str] | None = None,
        evaluation_model: ModelChoice = None,
        evaluation_threshold: float = 0.7,
        max_improvement_iterations: int = 3,
        improvement_callback: ImprovementCallback | None = None,
        routing_instruction: str | None = None,
        routes: Mapping[str, str] | None = None,
        fallback: str | None = None,
        min_confidence: float | None = None,
        fallbacks: Sequence[str | Model] = (),
        input_guardrails: Sequence[Guardrail] = (),
        output_guardrails: Sequence[Guardrail] = (),
        session_history: list[str] | None = None,
        history_size: int = 10,
        locale: str = "en",
        **options: Any,
    ) -> None:
        """Settings of the parts, checked here; no model is looked for before the first run.

        - `model`: a name or a model; None for the default one. `fallbacks` are asked in turn after it.
        - `orchestration_mode`: judge and improve up to `max_improvement_iterations` times. Without it,
          `evaluation_instructions` or `evaluation_criteria` ask for one evaluation.
        - `evaluation_threshold`: the score, 0.0–1.0, from which a generation passes.
        - `routing_instruction` with `routes` (label → description): choose a route in the end;
          `fallback` and `min_confidence` as in `RoutingAgent`.
        - `session_history`: a list that the caller owns. Its newest `history_size` entries enter the
          prompt, and each exchange is appended to it. Without one the agent remembers nothing.
        - `options`: further keyword arguments of the model call.
        """
        with naming(name):
            self.name = name
            self.words = catalogue(locale)
            self.settings: CallSettings = call_settings(
                arguments_of(Agent),
                options,
                model=model,
                fallbacks=tuple(fallbacks),
                temperature=temperature,
                max_tokens=max_tokens,
                timeout=timeout,
                max_retries=max_retries,
            )
            self.generation = Generation(
                instructions=generation_instructions,
                system_message=system_message or "",
                shape=None if output_model is None else shape_of(output_model),
                input_guardrails=tuple(input_guardrails),
                output_guardrails=tuple(output_guardrails),
                history=session_history,
                history_size=history_size,
            )
            self.improvement = Improvement(max_improvement_iterations, improvement_callback)
            if improvement_callback is not None and not orchestration_mode:
                raise DefinitionError("improvement_callback is used in orchestration mode only: set orchestration_mode")
            self.orchestration_mode = orchestration_mode
            check_share("evaluation_threshold", evaluation_threshold)

        shared: dict[str, Any] = {
            "max_retries": max_retries,
            "timeout": timeout,
            "fallbacks": tuple(fallbacks),
            "locale": locale,
            **options,
        }
        self.evaluator: EvaluationAgent | None = None
        if orchestration_mode or evaluation_instructions or evaluation_criteria:
            self.evaluator = EvaluationAgent(
                f"{name}.evaluation",
                evaluation_instructions,
                evaluation_criteria,
                evaluation_threshold,
                model=evaluation_model or model,
                **shared,
            )
        self.router = _router(name, routing_instruction, routes, fallback, min_confidence, model=model, **shared)

    async def run_async(
        self,
        input_text: str,
        context: Context | None = None,
        *,
        gateway: Gateway | None = None,
        **options: Any,
    ) -> Context:
        """Answer, and return a new context with the `result` (an `LLMResult`).

        `options` are for the generation calls of this run: `temperature`, `max_tokens`, `timeout`,
        what else the vendor takes; and `model`, which then stands for every model of the agent.
        """
        found = Context() if context is None else context
        with naming(self.name):
            await check_guardrails(self.generation.input_guardrails, "input", input_text)
            caller = await open_caller(self.settings.changed(options), gateway, self.words)
            draft = await self._draft(caller, self.messages(input_text, found), "generation")
            return await self._finish(draft, input_text, found, caller, _model_of(options))

    def run(self, input_text: str, context: Context | None = None, **options: Any) -> Context:
        """`run_async` for synchronous code, inside or outside a running event loop."""
        return run_sync(lambda: self.run_async(input_text, context, **options))

    def messages(self, input_text: str, context: Context) -> tuple[Message, ...]:
        """The prompt for an input, without a model being asked."""
        return generation_messages(
            self.words,
            input_text,
            system_message=self.generation.system_message,
            instructions=self.generation.instructions,
            history=self.generation.recent(),
            earlier=[each if isinstance(each, Message) else from_dict(each) for each in context.messages],
        )

    async def _draft(self, caller: Caller, messages: tuple[Message, ...], purpose: str) -> Draft:
        return Draft(messages, await caller.answer(messages, self.generation.shape, purpose))

    async def _finish(
        self, draft: Draft, input_text: str, context: Context, caller: Caller, choice: dict[str, Any]
    ) -> Context:
        """Everything after the first generation: judge, improve, guard, route, remember."""
        draft, evaluation, facts = await self._evaluated(draft, caller, choice)
        result = _result(draft, evaluation, facts)
        await check_guardrails(self.generation.output_guardrails, "output", result.content)
        prompt = prompt_text(draft.messages)
        changes: dict[str, Any] = {
            "result": result,
            "shared_state": {**context.shared_state, "_last_prompt": prompt, "_last_generation": result.content},
        }
        if evaluation is not None:
            changes["evaluation_result"] = evaluation
        if self.router is not None:
            changes["routing_result"] = await self.router.route(
                Subject(result.content, prompt), caller.gateway, **choice
            )
        if self.generation.history is not None:
            self.generation.history.append(exchange(self.words, input_text, text_of(result.content)))
        return context.with_(**changes)

    async def _evaluated(
        self, draft: Draft, caller: Caller, choice: dict[str, Any]
    ) -> tuple[Draft, EvaluationResult | None, dict[str, Any]]:
        """The draft to hand back, its evaluation, and what to tell about the way there."""
        evaluator = self.evaluator
        if evaluator is None:
            return draft, None, {"attempts": draft.answer.calls}
        prompt = prompt_text(draft.messages)

        async def judge(each: Draft) -> EvaluationResult:
            # Every attempt is judged against the first prompt, so that their scores can be compared.
            return await evaluator.evaluate(Subject(each.answer.value, prompt), caller.gateway, **choice)

        async def generate(each: Draft, task: str) -> Draft:
            messages = improvement_messages(draft.messages, text_of(each.answer.value), task)
            return await self._draft(caller, messages, "improvement")

        if not self.orchestration_mode:
            attempt = await judged(draft, judge, 1, caller.gateway)
            return draft, attempt.evaluation, {"attempts": draft.answer.calls}
        progress, verdict = await improve(
            draft,
            judge=judge,
            guide=self._guide,
            generate=generate,
            max_iterations=self.improvement.max_iterations,
            gateway=caller.gateway,
        )
        return progress.best.draft, progress.best.evaluation, _facts(progress.calls, progress.rounds, verdict)

    async def _guide(self, attempt: Attempt) -> str:
        """The task of the next try, from the user's callback where there is one."""
        callback = self.improvement.callback
        if callback is None:
            assert self.evaluator is not None, "only a judged attempt is improved"
            return guidance(self.words, attempt.evaluation, self.evaluator.pass_threshold)
        result = _result(attempt.draft, attempt.evaluation, {"attempts": attempt.draft.answer.calls})
        try:
            given = callback(result, attempt.evaluation)
            text = await given if isawaitable(given) else given
        except Exception as error:
            raise RunError(f"improvement_callback failed: {type(error).__name__}: {error}") from error
        if not text or not isinstance(cast(Any, text), str):
            raise RunError(f"improvement_callback must return the guidance as text, not {text!r}")
        return self.words("improvement.callback", text=text)


def _router(
    name: str,
    instruction: str | None,
    routes: Mapping[str, str] | None,
    fallback: str | None,
    min_confidence: float | None,
    **settings: Any,
) -> RoutingAgent | None:
    """The inner router; half a definition of one is an error."""
    if instruction and routes:
        return RoutingAgent(f"{name}.routing", instruction, routes, fallback, min_confidence, **settings)
    given = {
        "routing_instruction": instruction,
        "routes": routes,
        "fallback": fallback,
        "min_confidence": min_confidence,
    }
    for argument, value in given.items():
        if value is not None:
            raise DefinitionError(f"agent '{name}': {argument} needs both routing_instruction and routes to be set")
    return None


def _model_of(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": options["model"]} if "model" in options else {}


def _facts(calls: int, rounds: int, verdict: Verdict) -> dict[str, Any]:
    return {"attempts": calls, "rounds": rounds, "stopped": verdict}


def _result(draft: Draft, evaluation: EvaluationResult | None, facts: Mapping[str, Any]) -> LLMResult:
    told = {key: value for key, value in facts.items() if key != "attempts"}
    return LLMResult(
        content=draft.answer.value,
        metadata={**draft.answer.metadata(), **told},
        evaluation_score=None if evaluation is None else evaluation.score,
        attempts=facts["attempts"],
    )
