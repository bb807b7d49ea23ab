"""How much slower than usual this machine is right now, so that a promise in seconds can be tested on a busy one."""

from __future__ import annotations

import time

__all__ = ["slowness"]

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
