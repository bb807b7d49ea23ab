"""Timing by alternation: ours and the floor in turn, in one process, and the median of the ratios."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Awaitable, Callable
from time import perf_counter, process_time
from typing import NamedTuple

__all__ = ["Row", "ratio", "seconds"]

ROUNDS = 5

Work = Callable[[], Awaitable[object]]


class Row(NamedTuple):
    """One line of the table."""

    name: str
    value: float
    target: float
    unit: str = "×"
    spread: tuple[float, float] | None = None
    """Smallest and largest of the rounds."""

    @property
    def reached(self) -> bool:
        return self.value <= self.target


async def seconds(work: Work, clock: Callable[[], float] = process_time) -> float:
    """CPU seconds (or those of another clock) of one execution, garbage of earlier ones collected."""
    gc.collect()
    begun = clock()
    await work()
    return clock() - begun


async def ratio(
    name: str, target: float, ours: Work, floor: Work, *, wall: bool = False, rounds: int = ROUNDS, per: float = 1.0
) -> Row:
    """The median of ours / floor over the rounds, after one round that does not count.

    `per` divides the ratio (nodes of ours per node of the floor).
    """
    clock = perf_counter if wall else process_time
    await floor()
    await ours()
    ratios: list[float] = []
    for _ in range(rounds):
        base = await seconds(floor, clock)
        ratios.append(await seconds(ours, clock) / base / per)
    return Row(name, statistics.median(ratios), target, "×", (min(ratios), max(ratios)))
