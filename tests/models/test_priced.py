"""Models whose price somebody says, and which price counts."""

from __future__ import annotations

from typing import cast

import pytest

from flowengine.agents.model_environment import open_model
from flowengine.agents.settings import CallSettings, Surroundings
from flowengine.core.batching import CALL, Batcher, CallPlace
from flowengine.errors import PermanentModelError, TransientModelError
from flowengine.models.definitions import innermost_models
from flowengine.models.messages import Message
from flowengine.models.model import Model, Reply, Request, TokenUsage
from flowengine.models.offline.model import OfflineModel
from flowengine.models.pricing import Price, listed_price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.vendors import RateLimits
from flowengine.models.wrappers.priced import PricedModel, price_of, with_price
from flowengine.models.wrappers.rate import RateLimitedModel, RateLimiter
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel
from flowengine.models.wrappers.streaming_tap import tap_model

ASKED = Request("scripted", (Message("user", "Why?"),))
PRICE = Price(input=10.0, output=50.0)


def untold(text: str, begins: bool = False, /) -> None:
    """Nobody listens."""


async def test_an_answer_costs_what_its_tokens_make_of_the_price() -> None:
    model = PricedModel(ScriptedModel([Reply("x", usage=TokenUsage(1000, 100))]), PRICE)
    assert (await model.complete(ASKED)).cost_usd == pytest.approx(0.015)


async def test_an_answer_that_tells_no_tokens_keeps_what_it_says_of_its_cost() -> None:
    model = PricedModel(ScriptedModel([Reply("x", cost_usd=0.5), Reply("x")]), PRICE)
    assert [(await model.complete(ASKED)).cost_usd for _ in range(2)] == [0.5, None]


async def test_a_stream_ends_in_a_priced_reply() -> None:
    model = PricedModel(ScriptedModel([Reply("one two", usage=TokenUsage(1000, 100))]), PRICE)
    async with model.stream(ASKED) as pieces:
        *texts, reply = [piece async for piece in pieces]
    assert texts == ["one ", "two"]
    assert isinstance(reply, Reply)
    assert reply.cost_usd == pytest.approx(0.015)


async def test_retries_stay_outside_of_the_price() -> None:
    model = with_price(RetryingModel(ScriptedModel([TransientModelError("busy"), "x"]), first_wait=0), PRICE)
    assert isinstance(model, RetryingModel)
    assert (await model.complete(ASKED)).attempts == 2
    assert [price_of(each) for each in innermost_models(model)] == [PRICE]


def test_whoever_may_answer_is_found_behind_every_wrapper() -> None:
    first, second, third = (ScriptedModel([], name=name) for name in ("first", "second", "third"))
    limited = RateLimitedModel(second, RateLimiter(RateLimits(max_parallel=1)))
    model = tap_model(FallbackModel([RetryingModel(first), RetryingModel(limited), PricedModel(third, PRICE)]), untold)
    assert [each.name for each in innermost_models(model)] == ["first", "second", "third"]


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
    return list(innermost_models(open_model(settings)[0]))


async def test_a_refusal_costs_what_the_price_says() -> None:
    error = PermanentModelError("refused")
    error.reply = Reply("", usage=TokenUsage(1000, 100))
    with pytest.raises(PermanentModelError) as caught:
        await PricedModel(ScriptedModel([error]), PRICE).complete(ASKED)
    assert caught.value.reply.cost_usd == pytest.approx(0.015)


async def test_an_answer_of_a_batch_costs_half_of_the_price_that_somebody_says() -> None:
    place = CallPlace(cast(Batcher, None), "run")

    def answer(_: Request) -> Reply:
        place.is_cheap = not place.is_cheap
        return Reply("x", usage=TokenUsage(1000, 100))

    token = CALL.set(place)
    try:
        model = PricedModel(ScriptedModel(answer), PRICE)
        assert [(await model.complete(ASKED)).cost_usd for _ in range(2)] == [pytest.approx(0.0075)] * 2
    finally:
        CALL.reset(token)
