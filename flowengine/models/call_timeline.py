"""Keeps what a call of a model did before it was answered: loading, waiting for its turn, attempts that failed, the
waits behind them.

Whoever makes the call collects (`collect_steps`); whatever waits on the way says so (`spent_on`, `add_step`) and need
not know whether anybody listens. Steps may lie inside each other: an attempt that failed may have waited for its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Step", "add_step", "collect_steps", "spent_on"]

Step: TypeAlias = Literal["loading", "queued", "attempt", "backoff", "rate_limit"]
"""`queued`: for a turn among the limits of the vendor; `attempt`: one that failed and was made again; `backoff` and
`rate_limit`: the wait after it, the latter where the vendor had too many requests (429)."""

_LEAST: Final = 0.001
"""Seconds. What took less is not worth a place in a record."""
_MAX_ERROR: Final = 300
"""Characters of an error."""

_steps: Final[ContextVar[list[tuple[Step, float, float, str]] | None]] = ContextVar("call_timeline", default=None)


@contextmanager
def collect_steps() -> Generator[Callable[[], list[dict[str, Any]]]]:
    """Collect the steps of the call that is made inside; what is given tells them once the call is over.

    >>> with collect_steps() as steps:
    ...     add_step("backoff", perf_counter() - 2, "busy")
    >>> [(each["what"], round(each["seconds"]), each["error"]) for each in steps()]
    [('backoff', 2, 'busy')]
    """
    found: list[tuple[Step, float, float, str]] = []

    def tell() -> list[dict[str, Any]]:
        if not found:
            return []
        end = perf_counter()
        return [
            {"what": what, "ago": end - begun, "seconds": seconds} | ({"error": error[:_MAX_ERROR]} if error else {})
            for what, begun, seconds, error in sorted(found, key=lambda each: each[1])
        ]

    token = _steps.set(found)
    try:
        yield tell
    finally:
        _steps.reset(token)


def add_step(what: Step, begun: float, error: str = "") -> None:
    """Say that what began at a moment of `perf_counter` has ended now."""
    found = _steps.get()
    seconds = perf_counter() - begun
    if found is not None and (seconds >= _LEAST or what == "attempt"):
        found.append((what, begun, seconds, error))


@contextmanager
def spent_on(what: Step, error: str = "") -> Generator[None]:
    """Records the block as a step of the call."""
    begun = perf_counter()
    try:
        yield
    finally:
        add_step(what, begun, error)
