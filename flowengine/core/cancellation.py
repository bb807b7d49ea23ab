"""Drives coroutines of users' code inside the task of whoever waits for them, and tells whose a cancellation is.

What such code makes of a cancellation that is meant for its task does not count: it ends by that cancellation, whatever
it returns or raises. What it sets in context variables is gone afterwards, as if it had run in a task of its own.
It knows neither nodes nor tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from inspect import CORO_CLOSED, getcoroutinestate
from math import inf
from time import monotonic
from types import coroutine
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import anyio

from flowengine.core.user_code import ForeignExitError, describe_error

T = TypeVar("T")

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
    patience, cancellation, answer = inf, None, None
    try:
        while True:
            step: Any = steps.send
            try:
                answer = yield waits_for
                if answer is not None and _is_cancelled(getattr(answer, "error", None)):
                    cancellation = answer.error  # Trio sends what it has to raise.
            except GeneratorExit:  # The task itself is being closed.
                context.run(steps.close)
                raise
            except BaseException as error:
                step, answer = steps.throw, error
                if _is_cancelled(error):
                    cancellation = error
                    if closes and monotonic() >= patience and _has_closed(context, steps):
                        raise
                    patience = min(patience, monotonic() + GRACE) if closes else inf
            try:
                waits_for = context.run(step, answer)
                if patience < inf and anyio.current_effective_deadline() > -inf:
                    patience = inf  # It was a time limit of its own that was over.
            except StopIteration as stop:
                if cancellation is None or not is_being_cancelled():
                    return stop.value
                raise cancellation from None
            except BaseException as error:
                if cancellation is not None and error is not cancellation and is_being_cancelled():
                    raise cancellation from None
                if isinstance(error, GeneratorExit):
                    raise ForeignExitError(describe_error(error)) from error
                raise
    finally:
        del cancellation, answer  # They hold this frame.


def start_apart(work: Callable[[], Coroutine[Any, Any, None]]) -> object:
    """Starts a task that is in no task group, in a copy of the caller's context variables; hold what is returned.

    Whoever starts it sees to its end. It must not raise.
    """
    if is_on_asyncio():
        return asyncio.create_task(work())
    import trio  # The loop that runs.

    return trio.lowlevel.spawn_system_task(work, context=copy_context())


async def drive_apart(steps: Coroutine[Any, Any, T]) -> T:
    """The whole of a coroutine, as `drive` drives the rest of one.

    >>> async def one() -> int:
    ...     return 1
    >>> anyio.run(drive_apart, one())
    1
    """
    context = copy_context()
    try:
        waits_for = context.run(steps.send, None)
    except StopIteration as stop:
        return stop.value
    return await drive(context, steps, waits_for)


def _is_cancelled(error: object) -> bool:
    return isinstance(error, anyio.get_cancelled_exc_class())


def _has_closed(context: Context, steps: Coroutine[Any, Any, Any]) -> bool:
    """Tells whether closing it has ended it; it may wait for something even so."""
    with suppress(Exception):  # It was cancelled, whatever its clean-up raises.
        context.run(steps.close)
    return getcoroutinestate(steps) == CORO_CLOSED


_cancelled_before: Final[WeakKeyDictionary[asyncio.Task[Any], int]] = WeakKeyDictionary()
"""Tasks that were cancelled before they began a run, as one that cleans up is → how often."""


def forget_cancellations() -> None:
    """Forgets the cancellations of this task so far: they are none of the run that it begins."""
    task = _current_task()
    if task is not None and (task.cancelling() or task in _cancelled_before):
        _cancelled_before[task] = task.cancelling()


def is_being_cancelled() -> bool:
    """Tells whether a cancellation is meant for this task, and not one that code in it raised or awaited."""
    task = _current_task()
    if task is not None and (count := task.cancelling()) and count > _cancelled_before.get(task, 0):
        return True
    return anyio.current_effective_deadline() == -inf


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # Trio, where only the task's own scopes cancel it.


def is_on_asyncio() -> bool:
    """Tells whether the event loop is asyncio's, and not trio's."""
    return _current_task() is not None
