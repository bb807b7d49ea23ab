"""Which loop a coroutine runs on, and what becomes of what the library keeps for that loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import anyio
import pytest
import sniffio

from flowengine.agents.standalone import run_sync
from flowengine.core.threads import is_short_lived, short_lived
from flowengine.models.litellm.event_loop import AsyncioHome

colour: ContextVar[str] = ContextVar("colour")


class Closings:
    """Where it was closed, and which loops were forgotten."""

    def __init__(self) -> None:
        self.closed: list[asyncio.AbstractEventLoop] = []
        self.forgotten: list[asyncio.AbstractEventLoop] = []

    async def close(self) -> None:
        await asyncio.sleep(0.001)
        self.closed.append(asyncio.get_running_loop())


@pytest.fixture
def closings() -> Closings:
    return Closings()


@pytest.fixture
def home(closings: Closings) -> Iterator[AsyncioHome]:
    made = AsyncioHome("test home", closings.close, closings.forgotten.append)
    yield made
    made.stop()


async def where() -> tuple[asyncio.AbstractEventLoop, str]:
    await asyncio.sleep(0.001)
    return asyncio.get_running_loop(), threading.current_thread().name


async def test_it_runs_on_the_callers_loop_where_that_is_asyncio(home: AsyncioHome) -> None:
    loop, thread = await home.call(where)
    if sniffio.current_async_library() == "asyncio":
        assert (loop, thread) == (asyncio.get_running_loop(), threading.current_thread().name)
    else:
        assert thread == "test home"


async def test_callers_in_a_loop_that_ends_with_the_call_share_a_thread(home: AsyncioHome) -> None:
    with short_lived():
        first = await home.call(where)
    assert first[1] == "test home"
    assert await anyio.to_thread.run_sync(run_sync, lambda: home.call(where)) == first
    assert not is_short_lived()


async def test_what_it_raises_is_raised_here(home: AsyncioHome) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        await home.call(fail)


async def test_its_context_variables_are_the_callers_but_stay_its_own(home: AsyncioHome) -> None:
    async def change() -> str:
        before = colour.get()
        colour.set("red")
        return before

    colour.set("green")
    assert await home.call(change) == "green"
    assert colour.get() == "green"


async def test_being_cancelled_here_cancels_it_once(home: AsyncioHome) -> None:
    """It may clean up in peace, as asyncio's libraries expect it: anyio cancels again and again."""
    told: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append("cancelled")
            await asyncio.sleep(0.05)
            told.append("cleaned up")
            ended.set()
            raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(home.call, wait)
        assert await anyio.to_thread.run_sync(begun.wait, 30)
        tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught
    assert await anyio.to_thread.run_sync(ended.wait, 30)
    assert told == ["cancelled", "cleaned up"]


# --- loops that end


@pytest.fixture(params=["asyncio.run", "anyio.run"])
def run(request: pytest.FixtureRequest) -> Callable[..., object]:
    return asyncio.run if request.param == "asyncio.run" else lambda call: anyio.run(lambda: call)


def test_what_is_kept_for_a_loop_is_closed_in_it_before_it_ends(
    home: AsyncioHome, closings: Closings, run: Callable[..., object]
) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def calls() -> None:
        loops.extend([(await home.call(where))[0] for _ in range(3)])
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(home.call, where)
        assert asyncio.get_running_loop() not in closings.closed

    for _ in range(2):
        run(calls())
    assert closings.closed == [loops[0], loops[3]]
    assert loops[0] is not loops[3]
    assert closings.forgotten == []


def test_a_call_under_way_when_the_loop_ends_disturbs_nobody(home: AsyncioHome, closings: Closings) -> None:
    async def begin() -> None:
        home.begin(lambda: asyncio.sleep(60))
        await asyncio.sleep(0.001)

    asyncio.run(begin())
    assert len(closings.closed) == 1


def test_what_goes_wrong_with_closing_is_not_the_business_of_who_ends_the_loop(closings: Closings) -> None:
    async def fail() -> None:
        raise ValueError("too late")

    home = AsyncioHome("test home", fail, closings.forgotten.append)
    asyncio.run(home.call(where))


def test_a_loop_that_was_closed_without_a_word_is_forgotten_when_another_one_comes(
    home: AsyncioHome, closings: Closings
) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(home.call(where))
    loop.close()
    assert (closings.closed, closings.forgotten) == ([], [])
    asyncio.run(home.call(where))
    assert closings.forgotten == [loop]
    assert len(closings.closed) == 1


def test_loops_in_many_threads_at_once_are_kept_apart(home: AsyncioHome, closings: Closings) -> None:
    async def calls() -> None:
        for _ in range(20):
            assert (await home.call(where))[0] is asyncio.get_running_loop()

    threads = [threading.Thread(target=asyncio.run, args=(calls(),)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(closings.closed)) == 8
