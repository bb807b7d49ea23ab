"""Runs one turn of an agent: from the prompt to its response.

It knows the order of the steps: draft, judge, improve, guard, route, remember. What a prompt is made of is the prompt
builder's to know, when improving stops that of `evaluation`, and how a model is asked that of the caller. All questions
go through the gateway of the request, so that a turn inside a flow is on record, and a resumed one pays nothing twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from flowengine.agents.caller import Caller, naming, open_caller
from flowengine.agents.evaluation import Attempt, Draft, EvaluationAgent, improve, judge_attempt
from flowengine.agents.guardrails import check_guardrails
from flowengine.agents.model_environment import NamedModels
from flowengine.agents.prompt import (
    Subject,
    attach_files,
    chat_of,
    check_files,
    format_exchange,
    format_feedback,
    improvement_messages,
    prompt_text,
    text_of,
)
from flowengine.agents.settings import (
    CallSettings,
    Improvement,
    ImprovementCallback,
    Surroundings,
    is_settled_late,
)
from flowengine.agents.standalone import StreamingGateway
from flowengine.agents.tool_loop import ToolLoopRequest
from flowengine.agents.turn_parts import AgentParts, Response, TurnRequest
from flowengine.core import EvaluationResult, LLMResult, Notice, describe_error
from flowengine.errors import RunError
from flowengine.models import Message, Model, Reply, file_secrets

if TYPE_CHECKING:
    from flowengine.agents.prompt import PromptBuilder


class Turn(NamedTuple):
    """One run of an agent."""

    agent: AgentParts
    request: TurnRequest
    messages: tuple[Message, ...]
    caller: Caller
    prompt_builder: PromptBuilder | None = None
    """The builder of the prompt, where it has more than the agent's own texts; else None."""

    @property
    def _stand_in(self) -> str | Model | None:
        """A model that, for this run, takes the place of the judge's and the router's own as well; None for theirs."""
        return self.request.options.get("model")

    async def respond(self) -> Response:
        try:
            return await self._finish(await self._write_draft(self.messages, "generation"))
        except RunError as error:
            await self._tell_failure(error)
            raise

    async def pieces(self, gateway: StreamingGateway) -> AsyncGenerator[str | Response]:
        """The answer piece by piece and then the response; in one piece where it is settled only in the end."""
        try:
            async with aclosing(self._stream_pieces(gateway)) as pieces:
                async for piece in pieces:
                    yield piece
        except RunError as error:
            await self._tell_failure(error)
            raise

    async def _tell_failure(self, error: RunError) -> None:
        if self.prompt_builder is not None:
            await self.prompt_builder.tell_failure(self.request.input_text, error)

    async def _stream_pieces(self, gateway: StreamingGateway) -> AsyncGenerator[str | Response]:
        if is_settled_late(self.agent.generation, self.agent.improvement):
            response = await self._finish(await self._write_draft(self.messages, "generation"))
            yield text_of(response.result)
            yield response
            return
        loop, first = self.caller.loop(), ToolLoopRequest(Reply(""), ())
        request = self.caller.request(self.messages)
        async with aclosing(loop.stream(gateway, self.caller.model, request, purpose="generation")) as source:
            async for piece in source:
                if isinstance(piece, ToolLoopRequest):
                    first = piece
                else:
                    yield piece
        answer = await self.caller.answer(self.messages, None, "generation", loop, first)
        if answer.reply is not first.reply:
            yield text_of(answer.value)
        yield await self._finish(Draft(self.messages, answer, answer.exchange))

    async def _write_draft(
        self, messages: tuple[Message, ...], purpose: str, before: tuple[Message, ...] = ()
    ) -> Draft:
        """`before`: what passed between model and tools for earlier drafts."""
        answer = await self.caller.answer(messages, self.agent.generation.shape, purpose)
        return Draft(messages, answer, (*before, *answer.exchange))

    async def _finish(self, draft: Draft) -> Response:
        """Everything after the first generation. What is refused is neither routed nor remembered."""
        response = await self._evaluate(draft)
        content, metadata = response.result.content, response.result.metadata
        if metadata["finish_reason"] == "length":
            await self.caller.gateway.note(Notice("the answer was cut off: it reached the limit of max_tokens"))
        if self.agent.generation.output_guardrails:
            await check_guardrails(self.agent.generation.output_guardrails, "output", content)
        if self.agent.router is not None:
            subject = Subject(content, response.prompt)
            routing = await self.agent.router.route(subject, self.caller.gateway, model=self._stand_in)
            response = response._replace(routing=routing)
        if self.agent.generation.history is not None:
            exchange = format_exchange(self.caller.words, self.request.input_text, text_of(content))
            self.agent.generation.remember(exchange)
        if self.prompt_builder is not None:
            response = response._replace(
                kept=await self.prompt_builder.tell_answer(self.request.input_text, response.result)
            )
        return response

    async def _evaluate(self, draft: Draft) -> Response:
        """The draft as it is, judged, or improved, whatever is set."""
        if self.agent.evaluator is None:
            return _make_response(draft, None, draft.answer.calls)
        if self.agent.improvement is not None:
            return await self._improve(draft, self.agent.evaluator, self.agent.improvement)
        attempt = await judge_attempt(draft, lambda each: self._judge(each, draft), 1, self.caller.gateway)
        return _make_response(draft, attempt.evaluation, draft.answer.calls)

    async def _improve(self, first: Draft, evaluator: EvaluationAgent, improvement: Improvement) -> Response:
        async def guide(attempt: Attempt) -> str:
            if improvement.callback is not None:
                text = await _ask_callback(improvement.callback, attempt)
                return self.caller.words("improvement.callback", text=text)
            return format_feedback(self.caller.words, attempt.evaluation, evaluator.pass_threshold)

        async def generate(draft: Draft, task: str) -> Draft:
            # With all that the tools have said: an improvement need not call them again.
            earlier = (*first.messages, *draft.exchange)
            messages = improvement_messages(earlier, text_of(draft.answer.value), task)
            return await self._write_draft(messages, "improvement", draft.exchange)

        progress, verdict = await improve(
            first,
            judge=lambda draft: self._judge(draft, first),
            guide=guide,
            generate=generate,
            max_iterations=improvement.max_iterations,
            patience=improvement.patience,
            gateway=self.caller.gateway,
        )
        best = progress.best
        return _make_response(best.draft, best.evaluation, progress.calls, rounds=progress.rounds, stopped=verdict)

    async def _judge(self, draft: Draft, first: Draft) -> EvaluationResult:
        # Every attempt is judged against the first prompt, so that their scores can be compared.
        assert self.agent.evaluator is not None, "asked for with an evaluator only"
        subject = Subject(draft.answer.value, prompt_text(first.messages))
        return await self.agent.evaluator.evaluate(subject, self.caller.gateway, model=self._stand_in)


