"""Drives the coroutine of a node step by step inside the task of its worker.

It knows neither walk nor journal. What a node sets in context variables is gone afterwards, as if it had run in a task
of its own; and what it raises is told apart from what happens to the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from math import inf
from types import coroutine
from typing import Any

import anyio

from flowengine.foreign import ForeignExitError, describe_error

__all__ = ["drive", "is_being_cancelled"]


@coroutine
def drive(context: Context, steps: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that has suspended, with context variables of its own, inside this task.

    Cancel scopes and task groups in it belong to the task and are not touched.
    """
    while True:
        step: Any = steps.send
        try:
            given = yield waits_for
        except GeneratorExit:  # The task itself is being closed.
            context.run(steps.close)
            raise
        except BaseException as error:
            step, given = steps.throw, error
        try:
            waits_for = context.run(step, given)
        except StopIteration as stop:
            return stop.value
        except GeneratorExit as error:
            raise ForeignExitError(describe_error(error)) from error


def is_being_cancelled() -> bool:
    """Whether a cancellation is meant for this task, and not one that code in it raised or awaited."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # Trio, where nobody else can raise one.
    return task is None or task.cancelling() > 0 or anyio.current_effective_deadline() == -inf
