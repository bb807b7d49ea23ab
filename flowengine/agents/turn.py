"""One turn of an agent: from the prompt to the result that it stands by.

It knows how a draft is made, judged and improved, and what an `LLMResult` tells about that. The
context, guardrails and routing are the agent's matter; when to stop improving is orchestration's.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, NamedTuple, cast

from flowengine.agents.caller import Caller
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.orchestration import Attempt, Draft, improve, judged
from flowengine.agents.prompt import Subject, guidance, improvement_messages, prompt_text, text_of
from flowengine.agents.settings import Improvement, ImprovementCallback
from flowengine.agents.structured import Shape
from flowengine.context import EvaluationResult, LLMResult
from flowengine.errors import RunError
from flowengine.llm.messages import Message
from flowengine.llm.model import Model

__all__ = ["Outcome", "Turn"]


class Outcome(NamedTuple):
    """What an agent answers in the end."""

    result: LLMResult
    prompt: str
    """The prompt that this result answers, an improvement's included."""
    evaluation: EvaluationResult | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one run of an agent works with."""

    caller: Caller
    shape: Shape | None
    evaluator: EvaluationAgent | None
    improvement: Improvement | None
    """None outside orchestration mode."""
    stand_in: str | Model | None
    """A model that, for this run, takes the place of the judge's and the router's own as well; None for theirs."""

    async def draft(self, messages: tuple[Message, ...], purpose: str = "generation") -> Draft:
        return Draft(messages, await self.caller.answer(messages, self.shape, purpose))

    async def outcome(self, draft: Draft) -> Outcome:
        """The draft as it is, judged, or improved, whatever is set."""
        if self.evaluator is None:
            return _outcome(draft, None, draft.answer.calls)
        if self.improvement is not None:
            return await self._improved(draft, self.evaluator, self.improvement)
        attempt = await judged(draft, lambda each: self._judge(each, draft), 1, self.caller.gateway)
        return _outcome(draft, attempt.evaluation, draft.answer.calls)

    async def _improved(self, first: Draft, evaluator: EvaluationAgent, improvement: Improvement) -> Outcome:
        async def guide(attempt: Attempt) -> str:
            if improvement.callback is not None:
                text = await _advice(improvement.callback, attempt)
                return self.caller.words("improvement.callback", text=text)
            return guidance(self.caller.words, attempt.evaluation, evaluator.pass_threshold)

        async def generate(draft: Draft, task: str) -> Draft:
            messages = improvement_messages(first.messages, text_of(draft.answer.value), task)
            return await self.draft(messages, "improvement")

        progress, verdict = await improve(
            first,
            judge=lambda draft: self._judge(draft, first),
            guide=guide,
            generate=generate,
            max_iterations=improvement.max_iterations,
            gateway=self.caller.gateway,
        )
        best = progress.best
        return _outcome(best.draft, best.evaluation, progress.calls, rounds=progress.rounds, stopped=verdict)

    async def _judge(self, draft: Draft, first: Draft) -> EvaluationResult:
        # Every attempt is judged against the first prompt, so that their scores can be compared.
        assert self.evaluator is not None, "asked for with an evaluator only"
        subject = Subject(draft.answer.value, prompt_text(first.messages))
        return await self.evaluator.evaluate(subject, self.caller.gateway, model=self.stand_in)


async def _advice(callback: ImprovementCallback, attempt: Attempt) -> str:
    """What the user's callback says about an attempt; it is foreign code, so whatever it raises is caught."""
    result = _outcome(attempt.draft, attempt.evaluation, attempt.draft.answer.calls).result
    try:
        given = callback(result, attempt.evaluation)
        text = await given if isawaitable(given) else given
    except Exception as error:
        raise RunError(f"improvement_callback failed: {type(error).__name__}: {error}") from error
    if not text or not isinstance(cast(Any, text), str):
        raise RunError(f"improvement_callback must return the guidance as text, not {text!r}")
    return text


def _outcome(draft: Draft, evaluation: EvaluationResult | None, attempts: int, **facts: Any) -> Outcome:
    result = LLMResult(
        content=draft.answer.value,
        metadata={**draft.answer.metadata(), **facts},
        evaluation_score=None if evaluation is None else evaluation.score,
        attempts=attempts,
    )
    return Outcome(result, prompt_text(draft.messages), evaluation)