async def _ask_callback(callback: ImprovementCallback, attempt: Attempt) -> str:
    """Asks the user's callback about an attempt, and catches every exception that it raises."""
    result = _make_response(attempt.draft, attempt.evaluation, attempt.draft.answer.calls).result
    try:
        answer = callback(result, attempt.evaluation)
        text = await answer if isawaitable(answer) else answer
    except Exception as error:
        raise RunError(f"improvement_callback failed: {describe_error(error)}") from error
    if not text or not isinstance(cast(Any, text), str):
        raise RunError(f"improvement_callback must return the guidance as text, not {text!r}")
    return text


def _make_response(draft: Draft, evaluation: EvaluationResult | None, attempts: int, **facts: Any) -> Response:
    result = LLMResult(
        content=draft.answer.value,
        metadata={**draft.answer.metadata(), **facts},
        evaluation_score=None if evaluation is None else evaluation.score,
        attempts=attempts,
    )
    return Response(result, prompt_text(draft.messages), evaluation)


# --- Opening a turn


@asynccontextmanager
async def open_turn(agent: AgentParts, settings: CallSettings, request: TurnRequest) -> AsyncGenerator[Turn]:
    """All that this run needs; servers of its own end with the block."""
    async with AsyncExitStack() as stack:
        with naming(agent.name):
            await check_input(agent, request)
            surroundings = settings.surroundings
            prompt_builder = (
                await _open_builder(agent, request, surroundings) if agent.sources or agent.tooling else None
            )
            environ = surroundings.environ
            tools = agent.tooling.open(
                agent.words, environ, scope=request.scope, admit=request.admit, bringer=prompt_builder
            )
            loop = await stack.enter_async_context(tools)
            caller = await open_caller(settings, request.gateway, agent.words, loop)
            turn = turn_of(agent, request, caller)
            if prompt_builder is not None:
                turn = turn._replace(
                    messages=await _make_prompt(agent, request, prompt_builder, caller), prompt_builder=prompt_builder
                )
        yield turn


async def check_input(agent: AgentParts, request: TurnRequest) -> None:
    """Ask the agent's guardrails about the input; a refusal is a `GuardrailError`."""
    if agent.generation.input_guardrails:
        await check_guardrails(agent.generation.input_guardrails, "input", request.input_text)


def turn_of(agent: AgentParts, request: TurnRequest, caller: Caller) -> Turn:
    """The turn of an agent that draws on nothing but its own texts."""
    messages = agent.messages(request.input_text, request.earlier, request.shared)
    if request.attachments:
        check_files(caller.model, request.attachments)
        messages = attach_files(messages, request.attachments)
    return Turn(agent, request, messages, caller)


async def _open_builder(agent: AgentParts, request: TurnRequest, surroundings: Surroundings) -> PromptBuilder:
    # Imported here, with all that brings texts: most agents draw on nothing but their own.
    from flowengine.agents.prompt import open_prompt_builder
    from flowengine.agents.sources import Sources

    return await open_prompt_builder(
        agent.sources or Sources(),
        agent.name,
        agent.words,
        request.gateway,
        NamedModels(surroundings),
        request.kept,
        request.scope,
        request.recorded,
        file_secrets(surroundings.environ),
        agent.tooling.names(),
    )


async def _make_prompt(
    agent: AgentParts, request: TurnRequest, prompt_builder: PromptBuilder, caller: Caller
) -> tuple[Any, ...]:
    from flowengine.agents.prompt import PromptQuestion

    own = agent.generation
    question = PromptQuestion(
        *(request.input_text, own.system_message, own.instructions, own.recent(), chat_of(request.earlier)),
        attachments=request.attachments,
        shared=request.shared,
    )
    return await prompt_builder.prompt(question, caller)
