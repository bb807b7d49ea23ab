"""One turn of an agent: from the prompt to everything that it has to tell.

It knows the order of the steps: draft, judge, improve, guard, route, remember. The context is the
agent's matter, when to stop improving is orchestration's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from flowengine.agents.caller import Caller
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.gateway import StreamingGateway
from flowengine.agents.guardrails import check_guardrails
from flowengine.agents.orchestration import Attempt, Draft, improve, judged
from flowengine.agents.prompt import Subject, exchange, guidance, improvement_messages, prompt_text, text_of
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.settings import Generation, Improvement, ImprovementCallback, settles_late
from flowengine.agents.structured import Answer
from flowengine.agents.tool_loop import Asked
from flowengine.context import Context, EvaluationResult, LLMResult, RoutingResult
from flowengine.errors import RunError
from flowengine.foreign import describe_error
from flowengine.llm.messages import Message
from flowengine.llm.model import Model, Reply
from flowengine.records import Notice

if TYPE_CHECKING:
    from flowengine.agents.material import Material

__all__ = ["Response", "Turn"]


class Response(NamedTuple):
    """All that one run of an agent has to tell."""

    result: LLMResult
    """Its content is what becomes `_last_generation`."""
    prompt: str
    """What the result answers, as one text (`_last_prompt`): an improvement's prompt where that was the best."""
    evaluation: EvaluationResult | None = None
    routing: RoutingResult | None = None
    kept: Mapping[str, Any] | None = None
    """What providers and typed contexts keep for the later nodes of a run (`NodeResult.kept`)."""

    def added_to(self, context: Context) -> Context:
        """The context with what the agent has to add; what it does not set stays as it was."""
        state = {**context.shared_state, "_last_prompt": self.prompt, "_last_generation": self.result.content}
        changes: dict[str, Any] = {"result": self.result, "shared_state": state}
        if self.evaluation is not None:
            changes["evaluation_result"] = self.evaluation
        if self.routing is not None:
            changes["routing_result"] = self.routing
        return context.with_(**changes)


