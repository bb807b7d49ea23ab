"""Keeps what a call of a model did before it was answered: loading, waiting for its turn, attempts that failed, the
waits behind them.

The caller puts a list into `CALL_STEPS`; whatever waits on the way says so (`spent_on`, `add_step`) and need not know
whether anybody collects. Steps may lie inside each other: an attempt that failed may have waited for its turn.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Step: TypeAlias = Literal["loading", "queued", "attempt", "backoff", "rate_limit"]
"""`queued`: for a turn among the limits of the vendor; `attempt`: one that failed and was made again; `backoff` and
`rate_limit`: the wait after it, the latter where the vendor had too many requests (429)."""

_LEAST: Final = 0.001
"""Seconds. A shorter step is not worth a place in a record."""
_MAX_ERROR: Final = 300
"""Characters of an error."""


class TimedStep(NamedTuple):
    """A step of a call. `start`: a moment of `perf_counter`."""

    what: Step
    start: float
    seconds: float
    error: str = ""


CALL_STEPS: Final[ContextVar[list[TimedStep] | None]] = ContextVar("call_timeline", default=None)
"""The steps so far of the call that is made; None where they are not collected."""


def tell_steps(steps: Iterable[TimedStep]) -> list[dict[str, Any]]:
    """The steps of a call that ends now, as its record has them, in the order in which they began.

    >>> rows = tell_steps([TimedStep("backoff", perf_counter() - 2, 2.0, "busy")])
    >>> [(each["what"], round(each["ago"]), each["seconds"], each["error"]) for each in rows]
    [('backoff', 2, 2.0, 'busy')]
    """
    end = perf_counter()
    return [
        {"what": what, "ago": end - start, "seconds": seconds} | ({"error": error[:_MAX_ERROR]} if error else {})
        for what, start, seconds, error in sorted(steps, key=lambda each: each.start)
    ]


def add_step(what: Step, start: float, error: str = "") -> None:
    """Adds a step that began at a moment of `perf_counter` and ends now."""
    steps = CALL_STEPS.get()
    seconds = perf_counter() - start
    if steps is not None and (seconds >= _LEAST or what == "attempt"):
        steps.append(TimedStep(what, start, seconds, error))


@contextmanager
def spent_on(what: Step, error: str = "") -> Generator[None]:
    """Records the block as a step of the call."""
    start = perf_counter()
    try:
        yield
    finally:
        add_step(what, start, error)
