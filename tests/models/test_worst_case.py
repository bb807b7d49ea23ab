"""The most that a call can take: never less than what it does take."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Request
from flowengine.models.pricing import Price, listed_price, longest_answer
from flowengine.models.scripted import ScriptedModel
from flowengine.models.tokens import count_tokens
from flowengine.models.worst_case import LONGEST_ANSWER, worst_cases
from flowengine.models.wrappers.priced import PricedModel
from flowengine.models.wrappers.retrying import FallbackModel

TEXT = "What do you know of tea? " * 40
ASKED = Request("m", (Message("user", TEXT),), max_tokens=100)
SCRIPTED = ScriptedModel([])
MINI = ScriptedModel([], name="gpt-4o-mini", provider="openai")


def asked(**changes: Any) -> Request:
    return Request(**{"model": "m", "messages": ASKED.messages, **changes})


def test_question_and_longest_answer_together() -> None:
    (worst,) = worst_cases(MINI, ASKED)
    counted = count_tokens(TEXT, "gpt-4o-mini")
    assert counted + 100 < worst.tokens < counted + 100 + 40
    price = listed_price("openai", "gpt-4o-mini")
    assert price is not None
    assert worst.cost_usd == pytest.approx(price.of(worst.tokens - 100, 100))
    assert (worst.request, worst.cap, worst.unpriced) == (ASKED, None, ())


def test_a_vocabulary_that_is_not_public_has_a_margin_up_to_its_bytes() -> None:
    exact, guessed = (next(iter(worst_cases(model, ASKED))).tokens - 100 for model in (MINI, SCRIPTED))
    assert exact * 1.4 < guessed < exact * 1.6 + 100
    blank = Request("m", (Message("user", "héé" * 2),), max_tokens=1)
    (worst,) = worst_cases(SCRIPTED, blank)
    assert worst.tokens <= len("héé".encode()) * 2 + 1 + 100


@pytest.mark.parametrize(
    "more",
    [
        {"tools": ({"type": "function", "function": {"name": "look", "description": TEXT}},)},
        {"response_schema": {"type": "object", "description": TEXT}},
        {"messages": (*ASKED.messages, Message("assistant", "", (ToolRequest("1", "look", TEXT),)))},
        {"messages": (*ASKED.messages, Message("tool", TEXT, tool_call_id="1"))},
    ],
)
def test_all_that_is_sent_counts(more: dict[str, Any]) -> None:
    (plain,), (worst,) = worst_cases(MINI, ASKED), worst_cases(MINI, asked(max_tokens=100, **more))
    assert worst.tokens >= plain.tokens + count_tokens(TEXT, "gpt-4o-mini")


def test_without_a_bound_the_vendors_is_set_and_a_modest_one_offered() -> None:
    longest, modest = worst_cases(MINI, asked())
    assert longest.cap == longest.request.max_tokens == longest_answer("openai", "gpt-4o-mini")
    assert modest.cap == modest.request.max_tokens == LONGEST_ANSWER
    assert longest.tokens - modest.tokens == longest.cap - LONGEST_ANSWER


def test_a_model_that_no_list_knows_gets_the_modest_bound_alone() -> None:
    (worst,) = worst_cases(SCRIPTED, asked())
    assert (worst.cap, worst.request.max_tokens) == (LONGEST_ANSWER, LONGEST_ANSWER)


@pytest.mark.parametrize("name", ["max_completion_tokens", "max_output_tokens"])
def test_a_bound_under_a_vendors_own_name_counts_and_stays(name: str) -> None:
    request = asked(extra={name: 700})
    (worst,) = worst_cases(MINI, request)
    (plain,) = worst_cases(MINI, asked(max_tokens=700))
    assert (worst.request, worst.tokens) == (request, plain.tokens)


def test_thinking_that_is_asked_for_comes_on_top() -> None:
    (worst,) = worst_cases(SCRIPTED, asked(extra={"thinking": {"type": "enabled", "budget_tokens": 2000}}))
    assert worst.cap == LONGEST_ANSWER + 2000


def test_of_several_models_the_dearest_counts_and_the_shortest_answer() -> None:
    cheap, dear = PricedModel(SCRIPTED, Price(1, 2)), PricedModel(SCRIPTED, Price(3, 1))
    (worst,) = worst_cases(FallbackModel([cheap, dear]), ASKED)
    assert worst.price == Price(3, 2)
    (worst,) = worst_cases(FallbackModel([MINI, ScriptedModel([], name="gpt-4", provider="openai")]), asked())
    assert worst.cap == longest_answer("openai", "gpt-4") == 4096


def test_a_price_that_is_unknown_is_named() -> None:
    (worst,) = worst_cases(FallbackModel([MINI, SCRIPTED]), ASKED)
    assert (worst.cost_usd, worst.price, worst.unpriced) == (None, None, ["scripted/scripted"])
