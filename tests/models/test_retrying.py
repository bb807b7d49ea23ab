from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import anyio
import pytest

from flowengine.errors import PermanentModelError, TransientModelError
from flowengine.models.messages import Message
from flowengine.models.model import Model, Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.retrying import RetryingModel

REQUEST = Request("m", (Message("user", "hi"),))
BUSY = TransientModelError("busy")


def quick(model: Model, max_retries: int = 3) -> RetryingModel:
    return RetryingModel(model, max_retries, first_wait=0.001)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that were asked for; none of them is waited."""
    asked: list[float] = []

    async def record(seconds: float) -> None:
        if seconds:  # the scripted model's latency goes the same way
            asked.append(seconds)

    monkeypatch.setattr("flowengine.models.wrappers.retrying.anyio.sleep", record)
    return asked


async def test_what_may_work_later_is_tried_again_and_counted() -> None:
    reply = await quick(ScriptedModel([BUSY, BUSY, "there"])).complete(REQUEST)
    assert (reply.content, reply.attempts) == ("there", 3)


async def test_the_attempts_inside_count_too() -> None:
    reply = await quick(ScriptedModel([BUSY, Reply("there", attempts=2)])).complete(REQUEST)
    assert reply.attempts == 3


async def test_a_permanent_failure_is_not_tried_again() -> None:
    model = ScriptedModel([PermanentModelError("no")])
    with pytest.raises(PermanentModelError, match=r"^no$"):
        await quick(model).complete(REQUEST)
    assert len(model.requests) == 1


@pytest.mark.parametrize(("max_retries", "said"), [(0, "^busy$"), (2, r"^busy \(gave up after 3 attempts\)$")])
async def test_it_gives_up_after_max_retries(max_retries: int, said: str) -> None:
    model = ScriptedModel(lambda request: BUSY)
    with pytest.raises(TransientModelError, match=said):
        await quick(model, max_retries).complete(REQUEST)
    assert len(model.requests) == max_retries + 1


async def test_what_it_gives_up_on_still_says_how_long_to_wait_and_for_which_limit() -> None:
    model = ScriptedModel(lambda request: TransientModelError("busy", retry_after=0.001, is_rate_limit=True))
    with pytest.raises(TransientModelError, match="gave up after 3 attempts") as caught:
        await quick(model, 2).complete(REQUEST)
    assert (caught.value.retry_after, caught.value.is_rate_limit) == (0.001, True)


async def test_waits_double_within_full_jitter_and_stay_below_the_longest(waits: list[float]) -> None:
    with pytest.raises(TransientModelError):
        await RetryingModel(ScriptedModel(lambda request: BUSY), 8, first_wait=1, longest_wait=20).complete(REQUEST)
    assert all(0 <= wait <= min(20, 2**n) for n, wait in enumerate(waits))
    assert len(set(waits)) == 8


async def test_the_wait_is_what_the_server_asked_for_and_then_differs_from_caller_to_caller(waits: list[float]) -> None:
    for _ in range(5):
        model = ScriptedModel([TransientModelError("busy", retry_after=7.5), "there"])
        await RetryingModel(model, first_wait=0.5).complete(REQUEST)
    assert len(set(waits)) == 5
    assert all(7.5 <= wait <= 8.0 for wait in waits)


async def test_a_server_that_asks_for_too_long_is_given_up_at_once(waits: list[float]) -> None:
    model = ScriptedModel([TransientModelError("come back tomorrow", retry_after=86400)])
    with pytest.raises(TransientModelError, match=r"tomorrow \(the server asks to wait 86,400 s, which is too long\)"):
        await quick(model).complete(REQUEST)
    assert waits == []


async def test_a_wait_can_be_cancelled() -> None:
    model = ScriptedModel([TransientModelError("", retry_after=30)])
    started = time.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(RetryingModel(model).complete, REQUEST)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert len(model.requests) == 1
    assert time.monotonic() - started < 30


async def test_an_attempt_that_is_cancelled_is_not_repeated() -> None:
    model = HangingModel([BUSY])
    async with anyio.create_task_group() as group:
        group.start_soon(quick(model).complete, REQUEST)
        with anyio.fail_after(60):
            await model.hanging.wait()
        group.cancel_scope.cancel()
    assert len(model.requests) == 2


class HangingModel(ScriptedModel):
    """Never answers once its script has ended."""

    def __init__(self, script: list[Any]) -> None:
        super().__init__(script)
        self.hanging = anyio.Event()

    async def complete(self, request: Request) -> Reply:
        if not self.requests:
            return await super().complete(request)
        self.requests.append(request)
        self.hanging.set()
        return await anyio.sleep_forever()


async def test_what_an_attempt_raises_that_is_no_models_failure_comes_out_as_it_is() -> None:
    def script(request: Request) -> Any:
        if len(model.requests) == 1:
            return BUSY
        raise KeyError("mine")

    model = ScriptedModel(script)
    with pytest.raises(KeyError, match="mine"):
        await quick(model).complete(REQUEST)
    assert len(model.requests) == 2


def test_a_call_that_works_at_once_does_without_the_library() -> None:
    code = """
import asyncio, sys
from flowengine.models.model import Request
from flowengine.models.wrappers.retrying import RetryingModel
from flowengine.models.scripted import ScriptedModel
asyncio.run(RetryingModel(ScriptedModel(["there"])).complete(Request("m", ())))
sys.exit("tenacity" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_stream_is_opened_anew_until_its_first_piece() -> None:
    async with quick(ScriptedModel([BUSY, "one two"])).stream(REQUEST) as stream:
        *pieces, reply = [piece async for piece in stream]
    assert "".join(pieces) == "one two"
    assert isinstance(reply, Reply)
    assert reply.attempts == 2


async def test_a_stream_that_breaks_off_later_is_not_repeated() -> None:
    model = BreakingModel()
    seen: list[Any] = []

    async def read() -> None:
        async with quick(model).stream(REQUEST) as stream:
            while True:
                seen.append(await anext(stream))

    with pytest.raises(TransientModelError):
        await read()
    assert seen == ["one"]
    assert model.streams == [True]


class BreakingModel(ScriptedModel):
    """Streams one piece and fails; `streams` says for each whether it was left properly."""

    def __init__(self) -> None:
        super().__init__([])
        self.streams: list[bool] = []

    def stream(self, request: Request) -> Any:
        return self

    async def __aenter__(self) -> Any:
        self.streams.append(False)

        async def pieces() -> Any:
            yield "one"
            raise BUSY

        return pieces()

    async def __aexit__(self, *exc: object) -> None:
        self.streams[-1] = True


async def test_it_is_called_what_the_model_inside_is_called() -> None:
    model = quick(ScriptedModel([], name="n", provider="p"))
    assert (model.name, model.provider, await model.supports_schema()) == ("n", "p", True)
