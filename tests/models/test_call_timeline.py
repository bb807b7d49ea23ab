"""What a call waited for on its way to its answer is on its record."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import anyio

from flowengine.agents.standalone import DirectGateway
from flowengine.core.records import ModelCall
from flowengine.errors import TransientModelError
from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.models.throttle import VendorThrottle
from flowengine.models.vendors import RateLimits
from flowengine.models.wrappers.rate import RateLimitedModel, RateLimiter
from flowengine.models.wrappers.retrying import RetryingModel

ASKED = Request("m", (Message("user", "hi"),))
BUSY = TransientModelError("503 busy")
LIMITED = TransientModelError("429 slow down", is_rate_limit=True)


async def timelines(model: Any, calls: int = 1) -> list[list[tuple[str, str]]]:
    """Of calls that are made together: each step with its error, in the order in which they began."""
    told: list[ModelCall] = []

    async def note(record: Any) -> None:
        told.append(record)

    async def ask() -> None:
        with suppress(TransientModelError):
            await DirectGateway(note).complete(model, ASKED, purpose="generation")

    async with anyio.create_task_group() as tasks:
        for _ in range(calls):
            tasks.start_soon(ask)
    for call in told:
        assert all(0 <= step["seconds"] <= step["ago"] for step in call.timeline)
    return [[(step["what"], step.get("error", "")) for step in call.timeline] for call in told]


async def test_a_call_that_was_answered_at_once_has_no_steps() -> None:
    assert await timelines(RetryingModel(ScriptedModel(["there"]))) == [[]]


async def test_attempts_that_failed_and_the_waits_behind_them_are_steps() -> None:
    model = RetryingModel(ScriptedModel([BUSY, LIMITED, "there"]), first_wait=0.05)
    (steps,) = await timelines(model)
    assert [each for each in steps if each[0] == "attempt"] == [("attempt", "503 busy"), ("attempt", "429 slow down")]
    assert set(steps) <= {
        ("attempt", "503 busy"), ("attempt", "429 slow down"), ("backoff", "503 busy"), ("rate_limit", "429 slow down"),
    }  # fmt: skip


async def test_a_wait_at_the_brake_of_a_vendor_is_that_of_a_429() -> None:
    model = RetryingModel(ScriptedModel([LIMITED, "there"]), brake=VendorThrottle(first_wait=0.02))
    assert await timelines(model) == [[("attempt", "429 slow down"), ("rate_limit", "")]]


async def test_a_wait_that_is_left_to_the_brake_is_no_step_of_its_own_on_a_busy_loop() -> None:
    async def hold_up() -> None:
        while True:
            time.sleep(0.002)  # noqa: ASYNC251 - longer than the shortest step that is told
            await anyio.lowlevel.checkpoint()

    model = RetryingModel(ScriptedModel([LIMITED, "there"]), brake=VendorThrottle(first_wait=0.02))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold_up)
        told = await timelines(model)
        tasks.cancel_scope.cancel()
    assert told == [[("attempt", "429 slow down"), ("rate_limit", "")]]


async def test_a_call_that_fails_for_good_tells_its_attempts() -> None:
    model = RetryingModel(ScriptedModel(lambda _: BUSY), 1, first_wait=0.0)
    assert [what for what, _ in (await timelines(model))[0]].count("attempt") == 2


async def test_loading_and_the_wait_for_a_turn_are_steps() -> None:
    class Slow(ScriptedModel):
        async def ready(self) -> None:
            await anyio.sleep(0.002)

    model = RateLimitedModel(Slow(["a", "b"], latency=0.01), RateLimiter(RateLimits(max_parallel=1)))
    first, second = await timelines(model, calls=2)
    assert first == [("loading", "")]
    assert second == [("loading", ""), ("queued", "")]
