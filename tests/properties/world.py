"""What lies outside of a run and outlives it: which functions were down, and which values they still hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio

__all__ = ["DOWN", "HELD", "begin", "breathe", "standing_still"]

DOWN: set[str] = set()
"""Names of what is down once: the first call of `lib:flaky` for such a name fails and takes the name away."""
HELD: list[Any] = []
"""Values that `lib:hold` has returned, and changes at its next call."""
_stands_still = False


def begin(down: set[str] | frozenset[str] = frozenset()) -> None:
    """A new world, in which these names are down."""
    DOWN.clear()
    DOWN.update(down)
    HELD.clear()


@contextmanager
def standing_still() -> Iterator[None]:
    """While the oracle computes, no function waits."""
    global _stands_still
    _stands_still = True
    try:
        yield
    finally:
        _stands_still = False


async def breathe(number: Any) -> None:
    """Let others go on so many times, at most ten."""
    for _ in range(0 if _stands_still or not isinstance(number, int) else abs(number) % 11):
        await anyio.lowlevel.checkpoint()
