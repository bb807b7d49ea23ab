"""Callers of one vendor wait together after a 429: none of them spends its retries on what the others were told."""

from __future__ import annotations

from time import monotonic

import anyio
import pytest

from flowengine.errors import PermanentModelError, TransientModelError
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request
from flowengine.models.open import get_llm
from flowengine.models.scripted import ScriptedModel
from flowengine.models.throttle import VendorThrottle
from flowengine.models.wrappers.retrying import RetryingModel
from tests.support.model_answers import Failure
from tests.support.model_server import ModelServer

REQUEST = Request("m", (Message("user", "hi"),))
FIRST = 0.02


def refusing(seconds: float, retry_after: float | None = None) -> ScriptedModel:
    """A vendor that refuses everything for so long, counted from its first request."""
    began: list[float] = []

    def answer(request: Request) -> Reply | Exception:
        began.append(now := monotonic())
        if now - began[0] < seconds:
            return TransientModelError("too many", retry_after, is_rate_limit=True)
        return Reply("there")

    return ScriptedModel(answer)


@pytest.mark.parametrize("retry_after", [None, 2 * FIRST])
async def test_sixteen_callers_outlast_a_vendor_that_refuses_for_five_waits(retry_after: float | None) -> None:
    vendor, brake, answers = refusing(5 * FIRST, retry_after), VendorThrottle(first_wait=FIRST), list[str]()

    async def ask() -> None:
        model = RetryingModel(vendor, 3, first_wait=FIRST, brake=brake)
        answers.append((await model.complete(REQUEST)).content)

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(ask)
    assert answers == ["there"] * 16
    assert len(vendor.requests) <= 16 + 8 + 16, "while the vendor refuses, one caller at a time asks it"


async def test_who_comes_while_the_brake_is_closed_waits_and_spends_nothing() -> None:
    vendor, brake = refusing(2 * FIRST), VendorThrottle(first_wait=FIRST)
    with pytest.raises(TransientModelError):
        await brake.through(lambda: vendor.complete(REQUEST))
    assert not brake.is_open
    reply = await RetryingModel(vendor, 3, first_wait=FIRST, brake=brake).complete(REQUEST)
    assert reply.content == "there"
    assert brake.is_open


async def test_a_refusal_that_lasts_ends_each_caller_after_its_own_retries() -> None:
    vendor, brake, failed = refusing(1000), VendorThrottle(first_wait=0.001), list[str]()

    async def ask() -> None:
        with pytest.raises(TransientModelError, match="gave up after 3 attempts"):
            await RetryingModel(vendor, 2, brake=brake).complete(REQUEST)
        failed.append("")

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask)
    assert len(failed) == 4
    assert len(vendor.requests) == 12


async def test_a_wait_is_bounded_and_can_be_cancelled() -> None:
    brake = VendorThrottle(first_wait=1000.0, longest=0.01)
    vendor = refusing(0.005)
    with pytest.raises(TransientModelError):
        await brake.through(lambda: vendor.complete(REQUEST))
    await anyio.sleep(0.005)
    assert (await brake.through(lambda: vendor.complete(REQUEST))).content == "there"
    patient = VendorThrottle(first_wait=1000.0)
    with pytest.raises(TransientModelError):
        await patient.through(lambda: refusing(1).complete(REQUEST))
    with anyio.move_on_after(0.01) as scope:
        await patient.through(lambda: vendor.complete(REQUEST))
    assert scope.cancelled_caught


async def test_a_vendor_that_wants_to_be_left_alone_for_hours_holds_nobody_else() -> None:
    brake = VendorThrottle()
    with pytest.raises(TransientModelError):
        await brake.through(lambda: refusing(1, retry_after=7200.0).complete(REQUEST))
    assert brake.is_open


@pytest.mark.parametrize("other", [TransientModelError("down"), PermanentModelError("no")])
async def test_only_a_refusal_for_too_many_requests_closes_it(other: Exception) -> None:
    brake = VendorThrottle()
    with pytest.raises(type(other)):
        await brake.through(lambda: ScriptedModel([other]).complete(REQUEST))
    assert brake.is_open


async def test_models_of_one_account_share_a_brake_and_others_do_not() -> None:
    with ModelServer(responder=[Failure(429, retry_after=0.05), "a", "b"]) as server:
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        brakes = [
            getattr(get_llm(name, environ=given), "_brake")  # noqa: B009 - private on purpose
            for name, given in (
                ("openai/a", environ),
                ("openai/b", environ),
                ("openai/a", {**environ, "OPENAI_API_KEY": "k2"}),
            )
        ]
        assert brakes[0] is brakes[1] is not brakes[2]
        reply = await get_llm("openai/a", environ=environ).complete(REQUEST)
        assert (reply.content, reply.attempts) == ("a", 2)


async def test_a_vendor_may_refuse_for_ever() -> None:
    throttle, error = VendorThrottle(first_wait=1e-9), TransientModelError("too many", 0.0, is_rate_limit=True)
    model = ScriptedModel(lambda _: error)
    for _ in range(1100):
        with pytest.raises(TransientModelError):
            await throttle.through(lambda: model.complete(REQUEST))
