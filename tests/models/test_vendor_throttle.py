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
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel
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
    vendor, brake, failed = refusing(1000), VendorThrottle(first_wait=0.001, longest=0.0), list[str]()

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


async def test_a_model_of_an_account_has_one_brake_and_another_model_its_own() -> None:
    with ModelServer(responder=[Failure(429, retry_after=0.05), "a", "b"]) as server:
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        brakes = [
            getattr(get_llm(name, environ=given), "_brake")  # noqa: B009 - private on purpose
            for name, given in (
                ("openai/a", environ),
                ("openai/a", environ),
                ("openai/b", environ),
                ("openai/a", {**environ, "OPENAI_API_KEY": "k2"}),
            )
        ]
        assert brakes[0] is brakes[1]
        assert len({id(each) for each in brakes}) == 3
        reply = await get_llm("openai/a", environ=environ).complete(REQUEST)
        assert (reply.content, reply.attempts) == ("a", 2)


async def test_a_vendor_may_refuse_for_ever() -> None:
    throttle, error = VendorThrottle(first_wait=1e-9), TransientModelError("too many", 0.0, is_rate_limit=True)
    model = ScriptedModel(lambda _: error)
    for _ in range(1100):
        with pytest.raises(TransientModelError):
            await throttle.through(lambda: model.complete(REQUEST))


class Bucket:
    """A vendor that takes so many requests a second, and four at once after a rest."""

    def __init__(self, a_second: float) -> None:
        self.refused = 0
        self._rate, self._left, self._at = a_second, 4.0, monotonic()

    def __call__(self, request: Request) -> Reply | Exception:
        now = monotonic()
        self._left = min(4.0, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            self.refused += 1
            return TransientModelError("too many", 4 / self._rate, is_rate_limit=True)
        self._left -= 1
        return Reply("there")


@pytest.mark.parametrize("at_once", [8, 50])
async def test_all_rows_outlast_a_vendor_that_takes_few_requests_a_second(at_once: int) -> None:
    vendor, brake, answers = Bucket(200), VendorThrottle(first_wait=FIRST), list[str]()
    model, places = ScriptedModel(vendor), anyio.CapacityLimiter(at_once)

    async def row() -> None:
        async with places:
            for _ in range(2):
                reply = await RetryingModel(model, 3, first_wait=FIRST, brake=brake).complete(REQUEST)
                answers.append(reply.content)

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(row)
    assert answers == ["there"] * 100


def failing(status: int) -> TransientModelError:
    error = TransientModelError("down")
    error.status = status
    return error


async def test_an_outage_costs_several_callers_no_retry_and_a_request_that_fails_alone_holds_nobody() -> None:
    brake, answers = VendorThrottle(first_wait=FIRST), list[str]()
    vendor = ScriptedModel(lambda _: failing(500) if len(vendor.requests) < 20 else Reply("there"))

    async def ask() -> None:
        answers.append((await RetryingModel(vendor, 3, first_wait=FIRST, brake=brake).complete(REQUEST)).content)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(ask)
    assert answers == ["there"] * 8
    alone = VendorThrottle(first_wait=FIRST)
    with pytest.raises(TransientModelError, match="gave up after 4 attempts"):
        await RetryingModel(ScriptedModel(lambda _: failing(500)), 3, first_wait=0.0, brake=alone).complete(REQUEST)
    assert alone.is_open


async def test_an_overload_is_waited_out_by_one_caller_too() -> None:
    vendor, brake = ScriptedModel([failing(529)] * 5 + ["there"]), VendorThrottle(first_wait=0.001)
    assert (await RetryingModel(vendor, 1, brake=brake).complete(REQUEST)).attempts == 6


async def test_a_refusal_counts_where_another_model_can_be_asked() -> None:
    brake = VendorThrottle(first_wait=0.001)
    busy = RetryingModel(refusing(1000), 1, brake=brake)
    reply = await FallbackModel([busy, ScriptedModel(["from the other"])]).complete(REQUEST)
    assert (reply.content, reply.attempts) == ("from the other", 2)
