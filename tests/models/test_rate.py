from __future__ import annotations

import threading
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request, TokenUsage
from flowengine.models.scripted import ScriptedModel
from flowengine.models.vendors import RateLimits
from flowengine.models.wrappers.rate import RateLimitedModel, RateLimiter, _Minute, limiter_for

REQUEST = Request("m", (Message("user", "hi"),))


def test_a_call_waits_no_longer_than_until_enough_tokens_are_a_minute_old() -> None:
    minute = _Minute(None, 100, 60.0)
    assert [minute.reserve(tokens, now).at for tokens, now in ((60, 0.0), (40, 30.0), (60, 40.0), (40, 45.0))] == [
        *(0.0, 30.0),  # Exactly the limit.
        *(60.0, 90.0),
    ]


@settings(deadline=None, max_examples=100)
@given(
    calls=st.lists(st.tuples(st.floats(0, 50), st.integers(0, 120)), max_size=40),
    requests=st.none() | st.integers(1, 5),
    tokens=st.none() | st.integers(50, 200),
)
def test_no_minute_holds_more_than_the_limits_allow(
    calls: list[tuple[float, int]], requests: int | None, tokens: int | None
) -> None:
    minute, now, granted = _Minute(requests, tokens, 60.0), 0.0, []
    for pause, size in calls:
        now += pause
        entry = minute.reserve(size, now)
        assert entry.at >= now
        granted.append((entry.at, size))
    assert granted == sorted(granted, key=lambda each: each[0])
    for start, _ in granted:
        inside = [size for at, size in granted if start <= at < start + 60 - 1e-6]
        assert requests is None or len(inside) <= requests
        assert tokens is None or sum(inside) <= tokens or len(inside) == 1


def test_within_the_limits_nobody_waits() -> None:
    minute = _Minute(3, None, 60.0)
    assert [minute.reserve(0, 5.0).at for _ in range(4)] == [5.0, 5.0, 5.0, 65.0]


async def test_calls_beyond_the_limit_wait_for_the_next_minute_in_order() -> None:
    limiter = RateLimiter(RateLimits(requests_per_minute=2), minute=0.15)
    order: list[tuple[int, float]] = []
    started = time.monotonic()

    async def call(number: int) -> None:
        async with limiter.turn(0):
            order.append((number, time.monotonic() - started))

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(call, number)
            await anyio.sleep(0.001)
    numbers = [number for number, _ in order]
    assert [set(numbers[:2]), set(numbers[2:4]), numbers[4]] == [{0, 1}, {2, 3}, 4]
    assert order[2][1] > 0.14
    assert order[4][1] > 0.29


async def test_a_reservation_is_corrected_by_the_real_usage() -> None:
    limiter = RateLimiter(RateLimits(tokens_per_minute=1000), minute=30)
    reply = Reply("x", usage=TokenUsage(10, 5))
    model = RateLimitedModel(ScriptedModel([reply] * 20), limiter)
    request = Request("m", (Message("user", "hi"),), max_tokens=900)
    with anyio.fail_after(20):
        for _ in range(4):  # 4 x 900 were expected, 4 x 15 taken
            await model.complete(request)


class Watching(ScriptedModel):
    """Counts how many calls are under way at once."""

    def __init__(self) -> None:
        super().__init__(lambda request: "x", latency=0.01)
        self.now = self.most = 0
        self.lock = threading.Lock()

    async def complete(self, request: Request) -> Reply:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            return await super().complete(request)
        finally:
            with self.lock:
                self.now -= 1


async def test_no_more_than_max_parallel_run_at_once() -> None:
    inner = Watching()
    model = RateLimitedModel(inner, RateLimiter(RateLimits(max_parallel=3)))
    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(model.complete, REQUEST)
    assert (inner.most, len(inner.requests)) == (3, 12)


def test_event_loops_in_several_threads_share_one_limit() -> None:
    inner = Watching()
    model = RateLimitedModel(inner, RateLimiter(RateLimits(max_parallel=2)))

    async def several() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(model.complete, REQUEST)

    def run(backend: str) -> None:
        anyio.run(several, backend=backend)

    threads = [threading.Thread(target=run, args=(backend,)) for backend in ("asyncio", "trio", "asyncio")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=20)
    assert (inner.most, len(inner.requests)) == (2, 24)


async def test_a_cancelled_waiter_takes_no_slot_with_it() -> None:
    limiter = RateLimiter(RateLimits(max_parallel=1))
    order: list[str] = []
    given_up = anyio.Event()

    async def hold(name: str) -> None:
        async with limiter.turn(0):
            order.append(name)
            if name == "first":
                await given_up.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(hold, "first")
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01):
            await hold("impatient")
        given_up.set()
        group.start_soon(hold, "second")
    async with limiter.turn(0):
        assert order == ["first", "second"]


async def test_a_waiter_cancelled_just_when_it_is_its_turn_passes_it_on() -> None:
    limiter = RateLimiter(RateLimits(max_parallel=1))
    scope = anyio.CancelScope()
    got: list[Any] = []

    async def waiter() -> None:
        with scope:
            async with limiter.turn(0):
                got.append("cancelled one")
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        async with limiter.turn(0):
            group.start_soon(waiter)
            await anyio.sleep(0.01)
        scope.cancel()  # the slot was handed over, the waiter has not run yet
    with anyio.fail_after(20):
        async with limiter.turn(0):
            pass


async def test_a_stream_holds_its_turn_until_it_is_left() -> None:
    limiter = RateLimiter(RateLimits(max_parallel=1, tokens_per_minute=100))
    model = RateLimitedModel(ScriptedModel(["one two", "three"]), limiter)
    async with model.stream(REQUEST) as stream:
        assert [piece async for piece in stream][:2] == ["one ", "two"]
        with anyio.move_on_after(0.02) as scope:
            await model.complete(REQUEST)
        assert scope.cancelled_caught
    assert (await model.complete(REQUEST)).content == "three"


def test_a_vendor_has_one_limiter_in_a_process() -> None:
    limits = RateLimits(requests_per_minute=7)
    assert limiter_for("p", limits) is limiter_for("p", RateLimits(requests_per_minute=7))
    assert limiter_for("p", limits) is not limiter_for("q", limits)
    assert limiter_for("p", limits) is not limiter_for("p", RateLimits(requests_per_minute=8))


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "max_parallel"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is at least 1, not 0"):
        RateLimits(**{name: 0})


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_model_loads_what_it_needs_before_it_asks_for_its_turn(is_streamed: bool) -> None:
    order: list[str] = []

    class Loading(ScriptedModel):
        async def ready(self) -> None:
            order.append("ready")

    class Watched(RateLimiter):
        def turn(self, tokens: int) -> Any:
            order.append("turn")
            return super().turn(tokens)

    model = RateLimitedModel(Loading(["x"]), Watched(RateLimits(max_parallel=1)))
    if is_streamed:
        async with model.stream(REQUEST):
            pass
    else:
        await model.complete(REQUEST)
    assert order == ["ready", "turn"]


async def test_calls_that_are_cancelled_while_they_wait_leave_their_places_to_others() -> None:
    limiter = RateLimiter(RateLimits(requests_per_minute=1), minute=60)

    async def call() -> None:
        async with limiter.turn(0):
            pass

    await call()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    now = time.monotonic()
    assert 0 < limiter._minute.reserve(0, now).at - now <= 60, "the call that was made counts, the others do not"
