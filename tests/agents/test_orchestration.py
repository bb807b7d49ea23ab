"""Judging and improving: which attempt is handed back, when it stops, and what is told about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import PATIENCE, Attempt, Draft, ImprovementProgress
from flowengine.agents.structured import StructuredAnswer
from flowengine.core.context import EvaluationResult, LLMResult
from flowengine.core.records import ModelCall, Notice, Round
from flowengine.errors import LimitError, OutputError, PermanentModelError, RunError
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel


def judgement(score: float, feedback: str = "", suggestions: Sequence[str] = ()) -> dict[str, Any]:
    return {"score": score, "criteria_scores": {"good": score}, "feedback": feedback, "suggestions": list(suggestions)}


def writer(model: ScriptedModel, judge: ScriptedModel, **settings: Any) -> Agent:
    chosen = {"orchestration_mode": True, "evaluation_criteria": {"good": "Is it?"}, **settings}
    return Agent("writer", "Write.", model=model, evaluation_model=judge, **chosen)


def attempt(number: int, score: float, threshold: float = 0.7) -> Attempt:
    draft = Draft((), StructuredAnswer(f"draft {number}", Reply(""), 1))
    return Attempt(draft, EvaluationResult(score=score, passed=score >= threshold))


@pytest.mark.parametrize(
    ("scores", "limit", "chosen", "stopped"),
    [
        ([0.8], 3, 0, "passed"),
        ([0.7], 3, 0, "passed"),
        ([0.1, 0.2, 0.9], 3, 2, "passed"),
        ([0.1, 0.2, 0.3, 0.4], 3, 3, "exhausted"),
        ([0.5, 0.6, 0.2, 0.65], 3, 3, "exhausted"),
        ([0.5, 0.6, 0.2, 0.3], 5, 1, "no_gain"),
        ([0.5, 0.2, 0.3], 5, 0, "no_gain"),
        ([0.5, 0.5, 0.5], 5, 2, "no_gain"),
        ([0.5, 0.4], 1, 0, "exhausted"),
        ([0.5, 0.5], 1, 1, "exhausted"),
        ([0.1], 0, 0, "exhausted"),
    ],
)
async def test_the_passing_attempt_is_returned_else_the_best_the_later_on_a_tie(
    recorder: Any, scores: list[float], limit: int, chosen: int, stopped: str
) -> None:
    model = ScriptedModel([f"draft {number}" for number in range(len(scores))])
    judge = ScriptedModel([judgement(score) for score in scores])
    after = await writer(model, judge, max_improvement_iterations=limit).run_async("x", gateway=recorder)
    assert after.result.content == f"draft {chosen}"
    assert after.result.evaluation_score == scores[chosen]
    assert after.result.attempts == len(scores) == after.result.metadata["rounds"]
    assert after.result.metadata["stopped"] == stopped
    assert after.shared_state["_last_generation"] == f"draft {chosen}"
    assert after.evaluation_result is not None
    assert after.evaluation_result.content == f"draft {chosen}"
    assert after.evaluation_result.passed is (scores[chosen] >= 0.7)
    assert [(each.number, each.content, each.score, each.passed) for each in recorder.of(Round)] == [
        (number + 1, f"draft {number}", score, score >= 0.7) for number, score in enumerate(scores)
    ]


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 8))
def test_whatever_the_scores_it_stops_in_time_and_never_returns_less_than_the_best(
    tenths: list[int], limit: int
) -> None:
    attempts = [attempt(number, each / 10) for number, each in enumerate(tenths)]
    progress, rest = ImprovementProgress.first(attempts[0]), iter(attempts[1:])
    while progress.verdict(limit) is None and (following := next(rest, None)) is not None:
        progress = progress.after(following)
    seen = attempts[: progress.rounds]
    best = max(each.evaluation.score for each in seen)
    assert progress.rounds <= limit + 1
    assert progress.calls == progress.rounds
    assert progress.best is [each for each in seen if each.evaluation.score == best][-1]
    assert progress.idle <= PATIENCE
    assert not any(each.evaluation.passed for each in seen[:-1])


async def test_an_agent_that_is_told_to_be_patient_does_not_stop_for_want_of_a_better_score(recorder: Any) -> None:
    scores = [0.5, 0.45, 0.45, 0.95]
    model = ScriptedModel([f"draft {number}" for number in range(4)])
    judge = ScriptedModel([judgement(score) for score in scores])
    patient = writer(model, judge, max_improvement_iterations=6, improvement_patience=None)
    after = await patient.run_async("x", gateway=recorder)
    assert (after.result.content, after.result.metadata["stopped"]) == ("draft 3", "passed")


async def test_feedback_and_suggestions_become_the_task_after_the_draft() -> None:
    model = ScriptedModel(["bad", "good"])
    judge = ScriptedModel([judgement(0.25, "Too dull", ["Add jokes", "Cut"]), judgement(1)])
    await writer(model, judge).run_async("x")
    first, second = (request.messages for request in model.requests)
    assert second[: len(first)] == first
    assert (second[2].role, second[2].content) == ("assistant", "bad")
    assert second[3].role == "user"
    assert "score 0.25 of 1.0, needed 0.70" in second[3].content
    assert "Feedback: Too dull\n\nSuggestions:\n- Add jokes\n- Cut\n" in second[3].content


async def test_each_improvement_builds_on_the_latest_draft_alone() -> None:
    model = ScriptedModel(["one", "two", "three"])
    judge = ScriptedModel([judgement(0.1), judgement(0.2), judgement(0.9)])
    await writer(model, judge).run_async("x")
    assert [message.content for message in model.requests[2].messages if message.role == "assistant"] == ["two"]


async def test_every_attempt_is_judged_against_the_first_prompt() -> None:
    judge = ScriptedModel([judgement(0.1), judgement(0.9)])
    await writer(ScriptedModel(["one", "two"]), judge).run_async("x")
    first, second = (request.messages[-1].content for request in judge.requests)
    assert "<prompt>\nWrite.\n\nUser input: x\n</prompt>" in first
    assert second == first.replace("one", "two")


async def test_the_last_prompt_is_the_one_that_the_returned_draft_answers() -> None:
    judge = ScriptedModel([judgement(0.1, "Longer!"), judgement(0.9)])
    after = await writer(ScriptedModel(["one", "two"]), judge).run_async("x")
    assert "Longer!" in after.shared_state["_last_prompt"]


async def test_the_callback_turns_a_result_and_its_evaluation_into_guidance() -> None:
    seen: list[tuple[LLMResult, EvaluationResult]] = []

    def callback(result: LLMResult, evaluation: EvaluationResult) -> str:
        seen.append((result, evaluation))
        return "Use {braces}."

    model = ScriptedModel(["bad", "good"])
    judge = ScriptedModel([judgement(0.25, "Too dull"), judgement(1)])
    await writer(model, judge, improvement_callback=callback).run_async("x")
    assert [(result.content, result.evaluation_score, each.score) for result, each in seen] == [("bad", 0.25, 0.25)]
    task = model.requests[1].messages[-1].content
    assert task.endswith("Use {braces}.")
    assert "Too dull" not in task


async def test_the_callback_may_be_a_coroutine_function() -> None:
    async def callback(result: LLMResult, evaluation: EvaluationResult) -> str:
        return "Better!"

    model = ScriptedModel(["bad", "good"])
    agent = writer(model, ScriptedModel([judgement(0.1), judgement(1)]), improvement_callback=callback)
    await agent.run_async("x")
    assert model.requests[1].messages[-1].content.endswith("Better!")


async def test_a_callback_that_raises_or_gives_no_text_fails_the_run() -> None:
    def broken(result: LLMResult, evaluation: EvaluationResult) -> str:
        raise KeyError("oops")

    with pytest.raises(RunError, match=r"agent 'writer': improvement_callback failed: KeyError: 'oops'") as caught:
        await writer(ScriptedModel(["bad"]), ScriptedModel([judgement(0.1)]), improvement_callback=broken).run_async(
            "x"
        )
    assert isinstance(caught.value.__cause__, KeyError)
    silent: Any = lambda result, evaluation: None  # noqa: E731 - a callback that forgets to return
    with pytest.raises(RunError, match="must return the guidance as text, not None"):
        await writer(ScriptedModel(["bad"]), ScriptedModel([judgement(0.1)]), improvement_callback=silent).run_async(
            "x"
        )


@pytest.mark.parametrize("failure", [PermanentModelError("no key"), "not json"], ids=["call fails", "answer unusable"])
async def test_a_judge_that_fails_never_counts_as_passed(recorder: Any, failure: Any) -> None:
    judge = ScriptedModel(lambda request: failure)
    agent = writer(ScriptedModel(["draft"]), judge, evaluation_threshold=0.0)
    with pytest.raises((PermanentModelError, OutputError), match=r"agent 'writer.evaluation': "):
        await agent.run_async("x", gateway=recorder)
    (only,) = recorder.of(Round)
    assert (only.content, only.score, only.passed) == ("draft", None, False)
    assert "writer.evaluation" in only.feedback


@pytest.mark.parametrize("failure", [PermanentModelError("no key"), "not json"], ids=["call fails", "answer unusable"])
async def test_a_judge_that_fails_in_a_later_round_keeps_the_best_before_it(recorder: Any, failure: Any) -> None:
    answers = iter([judgement(0.4), judgement(0.3)])
    judge = ScriptedModel(lambda request: next(answers, failure))
    model = ScriptedModel(["one", "two", "three"])
    after = await writer(model, judge).run_async("x", gateway=recorder)
    assert (after.result.content, after.result.evaluation_score) == ("one", 0.4)
    assert after.result.metadata["stopped"] == "failed"
    assert after.evaluation_result is not None
    assert not after.evaluation_result.passed
    (told,) = recorder.of(Notice)
    assert "round 3 failed, the best attempt before it is kept: agent 'writer.evaluation'" in told.text


async def test_a_generation_that_fails_in_a_later_round_keeps_the_best_before_it(recorder: Any) -> None:
    answers = iter(["one"])
    model = ScriptedModel(lambda request: next(answers, PermanentModelError("no money")))
    after = await writer(model, ScriptedModel([judgement(0.4)])).run_async("x", gateway=recorder)
    assert (after.result.content, after.result.metadata["stopped"]) == ("one", "failed")
    (told,) = recorder.of(Notice)
    assert "round 2 failed" in told.text
    assert "no money" in told.text


async def test_a_limit_that_is_reached_while_improving_ends_the_agent(recorder: Any) -> None:
    answers = iter(["one"])
    model = ScriptedModel(lambda request: next(answers, LimitError("the run reached its limit of model calls")))
    with pytest.raises(LimitError):
        await writer(model, ScriptedModel([judgement(0.4)])).run_async("x", gateway=recorder)


async def test_without_orchestration_mode_there_is_one_evaluation_and_no_improvement(recorder: Any) -> None:
    model, judge = ScriptedModel(["draft"]), ScriptedModel([judgement(0.1, "Bad")])
    after = await writer(model, judge, orchestration_mode=False).run_async("x", gateway=recorder)
    assert after.result.content == "draft"
    assert (after.result.evaluation_score, after.result.attempts) == (0.1, 1)
    assert after.evaluation_result is not None
    assert (after.evaluation_result.passed, after.evaluation_result.feedback) == (False, "Bad")
    assert len(recorder.of(Round)) == 1


async def test_calls_tell_what_they_were_for(recorder: Any) -> None:
    judge = ScriptedModel([judgement(0.1), judgement(0.9)])
    await writer(ScriptedModel(["one", "two"]), judge).run_async("x", gateway=recorder)
    assert [call.purpose for call in recorder.of(ModelCall)] == [
        "generation",
        "evaluation",
        "improvement",
        "evaluation",
    ]


async def test_a_structured_draft_is_improved_as_json() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = ScriptedModel([{"n": 1}, {"n": "2"}, {"n": 2}])
    judge = ScriptedModel([judgement(0.1), judgement(0.9)])
    after = await writer(model, judge, output_model=schema).run_async("x")
    assert after.result.content == {"n": 2}
    assert after.result.attempts == 3
    assert model.requests[1].messages[2].content == '{"n": 1}'


async def test_options_of_the_vendor_go_to_the_judge_only_where_it_is_the_same_model() -> None:
    def answer(request: Request) -> Any:
        return judgement(1) if request.response_schema is not None else "text"

    same, judge = ScriptedModel(answer), ScriptedModel(answer)
    chosen: dict[str, Any] = {"evaluation_criteria": {"good": "Is it?"}, "seed": 3}
    await Agent("a", "", model=same, **chosen).run_async("x")
    await Agent("a", "", model=same, evaluation_model=judge, **chosen).run_async("x")
    assert [dict(request.extra) for request in same.requests] == [{"seed": 3}] * 3
    assert [dict(request.extra) for request in judge.requests] == [{}]
    assert judge.requests[0].temperature == 0.2
