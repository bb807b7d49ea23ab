"""Orchestration mode: judge, improve, judge again, and hand back the best.

Which attempt is best and when to stop is decided by `Progress`, which is plain data. `improve` acts
on it through three functions that it is given, so nothing here knows a prompt, a model or an agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel

from flowengine.agents.structured import Answer
from flowengine.context import EvaluationResult
from flowengine.errors import LimitError, RunError
from flowengine.llm.messages import Message
from flowengine.records import Gateway, Notice, Round

__all__ = ["Attempt", "Draft", "Progress", "Verdict", "improve", "judged"]

PATIENCE: Final = 2
"""Improvements in a row without a gain before it stops early."""

Verdict: TypeAlias = Literal["passed", "no_gain", "exhausted", "failed"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A generation with the prompt that it answers."""

    messages: tuple[Message, ...]
    answer: Answer
    exchange: tuple[Message, ...] = ()
    """Requests for tools and their results, of this draft and of those before it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A judged draft."""

    draft: Draft
    evaluation: EvaluationResult


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the improving has come."""

    best: Attempt
    """Of the highest score; of several, the latest. A passing one ends it, so it is the best."""
    latest: Attempt
    calls: int
    """Model calls for drafts, corrections included."""
    rounds: int = 1
    """Attempts judged."""
    idle: int = 0
    """Improvements since the best score rose."""

    @classmethod
    def first(cls, attempt: Attempt) -> Progress:
        return cls(attempt, attempt, attempt.draft.answer.calls)

    def after(self, attempt: Attempt) -> Progress:
        """The progress with one more attempt."""
        score, best = attempt.evaluation.score, self.best.evaluation.score
        return Progress(
            best=attempt if score >= best else self.best,
            latest=attempt,
            calls=self.calls + attempt.draft.answer.calls,
            rounds=self.rounds + 1,
            idle=0 if score > best else self.idle + 1,
        )

    def verdict(self, max_iterations: int) -> Verdict | None:
        """Why to stop now; None to go on."""
        if self.latest.evaluation.passed:
            return "passed"
        if self.rounds > max_iterations:
            return "exhausted"
        return "no_gain" if self.idle >= PATIENCE else None


async def improve(
    draft: Draft,
    *,
    judge: Callable[[Draft], Awaitable[EvaluationResult]],
    guide: Callable[[Attempt], Awaitable[str]],
    generate: Callable[[Draft, str], Awaitable[Draft]],
    max_iterations: int,
    gateway: Gateway,
) -> tuple[Progress, Verdict]:
    """Judge the draft and improve the latest attempt until one passes or it is time to stop.

    A generation or a judge that fails once an attempt has been judged ends it with the best attempt so far, and a
    notice says why. A limit that is reached is raised all the same.
    """
    progress = Progress.first(await judged(draft, judge, 1, gateway))
    while (verdict := progress.verdict(max_iterations)) is None:
        latest, number = progress.latest, progress.rounds + 1
        task = await guide(latest)
        try:
            attempt = await judged(await generate(latest.draft, task), judge, number, gateway)
        except LimitError:
            raise
        except RunError as error:
            await gateway.note(Notice(f"round {number} failed, the best attempt before it is kept: {error}"))
            return progress, "failed"
        progress = progress.after(attempt)
    return progress, verdict


async def judged(
    draft: Draft, judge: Callable[[Draft], Awaitable[EvaluationResult]], number: int, gateway: Gateway
) -> Attempt:
    """The attempt, noted as a `Round`. A judge that fails is noted as a round without a score, and raised on."""
    content = _plain(draft.answer.value)
    try:
        evaluation = await judge(draft)
    except RunError as error:
        await gateway.note(Round(number, content, None, False, str(error)))
        raise
    await gateway.note(Round(number, content, evaluation.score, evaluation.passed, evaluation.feedback))
    return Attempt(draft, evaluation)


def _plain(content: Any) -> Any:
    """Content as JSON values, as records want it."""
    return content.model_dump(mode="json") if isinstance(content, BaseModel) else content
