"""Judges a generation with one structured call that scores it, and improves it until it passes.

The score is the model's; whether that passes is computed here, and the content is copied from what was judged. A judge
by itself improves nothing: `improve` asks for new versions, and ends when one passes or none gets better.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, Unpack

from pydantic import BaseModel, ValidationError

from flowengine.agents.caller import SubjectAgent, naming
from flowengine.agents.prompt import Subject, evaluation_messages
from flowengine.agents.settings import (
    PATIENCE,
    PROCESS,
    CallSettings,
    ModelChoice,
    Surroundings,
    UsualTemperature,
    call_settings,
    check_descriptions,
    check_share,
)
from flowengine.agents.structured import AnswerShape, StructuredAnswer, UnfitError, error_lines
from flowengine.core import EvaluationResult, Gateway, Notice, Round, Share, load_messages
from flowengine.errors import DefinitionError, LimitError, RunError, names_arguments, refuse_other_kind
from flowengine.models import Message, Model, ModelOptions, PromptCaching

_TEMPERATURE: Final = UsualTemperature(0.2)


class _Judgement(BaseModel):
    """A model's judgement; the other fields of an `EvaluationResult` are computed."""

    score: Share
    criteria_scores: dict[str, Share] = {}
    feedback: str = ""
    suggestions: list[str] = []


