"""Calls under a ledger: what is reserved, what is settled, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from flowengine.core.batching import CALL, AwaitsAnswer, Batcher, CallPlace
from flowengine.core.budget import Budget, Ledger, Reservation, Spending
from flowengine.errors import LimitError, ModelConfigError, PermanentModelError, TransientModelError
from flowengine.models.messages import Message
from flowengine.models.model import Model, Reply, Request, supports_schema
from flowengine.models.model import TokenUsage as Counted
from flowengine.models.pricing import Price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.bounded import BoundedModel
from flowengine.models.wrappers.priced import PricedModel
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel

ASKED = Request("scripted", (Message("user", "Why is the sky blue?"),), max_tokens=100)
REPLY = Reply("Because.", usage=Counted(50, 20))
PRICE = Price(10.0, 50.0)


class Remarks(list[str]):
    async def tell(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def remarks() -> Remarks:
    return Remarks()


@pytest.fixture
def bounded(remarks: Remarks) -> Callable[[Model, Ledger], BoundedModel]:
    return lambda model, ledger: BoundedModel(model, ledger, remarks.tell)


async def test_a_call_reserves_its_worst_case_and_settles_what_it_took(bounded: Any) -> None:
    ledger = Ledger(Budget(cost_usd=1.0))
    seen: list[Spending] = []

    def answer(request: Request) -> Reply:
        seen.append(ledger.reserved)
        return REPLY

    await bounded(PricedModel(ScriptedModel(answer), PRICE), ledger).complete(ASKED)
    (reserved,) = seen
    assert reserved.model_calls == 1
    assert reserved.cost_usd > PRICE.of(0, 100)
    assert (ledger.spent, ledger.reserved) == (Spending(1, 70, PRICE.of(50, 20)), Spending())


async def test_a_call_that_does_not_fit_is_not_made(bounded: Any) -> None:
    model = ScriptedModel([REPLY])
    ledger = Ledger(Budget(tokens=100))
    with pytest.raises(
        LimitError, match=r"^the run has a limit of 100 tokens: 0 tokens spent, and .* take \d+ tokens$"
    ):
        await bounded(model, ledger).complete(ASKED)
    assert (model.requests, ledger.spent) == ([], Spending())


async def test_without_a_bound_of_its_own_the_request_is_sent_with_the_reserved_one(bounded: Any) -> None:
    model = ScriptedModel([REPLY])
    await bounded(model, Ledger(Budget(tokens=50_000))).complete(replace(ASKED, max_tokens=None))
    assert [each.max_tokens for each in model.requests] == [4096]


async def test_the_models_own_longest_answer_is_taken_where_that_can_fit(bounded: Any) -> None:
    model = ScriptedModel([REPLY, REPLY], name="gpt-4o-mini", provider="openai")
    request = replace(ASKED, max_tokens=None)
    await bounded(model, Ledger(Budget(tokens=50_000))).complete(request)
    await bounded(model, Ledger(Budget(tokens=5_000))).complete(request)
    longest, modest = (each.max_tokens for each in model.requests)
    assert (longest, modest) == (16_384, 4096)


async def test_a_refusal_says_that_the_answers_bound_was_not_the_authors(bounded: Any) -> None:
    with pytest.raises(LimitError, match=r"4,202 tokens \(4,096 tokens for its answer: set `max_tokens`"):
        await bounded(ScriptedModel([]), Ledger(Budget(tokens=3000))).complete(replace(ASKED, max_tokens=None))


async def test_where_only_calls_are_bounded_the_request_stays_as_it_is(bounded: Any) -> None:
    model = ScriptedModel([REPLY])
    request = replace(ASKED, max_tokens=None)
    ledger = Ledger(Budget(model_calls=1))
    await bounded(model, ledger).complete(request)
    assert model.requests == [request]
    with pytest.raises(LimitError, match="1 model call"):
        await bounded(model, ledger).complete(request)


async def test_an_answer_that_was_cut_by_the_bound_is_told(bounded: Any, remarks: Remarks) -> None:
    model = ScriptedModel([REPLY._replace(finish_reason="length")] * 2)
    await bounded(model, Ledger(Budget(tokens=90_000))).complete(ASKED)
    assert remarks == []  # The author's own bound.
    await bounded(model, Ledger(Budget(tokens=90_000))).complete(replace(ASKED, max_tokens=None))
    assert ["cut off after 4,096 tokens" in each for each in remarks] == [True]


async def test_an_unknown_price_is_said_and_its_calls_are_kept_by_their_tokens(bounded: Any, remarks: Remarks) -> None:
    ledger = Ledger(Budget(cost_usd=0.000001, tokens=1000))
    model = bounded(ScriptedModel([REPLY] * 50), ledger)

    async def ask_on() -> None:
        while True:
            await model.complete(ASKED)

    with pytest.raises(LimitError, match="tokens"):
        await ask_on()
    assert ledger.spent.unpriced_calls == ledger.spent.model_calls >= 5
    assert "the price of scripted/scripted is not known" in remarks[0]
    assert '[tool.flowengine.prices."scripted/scripted"]' in remarks[0]


async def test_a_model_without_a_price_is_not_asked_where_the_limit_is_somebody_elses(bounded: Any) -> None:
    script = ScriptedModel([REPLY])
    ledger = Ledger(Budget(), above=Ledger(Budget(cost_usd=1.0), needs_prices=True))
    with pytest.raises(ModelConfigError, match="the price of scripted/scripted is not known, so the budget of who"):
        await bounded(script, ledger).complete(ASKED)
    assert (script.requests, ledger.spent, ledger.reserved) == ([], Spending(), Spending())


async def test_nothing_is_said_of_prices_where_no_cost_is_bounded(bounded: Any, remarks: Remarks) -> None:
    await bounded(ScriptedModel([REPLY]), Ledger(Budget(tokens=1000))).complete(ASKED)
    assert remarks == []


async def test_a_cost_that_the_answer_lacks_is_reckoned_from_the_price(bounded: Any) -> None:
    model = ScriptedModel([Reply("Because.", usage=Counted(1000, 1000))], name="gpt-4o-mini", provider="openai")
    ledger = Ledger(Budget(cost_usd=1.0))
    reply = await bounded(model, ledger).complete(ASKED)
    assert reply.cost_usd == pytest.approx(ledger.spent.cost_usd)
    assert ledger.spent.cost_usd > 0
    assert ledger.spent.unpriced_calls == 0


async def test_attempts_of_one_call_are_one_reservation(bounded: Any) -> None:
    ledger = Ledger(Budget(model_calls=1))
    model = RetryingModel(ScriptedModel([TransientModelError("busy"), REPLY]), first_wait=0)
    assert (await bounded(model, ledger).complete(ASKED)).attempts == 2
    assert ledger.spent.model_calls == 1


@pytest.mark.parametrize(
    ("error", "spent"),
    [
        (PermanentModelError("no"), Spending(1)),
        (ModelConfigError("no key"), Spending()),
    ],
)
async def test_a_call_that_failed_counts_as_a_call_if_it_was_sent(
    bounded: Any, error: Exception, spent: Spending
) -> None:
    ledger = Ledger(Budget(tokens=1000))
    with pytest.raises(type(error)):
        await bounded(ScriptedModel([error]), ledger).complete(ASKED)
    assert (ledger.spent, ledger.reserved) == (spent, Spending())


async def test_a_refusal_is_paid_like_any_answer(bounded: Any) -> None:
    refusal = PermanentModelError("refused")
    refusal.reply = REPLY._replace(cost_usd=0.01)
    ledger = Ledger(Budget(cost_usd=1.0))
    with pytest.raises(PermanentModelError):
        await bounded(ScriptedModel([refusal]), ledger).complete(ASKED)
    assert ledger.spent == Spending(1, 70, 0.01)


def refusing(reply: Reply) -> ScriptedModel:
    refusal = PermanentModelError("refused")
    refusal.reply = reply
    return ScriptedModel([refusal])


async def ask_by_stream(model: Model, request: Request) -> Reply:
    async with model.stream(request) as pieces:
        *_, reply = [each async for each in pieces]
    assert isinstance(reply, Reply)
    return reply


def ask_at_once(model: Model, request: Request) -> Any:
    return model.complete(request)


@pytest.mark.parametrize("ask", [ask_at_once, ask_by_stream])
async def test_what_refusals_took_is_reserved_for_besides_the_next_model(bounded: Any, ask: Any) -> None:
    ledger = Ledger(Budget(cost_usd=1.0, model_calls=1))
    reserved: list[float] = []

    def answer(request: Request) -> Reply:
        reserved.append(ledger.reserved.cost_usd)
        return REPLY

    models = [refusing(REPLY), refusing(REPLY), ScriptedModel(answer)]
    await ask(bounded(FallbackModel([PricedModel(each, PRICE) for each in models]), ledger), ASKED)
    (with_refusals,) = reserved
    assert with_refusals > PRICE.of(0, 100) + 2 * PRICE.of(50, 20)
    assert (ledger.spent, ledger.reserved) == (Spending(1, 210, PRICE.of(150, 60)), Spending())


def late() -> TransientModelError:
    error = TransientModelError("too late")
    error.is_timeout, error.unanswered = True, 1
    return error


@pytest.mark.parametrize("ask", [ask_at_once, ask_by_stream])
@pytest.mark.parametrize("bounds", [Budget(), Budget(cost_usd=1.0)])
async def test_what_was_not_answered_in_time_is_booked_at_its_worst_case(
    bounded: Any, ask: Any, bounds: Budget
) -> None:
    ledger = Ledger(bounds)
    inner = RetryingModel(PricedModel(ScriptedModel([late(), REPLY]), PRICE), first_wait=0.0)
    reply = await ask(bounded(inner, ledger), ASKED)
    assert (reply.unanswered.calls, reply.cost_usd, reply.attempts) == (1, PRICE.of(50, 20), 2)
    assert reply.unanswered.cost_usd > PRICE.of(0, 100)
    assert ledger.spent.model_calls == 2
    assert ledger.spent.cost_usd == pytest.approx(reply.cost_usd + reply.unanswered.cost_usd)


async def test_what_never_answers_is_asked_twice_and_booked_twice(bounded: Any) -> None:
    ledger, scripted = Ledger(Budget(model_calls=9)), ScriptedModel(lambda _: late())
    with pytest.raises(TransientModelError, match="gave up after 2 attempts") as caught:
        await bounded(RetryingModel(PricedModel(scripted, PRICE), first_wait=0.0), ledger).complete(ASKED)
    assert len(scripted.requests) == 2
    assert ledger.spent.model_calls == 2
    assert ledger.spent.cost_usd == caught.value.reply.unanswered.cost_usd > 2 * PRICE.of(0, 100)


async def test_what_may_be_billed_is_not_asked_for_again_beyond_a_limit(bounded: Any) -> None:
    ledger, scripted = Ledger(Budget(model_calls=1)), ScriptedModel([late(), REPLY])
    with pytest.raises(LimitError, match="1 model call") as caught:
        await bounded(RetryingModel(PricedModel(scripted, PRICE), first_wait=0.0), ledger).complete(ASKED)
    assert len(scripted.requests) == 1
    assert caught.value.unanswered == 1
    assert (ledger.spent.model_calls, ledger.reserved) == (1, Spending())


@pytest.mark.parametrize("ask", [ask_at_once, ask_by_stream])
async def test_no_model_is_asked_beyond_a_limit_after_refusals_that_were_paid(bounded: Any, ask: Any) -> None:
    ledger, last = Ledger(Budget(tokens=300)), ScriptedModel([REPLY])
    models = [refusing(REPLY), ScriptedModel([PermanentModelError("bad")]), refusing(REPLY), last]
    with pytest.raises(
        LimitError, match=r"300 tokens: 0 tokens spent, and the next call could take 70 tokens"
    ) as caught:
        await ask(bounded(FallbackModel(models), ledger), ASKED)
    assert caught.value.reply.usage[:2] == (100, 40)
    assert last.requests == []
    assert (ledger.spent, ledger.reserved) == (Spending(1, 140, unpriced_calls=1), Spending())


async def test_a_limit_of_calls_says_nothing_of_shorter_answers(bounded: Any) -> None:
    model = bounded(ScriptedModel([]), Ledger(Budget(tokens=50_000, model_calls=0)))
    with pytest.raises(LimitError, match="0 model calls") as caught:
        await model.complete(replace(ASKED, max_tokens=None))
    assert "max_tokens" not in str(caught.value)


class Shelf:
    """As a `Batcher`: keeps what the calls that are put aside have reserved."""

    def __init__(self) -> None:
        self.held: dict[str, Reservation] = {}

    def find_reservation(self, place: CallPlace) -> Reservation | None:
        return self.held.pop(place.name, None)

    def hold(self, place: CallPlace, reservation: Reservation) -> None:
        self.held[place.name] = reservation

    def may_reserve(self, place: CallPlace) -> bool:
        return True


async def test_a_call_put_aside_after_a_refusal_comes_back_to_what_it_has_reserved(bounded: Any) -> None:
    ledger, shelf, reserved = Ledger(Budget(tokens=1000)), Shelf(), list[int]()

    def answer(request: Request) -> Reply:
        reserved.append(ledger.reserved.tokens)
        if len(reserved) == 1:
            raise AwaitsAnswer
        return REPLY

    for is_back in (False, True):
        model = bounded(FallbackModel([refusing(REPLY), ScriptedModel(answer)]), ledger)
        token = CALL.set(CallPlace(cast(Batcher, shelf), "run", "node"))
        try:
            with nullcontext() if is_back else pytest.raises(AwaitsAnswer):
                await model.complete(ASKED)
        finally:
            CALL.reset(token)
        assert ledger.spent == (Spending(1, 140, unpriced_calls=1) if is_back else Spending())
    assert reserved[0] == reserved[1] > 170
    assert ledger.reserved == Spending()


async def test_a_call_that_was_cancelled_under_way_counts_in_full(bounded: Any) -> None:
    ledger = Ledger(Budget(tokens=1000))
    with anyio.move_on_after(0.01):
        await bounded(ScriptedModel([REPLY], latency=10), ledger).complete(ASKED)
    assert ledger.spent.model_calls == 1
    assert ledger.spent.tokens > 100
    assert ledger.reserved == Spending()


async def test_a_stream_is_reserved_and_settled_as_well(bounded: Any) -> None:
    ledger = Ledger(Budget(cost_usd=1.0))
    model = bounded(PricedModel(ScriptedModel([REPLY, REPLY]), PRICE), ledger)
    async with model.stream(ASKED) as pieces:
        assert ledger.reserved.model_calls == 1
        assert [piece async for piece in pieces][:-1] == ["Because."]
    assert (ledger.spent.tokens, ledger.reserved) == (70, Spending())
    async with model.stream(ASKED):
        """Left before its end."""
    assert ledger.spent.model_calls == 2
    assert ledger.spent.tokens > 140


async def test_it_passes_for_the_model_inside(bounded: Any) -> None:
    model = bounded(ScriptedModel([], name="tea", provider="pot"), Ledger(Budget()))
    assert (model.provider, model.name, await supports_schema(model)) == ("pot", "tea", True)
