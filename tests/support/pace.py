"""How much slower than usual this machine is right now, so that a promise in seconds can be tested on a busy one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

__all__ = ["busyness", "refused_within", "slowness"]

USUAL = 0.010
"""Thread seconds that the reference work takes on a quiet machine of the kind that the promises are made for."""


def _work() -> int:
    total = 0
    for each in range(200_000):
        total += each % 7
    return total


def slowness() -> float:
    """1.0 on a quiet machine, 2.0 where a thread gets half as far; never below 1.0."""
    begun = time.thread_time()
    _work()
    return max(1.0, (time.thread_time() - begun) / USUAL)


def busyness() -> float:
    """How many times as long something takes by the clock as on a quiet machine, which has a core for it: 1.0 there."""
    begun, spent = time.perf_counter(), time.thread_time()
    while time.thread_time() - spent < 0.05:
        _work()
    return max(1.0, (time.perf_counter() - begun) / (time.thread_time() - spent)) * slowness()


def refused_within(seconds: float, refusal: type[Exception], work: Callable[[], object]) -> bool:
    """Whether the work is refused in so many CPU seconds, in one of three tries: what others do beside it only adds.

    In a thread of its own, whose stack of calls begins empty: how deep a test is called would decide otherwise
    whether the interpreter's stack grows and shrinks by a page at every call, which takes five times as long.
    Without the garbage collector, whose time is that of all the objects of the test process.
    """

    def taken() -> float:
        begun = time.thread_time()
        with pytest.raises(refusal):
            work()
        return time.thread_time() - begun

    gc.disable()
    try:
        with ThreadPoolExecutor(1) as thread:
            return any(thread.submit(taken).result() < seconds * slowness() for _ in range(3))
    finally:
        gc.enable()
