"""Guardrails: nothing gets past one that did not say yes."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.errors import GuardrailError
from flowengine.models.scripted import ScriptedModel


def polite(value: Any) -> bool:
    return "damn" not in str(value)


async def polite_in_time(value: Any) -> bool:
    await anyio.lowlevel.checkpoint()
    return polite(value)


def forgetful(value: Any) -> bool:
    return None  # type: ignore[return-value]


def broken(value: Any) -> bool:
    raise LookupError("no dictionary")


class Limit:
    """A guardrail with a setting."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, value: Any) -> bool:
        return len(str(value)) <= self.most


@pytest.mark.parametrize("guardrail", [polite, polite_in_time, Limit(20)])
async def test_what_a_guardrail_approves_passes(guardrail: Any) -> None:
    model = ScriptedModel(["fine"])
    agent = Agent("a", "", model=model, input_guardrails=[guardrail], output_guardrails=[guardrail])
    assert str((await agent.run_async("hello")).result) == "fine"


@pytest.mark.parametrize(
    ("guardrail", "message"),
    [
        (polite, "agent 'a': input guardrail 'polite' refused the value"),
        (polite_in_time, "input guardrail 'polite_in_time' refused"),
        (Limit(3), "input guardrail 'Limit' refused"),
        (forgetful, "input guardrail 'forgetful' returned None; it must return True or False"),
        (broken, "input guardrail 'broken' failed: LookupError: no dictionary"),
    ],
)
async def test_an_input_guardrail_refuses_before_the_model_is_asked(guardrail: Any, message: str) -> None:
    model = ScriptedModel(["never"])
    agent = Agent("a", "", model=model, input_guardrails=[lambda value: True, guardrail])
    with pytest.raises(GuardrailError, match=message):
        await agent.run_async("damn it")
    assert model.requests == []


async def test_the_cause_of_a_broken_guardrail_is_chained() -> None:
    with pytest.raises(GuardrailError) as caught:
        await Agent("a", "", model=ScriptedModel([]), input_guardrails=[broken]).run_async("x")
    assert isinstance(caught.value.__cause__, LookupError)


async def test_an_output_guardrail_refuses_what_the_model_said_and_nothing_is_remembered_or_routed() -> None:
    model, history = ScriptedModel(["damn it"]), []
    agent = Agent(
        "a",
        "",
        model=model,
        output_guardrails=[polite],
        session_history=history,
        routing_instruction="Route.",
        routes={"a": "A"},
    )
    with pytest.raises(GuardrailError, match="agent 'a': output guardrail 'polite' refused"):
        await agent.run_async("x")
    assert len(model.requests) == 1
    assert history == []


async def test_an_output_guardrail_sees_the_validated_instance() -> None:
    class Person(BaseModel):
        age: int

    seen: list[Any] = []

    def adult(value: Person) -> bool:
        seen.append(value)
        return value.age >= 18

    agent = Agent("a", "", model=ScriptedModel([{"age": 12}]), output_model=Person, output_guardrails=[adult])
    with pytest.raises(GuardrailError, match="adult"):
        await agent.run_async("x")
    assert seen == [Person(age=12)]


async def test_of_several_attempts_the_one_handed_back_is_guarded() -> None:
    judged = [
        {"score": score, "criteria_scores": {"good": score}, "feedback": "", "suggestions": []} for score in (0.1, 0.9)
    ]
    agent = Agent(
        "a",
        "",
        model=ScriptedModel(["damn it", "fine"]),
        evaluation_model=ScriptedModel(judged),
        evaluation_criteria={"good": "Is it?"},
        orchestration_mode=True,
        output_guardrails=[polite],
    )
    assert str((await agent.run_async("x")).result) == "fine"
