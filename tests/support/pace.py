"""How much slower than usual this machine is right now, so that a promise in seconds can be tested on a busy one."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

__all__ = ["Pace", "done_within", "measured_pace", "refused_within", "slowness", "spent_within"]

MOST = 12.0
"""How many times longer than promised something may take at most, however slow the machine is."""

USUAL = 0.010
"""Thread seconds that the reference work takes on a quiet machine of the kind that the promises are made for."""


def _work() -> int:
    total = 0
    for each in range(200_000):
        total += each % 7
    return total


def slowness() -> float:
    """1.0 on a quiet machine, 2.0 where a thread gets half as far; from 1.0 to `MOST`."""
    begun = time.thread_time()
    _work()
    return _bounded((time.thread_time() - begun) / USUAL)


def _bounded(factor: float) -> float:
    return min(max(1.0, factor), MOST)


class Pace:
    """How much slower than on a quiet machine things go by the clock, while a thread works now and then beside them."""

    def __init__(self) -> None:
        self._by_clock = self._worked = 0.0

    def sample(self, done: threading.Event) -> None:
        while True:
            begun, spent = time.perf_counter(), time.thread_time()
            _work()
            self._by_clock += time.perf_counter() - begun
            self._worked += USUAL
            if done.wait(9 * (time.thread_time() - spent)):
                return

    def factor(self) -> float:
        """1.0 on a quiet machine, which has a core for each thread; at most `MOST`.

        Work of several processes, a browser's say, waits for each of them: it is as slow as the queue for the cores
        is long, where that is longer than what one thread sees of it.
        """
        queue = os.getloadavg()[0] / len(os.sched_getaffinity(0))
        return _bounded(max(queue, self._by_clock / self._worked if self._worked else slowness()))


@contextmanager
def measured_pace() -> Generator[Pace]:
    """The pace of the machine during a block."""
    pace, done = Pace(), threading.Event()
    thread = threading.Thread(target=pace.sample, args=(done,), daemon=True)
    thread.start()
    try:
        yield pace
    finally:
        done.set()
        thread.join()


@contextmanager
def done_within(seconds: float) -> Generator[None]:
    """Fail a block that takes longer by the clock than so many seconds of a quiet machine, which has a core for it."""
    with measured_pace() as pace:
        begun = time.perf_counter()
        yield
        took = time.perf_counter() - begun
    if took > seconds:
        factor = pace.factor()
        assert took <= seconds * factor, f"{took:.1f} s, at {factor:.1f} times the usual pace; promised: {seconds} s"


def spent_within(seconds: float, work: Callable[[], object]) -> bool:
    """Whether the work takes so many CPU seconds, in one of three tries: what others do beside it only adds.

    In a thread of its own, whose stack of calls begins empty: how deep a test is called would decide otherwise
    whether the interpreter's stack grows and shrinks by a page at every call, which takes five times as long.
    Without the garbage collector, whose time is that of all the objects of the test process.
    """

    def spent() -> float:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun

    gc.disable()
    try:
        with ThreadPoolExecutor(1) as thread:
            for _ in range(3):
                took = thread.submit(spent).result()
                if took < seconds or took < seconds * slowness():  # Measured where it decides.
                    return True
            return False
    finally:
        gc.enable()


def refused_within(seconds: float, refusal: type[Exception], work: Callable[[], object]) -> bool:
    """Whether the work is refused in so many CPU seconds, as `spent_within` measures them."""

    def refused() -> None:
        with pytest.raises(refusal):
            work()

    return spent_within(seconds, refused)
