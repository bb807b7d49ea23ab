"""The judge: one structured call that scores a generation.

It knows how an answer becomes an `EvaluationResult`: the score is the model's, whether that passes
is computed here, and the content is copied from what was judged. It improves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from flowengine.agents.caller import Caller, naming, open_caller, subject_of
from flowengine.agents.prompt import Subject, evaluation_messages
from flowengine.agents.settings import CallSettings, ModelChoice, arguments_of, call_settings, check_share
from flowengine.agents.structured import Shape, UnfitError, error_lines
from flowengine.agents.surroundings import PROCESS, Surroundings
from flowengine.agents.sync import run_sync
from flowengine.catalogue import catalogue
from flowengine.context import Context, EvaluationResult, Share
from flowengine.llm.model import Model
from flowengine.records import Gateway

__all__ = ["EvaluationAgent"]


class _Judgement(BaseModel):
    """What the model says; everything else of an `EvaluationResult` is ours."""

    score: Share
    criteria_scores: dict[str, Share] = {}
    feedback: str = ""
    suggestions: list[str] = []


class EvaluationAgent:
    """Judges the last generation of a context, in one structured call.

    >>> from flowengine.llm.scripted import ScriptedModel
    >>> model = ScriptedModel([{"score": 0.9, "criteria_scores": {"short": 1.0}, "feedback": "Good"}])
    >>> judge = EvaluationAgent("judge", evaluation_criteria={"short": "Under ten words"}, model=model)
    >>> judge.run("Tea is a drink.").evaluation_result.passed
    True
    """

    def __init__(
        self,
        name: str,
        evaluation_instructions: str | None = None,
        evaluation_criteria: Mapping[str, str] | None = None,
        pass_threshold: float = 0.7,
        *,
        model: ModelChoice = None,
        temperature: float | None = 0.2,
        max_tokens: int | None = None,
        max_retries: int = 3,
        timeout: float = 120.0,
        fallbacks: Sequence[str | Model] = (),
        locale: str = "en",
        surroundings: Surroundings = PROCESS,
        **options: Any,
    ) -> None:
        """Without criteria it judges accuracy, relevance and completeness. `options` reach the model call."""
        with naming(name):
            self.name = name
            self.instructions = evaluation_instructions or ""
            self.pass_threshold = check_share("pass_threshold", pass_threshold)
            self.settings: CallSettings = call_settings(
                arguments_of(EvaluationAgent),
                options,
                model=model,
                fallbacks=tuple(fallbacks),
                temperature=temperature,
                max_tokens=max_tokens,
                timeout=timeout,
                max_retries=max_retries,
                surroundings=surroundings,
            )
            self.words = catalogue(locale)
            self.criteria = dict(evaluation_criteria or self.words.section("criteria"))
            self._shape = _judgement_shape(self.criteria)

    async def run_async(
        self,
        input_text: str | None = None,
        context: Context | None = None,
        *,
        target: Any = None,
        gateway: Gateway | None = None,
        **options: Any,
    ) -> Context:
        """The context with `evaluation_result`, which is also its `result`.

        Judged is the `target`, else the context's last generation, else the input text. `options`
        are for this call's model call (`temperature`, `model`, what else the vendor takes).
        """
        found = Context() if context is None else context
        with naming(self.name):
            subject = subject_of(found, input_text, target)
        evaluation = await self.evaluate(subject, gateway, **options)
        return found.with_(result=evaluation, evaluation_result=evaluation)

    def run(
        self, input_text: str | None = None, context: Context | None = None, *, target: Any = None, **options: Any
    ) -> Context:
        """`run_async` for synchronous code, inside or outside a running event loop."""
        return run_sync(lambda: self.run_async(input_text, context, target=target, **options))

    async def evaluate(self, subject: Subject, gateway: Gateway | None = None, **options: Any) -> EvaluationResult:
        """The judgement of one subject; an answer that stays unusable is an `OutputError`, never a pass."""
        with naming(self.name):
            settings = self.settings.changed(options, arguments_of(EvaluationAgent))
            caller = await open_caller(settings, gateway, self.words)
            return await self._judge(subject, caller)

    async def _judge(self, subject: Subject, caller: Caller) -> EvaluationResult:
        messages = evaluation_messages(self.words, subject, self.instructions, self.criteria)
        answer = await caller.answer(messages, self._shape, "evaluation")
        judgement: _Judgement = answer.value
        return EvaluationResult(
            content=subject.content,
            score=judgement.score,
            passed=judgement.score >= self.pass_threshold,
            criteria_scores={name: judgement.criteria_scores[name] for name in self.criteria},
            feedback=judgement.feedback,
            suggestions=judgement.suggestions,
            metadata={"threshold": self.pass_threshold, **answer.metadata()},
        )


def _judgement_shape(criteria: Mapping[str, str]) -> Shape:
    share = {"type": "number", "minimum": 0, "maximum": 1}
    scores = {name: {**share, "description": text} for name, text in criteria.items()}
    properties = {
        "score": share,
        "criteria_scores": _object(scores),
        "feedback": {"type": "string"},
        "suggestions": {"type": "array", "items": {"type": "string"}},
    }

    def parse(value: Any) -> _Judgement:
        try:
            judgement = _Judgement.model_validate(value)
        except ValidationError as error:
            raise UnfitError(error_lines(error)) from error
        missing = [name for name in criteria if name not in judgement.criteria_scores]
        if missing:
            raise UnfitError(f"criteria_scores: no score for {', '.join(missing)}")
        return judgement

    return Shape("evaluation", _object(properties), parse)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
