"""How much slower than usual this machine is right now, so that a promise in seconds can be tested on a busy one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest

__all__ = ["busyness", "quickest", "slowness"]

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


def quickest(refusal: type[Exception], work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the quickest of some tries, each of which must be refused: what others do beside it only adds.

    Without the garbage collector, whose time is that of all the objects of the test process.
    """
    taken: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(times):
            begun = time.thread_time()
            with pytest.raises(refusal):
                work()
            taken.append(time.thread_time() - begun)
    finally:
        gc.enable()
    return min(taken)