class Turn(NamedTuple):
    """What one run of an agent works with."""

    input_text: str
    messages: tuple[Message, ...]
    caller: Caller
    generation: Generation
    evaluator: EvaluationAgent | None
    improvement: Improvement | None
    """None outside orchestration mode."""
    router: RoutingAgent | None
    stand_in: str | Model | None
    """A model that, for this run, takes the place of the judge's and the router's own as well; None for theirs."""
    material: Material | None = None
    """What the prompt was drawn from beside the agent's own texts; None where there is no more than these."""

    async def respond(self) -> Response:
        try:
            return await self._finish(await self._draft(self.messages, "generation"))
        except RunError as error:
            await self._failed(error)
            raise

    async def pieces(self, gateway: StreamingGateway) -> AsyncGenerator[str | Response]:
        """The answer piece by piece and then the response; in one piece where it is settled only in the end."""
        try:
            async with aclosing(self._pieces(gateway)) as pieces:
                async for piece in pieces:
                    yield piece
        except RunError as error:
            await self._failed(error)
            raise

    async def _failed(self, error: RunError) -> None:
        if self.material is not None:
            await self.material.failed(self.input_text, error)

    async def _pieces(self, gateway: StreamingGateway) -> AsyncGenerator[str | Response]:
        if settles_late(self.generation, self.improvement):
            response = await self._finish(await self._draft(self.messages, "generation"))
            yield text_of(response.result)
            yield response
            return
        loop, (reply, added) = self.caller.loop(), Asked(Reply(""), ())
        request = self.caller.request(self.messages)
        async with aclosing(loop.stream(gateway, self.caller.model, request, purpose="generation")) as source:
            async for piece in source:
                if isinstance(piece, Asked):
                    reply, added = piece
                else:
                    yield piece
        answer = Answer(reply.content, reply, 1, added)
        if not reply.content.strip():
            again = await self.caller.answer((*self.messages, *added), None, "generation", loop)
            answer = again._replace(added=(*added, *again.added))
            yield text_of(answer.value)
        yield await self._finish(Draft(self.messages, answer, answer.exchange))

    async def _draft(self, messages: tuple[Message, ...], purpose: str, before: tuple[Message, ...] = ()) -> Draft:
        """`before`: what passed between model and tools for earlier drafts."""
        answer = await self.caller.answer(messages, self.generation.shape, purpose)
        return Draft(messages, answer, (*before, *answer.exchange))

    async def _finish(self, draft: Draft) -> Response:
        """Everything after the first generation. What is refused is neither routed nor remembered."""
        response = await self._evaluated(draft)
        content, metadata = response.result.content, response.result.metadata
        if metadata["finish_reason"] == "length":
            await self.caller.gateway.note(Notice("the answer was cut off: it reached the limit of max_tokens"))
        if self.generation.output_guardrails:
            await check_guardrails(self.generation.output_guardrails, "output", content)
        if self.router is not None:
            subject = Subject(content, response.prompt)
            routing = await self.router.route(subject, self.caller.gateway, model=self.stand_in)
            response = response._replace(routing=routing)
        if self.generation.history is not None:
            self.generation.history.append(exchange(self.caller.words, self.input_text, text_of(content)))
        if self.material is not None:
            response = response._replace(kept=await self.material.finished(self.input_text, response.result))
        return response

    async def _evaluated(self, draft: Draft) -> Response:
        """The draft as it is, judged, or improved, whatever is set."""
        if self.evaluator is None:
            return _response(draft, None, draft.answer.calls)
        if self.improvement is not None:
            return await self._improved(draft, self.evaluator, self.improvement)
        attempt = await judged(draft, lambda each: self._judge(each, draft), 1, self.caller.gateway)
        return _response(draft, attempt.evaluation, draft.answer.calls)

    async def _improved(self, first: Draft, evaluator: EvaluationAgent, improvement: Improvement) -> Response:
        async def guide(attempt: Attempt) -> str:
            if improvement.callback is not None:
                text = await _advice(improvement.callback, attempt)
                return self.caller.words("improvement.callback", text=text)
            return guidance(self.caller.words, attempt.evaluation, evaluator.pass_threshold)

        async def generate(draft: Draft, task: str) -> Draft:
            # With all that the tools have said: an improvement need not call them again.
            known = (*first.messages, *draft.exchange)
            messages = improvement_messages(known, text_of(draft.answer.value), task)
            return await self._draft(messages, "improvement", draft.exchange)

        progress, verdict = await improve(
            first,
            judge=lambda draft: self._judge(draft, first),
            guide=guide,
            generate=generate,
            max_iterations=improvement.max_iterations,
            gateway=self.caller.gateway,
        )
        best = progress.best
        return _response(best.draft, best.evaluation, progress.calls, rounds=progress.rounds, stopped=verdict)

    async def _judge(self, draft: Draft, first: Draft) -> EvaluationResult:
        # Every attempt is judged against the first prompt, so that their scores can be compared.
        assert self.evaluator is not None, "asked for with an evaluator only"
        subject = Subject(draft.answer.value, prompt_text(first.messages))
        return await self.evaluator.evaluate(subject, self.caller.gateway, model=self.stand_in)


async def _advice(callback: ImprovementCallback, attempt: Attempt) -> str:
    """What the user's callback says about an attempt; it is foreign code, so whatever it raises is caught."""
    result = _response(attempt.draft, attempt.evaluation, attempt.draft.answer.calls).result
    try:
        given = callback(result, attempt.evaluation)
        text = await given if isawaitable(given) else given
    except Exception as error:
        raise RunError(f"improvement_callback failed: {describe_error(error)}") from error
    if not text or not isinstance(cast(Any, text), str):
        raise RunError(f"improvement_callback must return the guidance as text, not {text!r}")
    return text


def _response(draft: Draft, evaluation: EvaluationResult | None, attempts: int, **facts: Any) -> Response:
    result = LLMResult(
        content=draft.answer.value,
        metadata={**draft.answer.metadata(), **facts},
        evaluation_score=None if evaluation is None else evaluation.score,
        attempts=attempts,
    )
    return Response(result, prompt_text(draft.messages), evaluation)
