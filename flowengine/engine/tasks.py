"""Drives the coroutine of a node step by step inside the task of its worker.

It knows neither walk nor journal. What a node sets in context variables is gone afterwards, as if it had run in a task
of its own; and what it raises is told apart from what happens to the task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from inspect import CORO_CLOSED, getcoroutinestate
from math import inf
from time import monotonic, perf_counter
from types import coroutine
from typing import Any, Final, NoReturn

import anyio

from flowengine.core.user_code import ForeignExitError, describe_error
from flowengine.errors import OverdueError

__all__ = ["GRACE", "NodeSlots", "drive", "is_being_cancelled", "is_on_asyncio", "meet_deadline"]

# --- Deadlines while templates are evaluated

_LONGEST: Final = 1.0
"""Seconds; the cancellation is due already."""


async def meet_deadline(error: OverdueError) -> NoReturn:
    """Wait until the cancellation arrives that is due; raise the error where none does."""
    await anyio.sleep(_LONGEST)
    raise error


# --- Slots of nodes in flight

_MANY: Final = 1 << 60


class NodeSlots:
    """Slots for nodes in flight; containers hold none, and neither does a node that waits for a person.

    Where `used` is below `limit`, a caller that wants a slot counts it; else it waits with `take`.
    """

    __slots__ = ("limit", "rested", "used", "waiting")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or _MANY
        self.used = 0
        self.rested = perf_counter()
        """When the run last let other tasks of its loop run."""
        self.waiting: deque[anyio.Event] = deque()
        """Those who wait for a slot; where there are none, giving one back is to count it no more."""

    async def take(self) -> None:
        """Wait for a slot; it is handed over when one is given back."""
        turn = anyio.Event()
        self.waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.give_back()
            else:
                self.waiting.remove(turn)
            raise

    def give_back(self) -> None:
        if self.waiting:
            self.waiting.popleft().set()
        else:
            self.used -= 1


GRACE: Final = 5.0
"""Seconds that a node's code has to end in once it was cancelled."""


@coroutine
def drive(
    context: Context, steps: Coroutine[Any, Any, Any], waits_for: Any, closes: bool = False
) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that has suspended, with context variables of its own, inside this task.

    Cancel scopes and task groups in it belong to the task and are not touched. `closes`: one that catches its
    cancellation and waits for something all the same is closed after the grace.
    """
    patience = inf
    while True:
        step: Any = steps.send
        try:
            given = yield waits_for
        except GeneratorExit:  # The task itself is being closed.
            context.run(steps.close)
            raise
        except BaseException as error:
            if closes and isinstance(error, anyio.get_cancelled_exc_class()):
                if monotonic() >= patience and _has_closed(context, steps):
                    raise
                patience = min(patience, monotonic() + GRACE)
            step, given = steps.throw, error
        try:
            waits_for = context.run(step, given)
            if patience < inf and anyio.current_effective_deadline() > -inf:
                patience = inf  # It was a time limit of its own that was over.
        except StopIteration as stop:
            return stop.value
        except GeneratorExit as error:
            raise ForeignExitError(describe_error(error)) from error


def _has_closed(context: Context, steps: Coroutine[Any, Any, Any]) -> bool:
    """Tells whether closing it has ended it; it may wait for something even so."""
    with suppress(Exception):  # It was cancelled, whatever its clean-up raises.
        context.run(steps.close)
    return getcoroutinestate(steps) == CORO_CLOSED


def is_being_cancelled() -> bool:
    """Tells whether a cancellation is meant for this task, and not one that code in it raised or awaited."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # Trio, where only the task's own scopes raise one.
    return task is None or task.cancelling() > 0 or anyio.current_effective_deadline() == -inf


def is_on_asyncio() -> bool:
    """Tells whether the event loop is asyncio's, and not trio's."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False
