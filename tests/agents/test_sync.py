"""From synchronous code into an event loop, wherever that code runs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from flowengine.agents.standalone import in_event_loop, run_sync


async def thread_name() -> str:
    await anyio.lowlevel.checkpoint()
    return threading.current_thread().name


def test_without_a_running_loop_it_runs_in_this_thread() -> None:
    assert not in_event_loop()
    assert run_sync(thread_name) == threading.current_thread().name


@pytest.mark.parametrize("start", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)], ids=["asyncio", "trio"])
def test_within_a_running_loop_a_thread_with_its_own_loop_does_it(start: Any) -> None:
    async def within() -> tuple[bool, str]:
        return in_event_loop(), run_sync(thread_name)

    running, name = start(within())
    assert running
    assert name.startswith("flowengine")


@pytest.mark.parametrize("start", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)], ids=["asyncio", "trio"])
def test_an_error_comes_out_as_it_was_raised(start: Any) -> None:
    async def failing() -> None:
        raise LookupError("here")

    async def within() -> None:
        run_sync(failing)

    with pytest.raises(LookupError, match="here"):
        start(within())
    with pytest.raises(LookupError, match="here"):
        run_sync(failing)


async def test_an_interrupt_of_the_thread_that_waits_stops_what_runs_in_the_other_one():
    ended = threading.Event()

    async def work() -> None:
        await anyio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)  # Python tells the main thread, which waits.
        try:
            await anyio.sleep(60)
        finally:
            ended.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_sync(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()
    assert time.monotonic() - begun < 30
