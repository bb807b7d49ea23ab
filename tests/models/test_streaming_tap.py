"""Models that are heard while they write: what is told, and that the answer is the one they give without it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flowengine.errors import PermanentModelError, TransientModelError
from flowengine.models.messages import Message
from flowengine.models.model import Model, Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.models.vendors import RateLimits
from flowengine.models.wrappers.rate import RateLimitedModel, RateLimiter
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel
from flowengine.models.wrappers.streaming_tap import tap_model

ASKED = Request("scripted", (Message("user", "Why?"),))


class Broken(ScriptedModel):
    """Breaks off after the first piece, as often as it is told; then it answers."""

    breaks = 1

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def cut() -> AsyncGenerator[str | Reply]:
            async for piece in pieces:
                yield piece
                if self.breaks:
                    self.breaks -= 1
                    raise TransientModelError("cut off")

        async with super().stream(request) as pieces:
            yield cut()


class Ears:
    """Keeps what it hears: one list for each text."""

    def __init__(self) -> None:
        self.texts: list[list[str]] = []
        self.asked: list[str] = []

    def __call__(self, text: str, begins: bool = False, model: str = "", /) -> None:
        if model:
            self.asked.append(model)
            return
        if begins:
            self.texts.append([])
        self.texts[-1].append(text)


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda model: model,
        lambda model: RetryingModel(model),
        lambda model: RetryingModel(RateLimitedModel(model, RateLimiter(RateLimits(max_parallel=1)))),
        lambda model: FallbackModel([RetryingModel(model), ScriptedModel([])]),
    ],
)
async def test_the_reply_is_the_one_that_is_given_unheard(wrapped, ears: Ears) -> None:
    model: Model = wrapped(ScriptedModel(["Green tea, please.", "Green tea, please."], name="m", provider="p"))
    listened = tap_model(model, ears)
    assert await listened.complete(ASKED) == await model.complete(ASKED)
    assert ears.texts == [["Green ", "tea, ", "please."]]
    assert (listened.name, listened.provider) == (model.name, model.provider)


@pytest.mark.parametrize("is_read", [True, False])
async def test_it_is_told_who_is_asked_at_each_attempt(ears: Ears, is_read: bool) -> None:
    busy = ScriptedModel([TransientModelError("busy", 0.0), "Green tea."])
    reply = await tap_model(RetryingModel(busy, 1, first_wait=0.0), ears, is_read=is_read).complete(ASKED)
    assert reply.content == "Green tea."
    assert ears.asked == ["scripted", "scripted"]
    assert ears.texts == ([["Green ", "tea."]] if is_read else [])


async def test_an_attempt_that_breaks_off_is_made_anew_and_begins_anew(ears: Ears) -> None:
    broken = Broken(["one two three", "one two three"])
    reply = await tap_model(RetryingModel(broken, 1, first_wait=0.0), ears).complete(ASKED)
    assert ears.texts == [["one "], ["one ", "two ", "three"]]
    assert (reply.content, reply.attempts) == ("one two three", 2)


async def test_no_more_attempts_are_made_than_unheard(ears: Ears) -> None:
    broken = Broken(["one two"] * 9)
    broken.breaks = 9
    with pytest.raises(TransientModelError, match="gave up after 3 attempts"):
        await tap_model(RetryingModel(broken, 2, first_wait=0.0), ears).complete(ASKED)
    assert len(broken.requests) == 3
    with pytest.raises(TransientModelError, match=r"^cut off$"):
        await tap_model(broken, ears).complete(ASKED)


async def test_a_fallback_begins_anew(ears: Ears) -> None:
    first, second = Broken(["one two"], name="first"), ScriptedModel(["three"], name="second")
    reply = await tap_model(FallbackModel([first, second]), ears).complete(ASKED)
    assert ears.texts == [["one "], ["three"]]
    assert (reply.model, reply.attempts) == ("second", 2)


async def test_what_fails_at_once_tells_nothing(ears: Ears) -> None:
    with pytest.raises(PermanentModelError, match="gone"):
        await tap_model(ScriptedModel([PermanentModelError("gone")]), ears).complete(ASKED)
    assert ears.texts == []


async def test_a_stream_that_ends_without_its_reply_is_a_failure(ears: Ears) -> None:
    class Short(ScriptedModel):
        @asynccontextmanager
        async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
            async def pieces() -> AsyncGenerator[str | Reply]:
                yield "one"

            yield pieces()

    with pytest.raises(TransientModelError, match="the stream of p/m ended before its answer did"):
        await tap_model(Short([], name="m", provider="p"), ears).complete(ASKED)
