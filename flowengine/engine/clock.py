"""The time that events bear: the wall's when a run begins or goes on, and from then on what has passed since.

A clock that is set, by a day or by the second that NTP corrects, so changes neither the durations of nodes nor
the order of their times. It knows no events and no runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["run_clock"]

_passed: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Seconds that also count while the machine sleeps, where the operating system has such a clock."""


def run_clock() -> Callable[[], float]:
    """Unix seconds as of now, which only go forward."""
    offset = time.time() - _passed()
    if not hasattr(time, "CLOCK_BOOTTIME"):
        passed = time.monotonic
        return lambda: offset + passed()
    read, clock = time.clock_gettime, time.CLOCK_BOOTTIME
    return lambda: offset + read(clock)  # Called twice for each node, so without the partial.
