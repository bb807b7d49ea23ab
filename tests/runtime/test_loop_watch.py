"""The watch of an event loop, on both kinds of loops."""

from __future__ import annotations

import threading
import time

import anyio.lowlevel

from flowengine.runtime.loop_watch import LoopHold, watch_this_loop


def work_for(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_work_that_holds_the_loop_is_named_while_it_goes_on_and_when_it_has_ended() -> None:
    told: list[LoopHold] = []
    with watch_this_loop(told.append):
        work_for(0.3)
        await anyio.sleep(0.05)
    going_on, ended = told
    assert going_on.cpu_seconds is None
    assert ended.cpu_seconds is not None
    assert ended.cpu_seconds >= 0.3
    assert ended.places[0].split(":")[0].endswith("tests/runtime/test_loop_watch.py")
    assert [place.split()[-1] for place in ended.places][:2] == [
        "work_for",
        "test_work_that_holds_the_loop_is_named_while_it_goes_on_and_when_it_has_ended",
    ]
    assert "work_for" in str(going_on)
    assert "of it at work" in str(ended)


async def test_what_holds_the_loop_for_good_is_named_all_the_same() -> None:
    told: list[LoopHold] = []
    named = threading.Event()

    def hear(hold: LoopHold) -> None:
        told.append(hold)
        named.set()

    with watch_this_loop(hear):
        assert named.wait(30)  # Nothing else can happen in this loop before.
        assert told[0].cpu_seconds is None
        assert any("test_what_holds" in place for place in told[0].places)


async def test_a_loop_with_much_to_do_in_small_parts_is_not_held() -> None:
    told: list[LoopHold] = []
    with watch_this_loop(told.append):
        for _ in range(100):
            work_for(0.005)
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.2)
    assert not [each for each in told if (each.cpu_seconds or 0) > 0.1]


async def test_the_limit_can_be_another() -> None:
    told: list[LoopHold] = []
    with watch_this_loop(told.append, limit=60):
        work_for(0.2)
        await anyio.sleep(0.05)
    assert told == []