class EvaluationAgent(SubjectAgent):
    """Judges the last generation of a context, in one structured call.

    >>> from flowengine.models.scripted import ScriptedModel
    >>> model = ScriptedModel([{"score": 0.9, "criteria_scores": {"short": 1.0}, "feedback": "Good"}])
    >>> judge = EvaluationAgent("judge", evaluation_criteria={"short": "Under ten words"}, model=model)
    >>> judge.run("Tea is a drink.").evaluation_result.passed
    True
    """

    @names_arguments
    def __init__(
        self,
        name: str,
        evaluation_instructions: str | None = None,
        evaluation_criteria: Mapping[str, str] | None = None,
        pass_threshold: float = 0.7,
        *,
        model: ModelChoice = None,
        temperature: float | None = _TEMPERATURE,
        max_tokens: int | None = None,
        max_retries: int = 3,
        timeout: float | None = None,
        fallbacks: Sequence[str | Model] = (),
        locale: str = "en",
        prompt_cache: PromptCaching | None = None,
        surroundings: Surroundings = PROCESS,
        **options: Unpack[ModelOptions],
    ) -> None:
        """Without criteria it judges accuracy, relevance and completeness. `options` reach the model call."""
        with naming(name):
            self.name = name
            instructions = "" if evaluation_instructions is None else evaluation_instructions
            refuse_other_kind(instructions, str, "evaluation_instructions is text", DefinitionError)
            self.instructions = instructions
            self.pass_threshold = check_share("pass_threshold", pass_threshold)
            self.settings: CallSettings = call_settings(EvaluationAgent, locals())
            self.words = load_messages(locale)
            descriptions = evaluation_criteria
            criteria = None if descriptions is None else check_descriptions("evaluation_criteria", descriptions)
            self.criteria = criteria or dict(self.words.section("criteria"))
            self._shape = _judgement_shape(self.criteria)

    async def _look(self, subject: Subject, gateway: Gateway | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
        evaluation = await self.evaluate(subject, gateway, **options)
        return {"result": evaluation, "evaluation_result": evaluation}

    async def evaluate(self, subject: Subject, gateway: Gateway | None = None, **options: Any) -> EvaluationResult:
        """The judgement of one subject; an answer that stays unusable is an `OutputError`, never a pass."""
        with naming(self.name):
            caller = await self._open_caller(subject, gateway, options)
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


def _judgement_shape(criteria: Mapping[str, str]) -> AnswerShape:
    share = {"type": "number", "minimum": 0, "maximum": 1}
    scores = {name: {**share, "description": text} for name, text in criteria.items()}
    properties = {
        "score": share,
        "criteria_scores": _object_schema(scores),
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

    return AnswerShape("evaluation", _object_schema(properties), parse)


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


# --- Judging and improving in turns

Verdict: TypeAlias = Literal["passed", "no_gain", "exhausted", "failed"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A generation with the prompt that it answers."""

    messages: tuple[Message, ...]
    answer: StructuredAnswer
    exchange: tuple[Message, ...] = ()
    """Requests for tools and their results, of this draft and of those before it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A judged draft."""

    draft: Draft
    evaluation: EvaluationResult


@dataclass(frozen=True, slots=True)
class ImprovementProgress:
    """The progress of an improvement loop."""

    best: Attempt
    """The attempt of the highest score; of several, the latest. A passing one ends it, so it is the best."""
    latest: Attempt
    calls: int
    """Model calls for drafts, corrections included."""
    rounds: int = 1
    """Attempts judged."""
    idle: int = 0
    """Improvements since the best score rose."""

    @classmethod
    def first(cls, attempt: Attempt) -> ImprovementProgress:
        return cls(attempt, attempt, attempt.draft.answer.calls)

    def after(self, attempt: Attempt) -> ImprovementProgress:
        """The progress with one more attempt."""
        score, best = attempt.evaluation.score, self.best.evaluation.score
        return ImprovementProgress(
            best=attempt if score >= best else self.best,
            latest=attempt,
            calls=self.calls + attempt.draft.answer.calls,
            rounds=self.rounds + 1,
            idle=0 if score > best else self.idle + 1,
        )

    def verdict(self, max_iterations: int, patience: int | None = PATIENCE) -> Verdict | None:
        """Returns the reason to stop now, or None to continue."""
        if self.latest.evaluation.passed:
            return "passed"
        if self.rounds > max_iterations:
            return "exhausted"
        return "no_gain" if patience is not None and self.idle >= patience else None


async def improve(
    draft: Draft,
    *,
    judge: Callable[[Draft], Awaitable[EvaluationResult]],
    guide: Callable[[Attempt], Awaitable[str]],
    generate: Callable[[Draft, str], Awaitable[Draft]],
    max_iterations: int,
    patience: int | None,
    gateway: Gateway,
) -> tuple[ImprovementProgress, Verdict]:
    """Judge the draft and improve the latest attempt until one passes or it is time to stop.

    A generation or a judge that fails once an attempt has been judged ends it with the best attempt so far, and a
    notice says why. A limit that is reached is raised all the same. `patience`: improvements in a row without a gain
    after which it stops; None: it stops for no such reason.
    """
    progress = ImprovementProgress.first(await judge_attempt(draft, judge, 1, gateway))
    while (verdict := progress.verdict(max_iterations, patience)) is None:
        latest, number = progress.latest, progress.rounds + 1
        task = await guide(latest)
        try:
            attempt = await judge_attempt(await generate(latest.draft, task), judge, number, gateway)
        except LimitError:
            raise
        except RunError as error:
            await gateway.note(Notice(f"round {number} failed, the best attempt before it is kept: {error}"))
            return progress, "failed"
        progress = progress.after(attempt)
    return progress, verdict


async def judge_attempt(
    draft: Draft, judge: Callable[[Draft], Awaitable[EvaluationResult]], number: int, gateway: Gateway
) -> Attempt:
    """The attempt, noted as a `Round`. A judge that fails is noted as a round without a score, and raised on."""
    content = _to_json_content(draft.answer.value)
    try:
        evaluation = await judge(draft)
    except RunError as error:
        await gateway.note(Round(number, content, None, False, str(error)))
        raise
    await gateway.note(Round(number, content, evaluation.score, evaluation.passed, evaluation.feedback))
    return Attempt(draft, evaluation)


def _to_json_content(content: Any) -> Any:
    """Content as JSON values, as records want it."""
    return content.model_dump(mode="json") if isinstance(content, BaseModel) else content
