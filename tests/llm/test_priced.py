"""Models whose price somebody says, and which price counts."""

from __future__ import annotations

import pytest

from flowengine.agents.models import open_model
from flowengine.agents.settings import CallSettings
from flowengine.agents.surroundings import Surroundings
from flowengine.errors import TransientModelError
from flowengine.llm.answering import answering
from flowengine.llm.fallback import FallbackModel
from flowengine.llm.messages import Message
from flowengine.llm.model import Model, Reply, Request, Usage
from flowengine.llm.offline import OfflineModel
from flowengine.llm.priced import PricedModel, price_of, with_price
from flowengine.llm.pricing import Price, listed_price
from flowengine.llm.rate import RateLimitedModel, RateLimiter, RateLimits
from flowengine.llm.retrying import RetryingModel
from flowengine.llm.scripted import ScriptedModel
from flowengine.llm.telling import heard

ASKED = Request("scripted", (Message("user", "Why?"),))
PRICE = Price(input=10.0, output=50.0)


def untold(text: str, begins: bool = False, /) -> None:
    """Nobody listens."""


async def test_an_answer_costs_what_its_tokens_make_of_the_price() -> None:
    model = PricedModel(ScriptedModel([Reply("x", usage=Usage(1000, 100))]), PRICE)
    assert (await model.complete(ASKED)).cost_usd == pytest.approx(0.015)


async def test_an_answer_that_tells_no_tokens_keeps_what_it_says_of_its_cost() -> None:
    model = PricedModel(ScriptedModel([Reply("x", cost_usd=0.5), Reply("x")]), PRICE)
    assert [(await model.complete(ASKED)).cost_usd for _ in range(2)] == [0.5, None]


async def test_a_stream_ends_in_a_priced_reply() -> None:
    model = PricedModel(ScriptedModel([Reply("one two", usage=Usage(1000, 100))]), PRICE)
    async with model.stream(ASKED) as pieces:
        *texts, reply = [piece async for piece in pieces]
    assert texts == ["one ", "two"]
    assert isinstance(reply, Reply)
    assert reply.cost_usd == pytest.approx(0.015)


async def test_retries_stay_outside_of_the_price() -> None:
    model = with_price(RetryingModel(ScriptedModel([TransientModelError("busy"), "x"]), first_wait=0), PRICE)
    assert isinstance(model, RetryingModel)
    assert (await model.complete(ASKED)).attempts == 2
    assert [price_of(each) for each in answering(model)] == [PRICE]


def test_whoever_may_answer_is_found_behind_every_wrapper() -> None:
    first, second, third = (ScriptedModel([], name=name) for name in ("first", "second", "third"))
    limited = RateLimitedModel(second, RateLimiter(RateLimits(max_parallel=1)))
    model = heard(FallbackModel([RetryingModel(first), RetryingModel(limited), PricedModel(third, PRICE)]), untold)
    assert [each.name for each in answering(model)] == ["first", "second", "third"]


def test_the_price_that_a_model_says_counts_before_the_list() -> None:
    model = ScriptedModel([], name="gpt-4o-mini", provider="openai")
    assert price_of(model) == listed_price("openai", "gpt-4o-mini") is not None
    assert price_of(PricedModel(model, PRICE)) == PRICE
    assert price_of(ScriptedModel([])) is None


def test_the_stand_in_is_free() -> None:
    assert price_of(OfflineModel()) == Price(0, 0)


@pytest.mark.parametrize("key", ["ollama/tiny:1b", "tiny:1b", "ollama_chat/tiny:1b"])
def test_the_project_says_prices_under_any_name_of_the_model(key: str) -> None:
    around = Surroundings({}, prices={key: PRICE, "other": Price(1, 1)})
    written = "ollama_chat/tiny:1b" if key.startswith("ollama_chat") else "ollama/tiny:1b"
    (model,) = answered_by(CallSettings(written, surroundings=around))
    assert price_of(model) == PRICE
    (model,) = answered_by(CallSettings("ollama/large", surroundings=around))
    assert price_of(model) is None


def answered_by(settings: CallSettings) -> list[Model]:
    return list(answering(open_model(settings)[0]))
