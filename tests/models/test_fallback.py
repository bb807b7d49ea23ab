from __future__ import annotations

import pytest

from flowengine.errors import ModelConfigError, PermanentModelError, TransientModelError
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request, TokenUsage, supports_schema
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.retrying import BEFORE_NEXT, FallbackModel, RetryingModel, add_up_failures

REQUEST = Request("first", (Message("user", "hi"),))


def named(name: str, *answers: object) -> ScriptedModel:
    return ScriptedModel(list(answers), name=name, provider=name[0])  # type: ignore[arg-type]  # whatever is scripted


async def test_the_first_that_answers_is_taken_and_named() -> None:
    second, third = named("second", "here"), named("third", "unused")
    model = FallbackModel([named("first", PermanentModelError("no")), second, third])
    reply = await model.complete(REQUEST)
    assert (reply.content, reply.model, reply.provider, reply.attempts) == ("here", "second", "s", 2)
    assert second.requests[0].model == "second"
    assert third.requests == []
    assert (model.name, model.provider) == ("first", "f")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TransientModelError("busy"), TransientModelError), (PermanentModelError("bad"), PermanentModelError)],
)
async def test_if_all_fail_the_error_tells_of_each(error: Exception, kind: type[Exception]) -> None:
    model = FallbackModel([named("first", PermanentModelError("no")), named("second", error)])
    with pytest.raises(kind, match="all 2 models failed: f/first: no; s/second: b"):
        await model.complete(REQUEST)


async def test_a_single_model_fails_with_its_own_error() -> None:
    error = PermanentModelError("no")
    with pytest.raises(PermanentModelError) as caught:
        await FallbackModel([named("first", error)]).complete(REQUEST)
    assert caught.value is error


async def test_a_wrong_setting_is_no_reason_to_fall_back() -> None:
    with pytest.raises(ModelConfigError):
        await FallbackModel([named("first", ModelConfigError("no key")), named("second", "here")]).complete(REQUEST)


async def test_a_stream_falls_back_before_its_first_piece() -> None:
    model = FallbackModel([named("first", TransientModelError("busy")), named("second", "one two")])
    async with model.stream(REQUEST) as stream:
        *pieces, reply = [piece async for piece in stream]
    assert pieces == ["one ", "two"]
    assert isinstance(reply, Reply)
    assert (reply.model, reply.attempts) == ("second", 2)


class Schemaless(ScriptedModel):
    async def supports_schema(self) -> bool:
        return False


async def test_schemas_are_followed_only_if_all_follow_them() -> None:
    assert await supports_schema(FallbackModel([named("first"), named("second")]))
    assert not await supports_schema(FallbackModel([named("first"), Schemaless([])]))


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FallbackModel([])


def refused(cost_usd: float | None) -> PermanentModelError:
    error = PermanentModelError("no")
    error.reply = Reply("", usage=TokenUsage(10, 2), cost_usd=cost_usd)
    return error


@pytest.mark.parametrize(("cost_usd", "paid"), [(0.5, 0.75), (None, None)])
async def test_a_refusal_before_an_answer_is_on_its_bill(cost_usd: float | None, paid: float | None) -> None:
    answer = Reply("here", usage=TokenUsage(20, 3, 1), cost_usd=0.25)
    reply = await FallbackModel([named("first", refused(cost_usd)), named("second", answer)]).complete(REQUEST)
    assert (reply.usage, reply.cost_usd) == (TokenUsage(30, 5, 1), paid)
    async with FallbackModel([named("first", refused(cost_usd)), named("second", answer)]).stream(REQUEST) as stream:
        assert [piece async for piece in stream][-1] == reply


async def test_refusals_of_all_models_are_on_the_bill_of_the_failure() -> None:
    models = [named("first", refused(0.5)), named("second", refused(0.25)), named("third", TransientModelError("busy"))]
    with pytest.raises(TransientModelError) as caught:
        await FallbackModel(models).complete(REQUEST)
    assert (caught.value.reply.usage, caught.value.reply.cost_usd) == (TokenUsage(20, 4), 0.75)


async def test_before_each_further_attempt_the_failures_of_all_models_are_counted() -> None:
    def late() -> TransientModelError:
        error = TransientModelError("late")
        error.is_timeout, error.unanswered = True, 1
        return error

    counts: list[int] = []
    first, second = named("first", late(), late()), named("second", late(), "here")
    model = FallbackModel([RetryingModel(each, first_wait=0) for each in (first, second)])
    token = BEFORE_NEXT.set(lambda failed: counts.append(add_up_failures(failed)[1]))
    try:
        assert (await model.complete(REQUEST)).content == "here"
    finally:
        BEFORE_NEXT.reset(token)
    assert counts == [1, 2, 3]
