from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextvars import ContextVar

import anyio
import pytest

from flowengine.models.litellm.event_loop import LoopThread

colour: ContextVar[str] = ContextVar("colour")


async def nothing() -> None:
    return None


async def test_a_coroutine_runs_in_one_asyncio_loop_elsewhere(thread: LoopThread) -> None:
    async def where() -> tuple[int, str, asyncio.AbstractEventLoop]:
        await asyncio.sleep(0)
        return threading.get_ident(), threading.current_thread().name, asyncio.get_running_loop()

    first, second = await thread.call(where), await thread.call(where)
    assert first == second
    assert first[0] != threading.get_ident()
    assert first[1] == "test loop"


async def test_anyio_knows_that_it_is_asyncio_there(thread: LoopThread) -> None:
    async def sleep() -> str:
        await anyio.sleep(0.001)
        return await anyio.to_thread.run_sync(lambda: "slept")

    assert await thread.call(sleep) == "slept"


async def test_what_it_raises_is_raised_here(thread: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await thread.call(fail)


async def test_it_sees_the_callers_context_variables(thread: LoopThread) -> None:
    async def read() -> str:
        return colour.get()

    colour.set("green")
    assert await thread.call(read) == "green"


async def test_being_cancelled_here_cancels_it_there(thread: LoopThread) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            begun.set()
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(thread.call, wait)
        assert await anyio.to_thread.run_sync(begun.wait, 60)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(cancelled.wait, 60)


async def test_many_calls_wait_at_once(thread: LoopThread) -> None:
    done: list[int] = []
    inside: set[int] = set()
    all_inside = asyncio.Event()

    async def meet(number: int) -> int:
        inside.add(number)
        if len(inside) == 200:
            all_inside.set()
        await all_inside.wait()  # Each goes on only once all of them wait at the same time.
        return number

    async def one(number: int) -> None:
        done.append(await thread.call(lambda: meet(number)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(one, number)
    assert sorted(done) == list(range(200))


def test_a_caller_whose_loop_has_ended_disturbs_nobody(thread: LoopThread) -> None:
    begun, release = threading.Event(), threading.Event()

    async def stubborn() -> None:
        try:
            begun.set()
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.to_thread(release.wait, 60)

    async def leave() -> None:
        begun.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(thread.call, stubborn)
            assert await anyio.to_thread.run_sync(begun.wait, 60)
            group.cancel_scope.cancel()

    for backend in ("asyncio", "trio"):
        anyio.run(leave, backend=backend)
    release.set()
    anyio.run(thread.call, nothing)


async def test_a_loop_that_was_stopped_fails_the_calls_under_way(thread: LoopThread) -> None:
    async def wait() -> None:
        await asyncio.sleep(60)

    job = thread.begin(wait)
    await thread.call(nothing)
    await anyio.to_thread.run_sync(thread.stop)
    with pytest.raises(RuntimeError, match="stopped"):
        await job.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gets_a_thread_of_its_own() -> None:
    code = """
import anyio, os, sys, warnings
from flowengine.models.litellm.event_loop import LoopThread
async def one(): return 1
thread = LoopThread("x", close=one)
anyio.run(thread.call, one)
child = os.fork()
if child == 0:
    anyio.run(thread.call, one)
    os._exit(7)
sys.exit(0 if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7 else 1)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=30)
    assert done.returncode == 0
