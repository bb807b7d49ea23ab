"""Calls code that users wrote, so that nothing but a value or an `Exception` leaves the call.

It knows no node, no tool and no run; whose code it is, and what its failure means, is the caller's matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar, cast

from anyio import CapacityLimiter, to_thread

__all__ = [
    "DEFAULT_THREADS",
    "ROOT_PREFIX",
    "ForeignExitError",
    "call_in_thread",
    "describe_error",
    "is_interrupt",
    "is_of_project",
    "unprefixed_name",
    "unprefixed_text",
]

# --- Names of a project's modules

ROOT_PREFIX: Final = "_flowengine_"
"""How the names begin under which project modules are known to Python."""

_ROOT: Final = re.compile(ROOT_PREFIX + r"[0-9a-f]{12}\.")


def is_of_project(name: str) -> bool:
    """Whether a module's name, as Python knows it, is that of a project's module."""
    return name.startswith(ROOT_PREFIX)


def unprefixed_name(name: str) -> str:
    """A module's name as flows and its own project write it.

    >>> unprefixed_name("_flowengine_0123456789ab.tools"), unprefixed_name("os")
    ('tools', 'os')
    """
    return name.partition(".")[2] if name.startswith(ROOT_PREFIX) else name


def unprefixed_text(text: str) -> str:
    """A text with the plain names of the modules that it speaks of.

    >>> unprefixed_text("cannot import name 'x' from '_flowengine_0123456789ab.tools'")
    "cannot import name 'x' from 'tools'"
    """
    return _ROOT.sub("", text) if ROOT_PREFIX in text else text


T = TypeVar("T")

DEFAULT_THREADS: Final = 256
"""Plain functions of one run that are at work at once where the run has no `concurrency`."""


class ForeignExitError(Exception):
    """Code raised what is meant for whoever runs it (`KeyboardInterrupt`, `GeneratorExit`).

    It ended itself and not its host; the cause is what it raised.
    """


def describe_error(error: BaseException | None) -> str:
    """The class and the text of an exception, also of one that cannot be turned into text.

    >>> describe_error(ValueError("no")), describe_error(ValueError())
    ('ValueError: no', 'ValueError')
    """
    if isinstance(error, ForeignExitError) and error.__cause__ is not None:
        error = error.__cause__
    name = type(error).__name__
    try:
        text = unprefixed_text(str(error))
    except Exception as problem:
        return f"{name} (its text cannot be read: `__str__` raised {type(problem).__name__})"
    return f"{name}: {text}" if text else name


def is_interrupt(error: BaseException) -> bool:
    """Whether it is a `KeyboardInterrupt`, or holds one.

    >>> is_interrupt(BaseExceptionGroup("of a task group", [KeyboardInterrupt()]))
    True
    """
    if isinstance(error, BaseExceptionGroup):
        return any(is_interrupt(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, KeyboardInterrupt)


async def call_in_thread(call: Callable[[], T]) -> T:
    """What a plain function gives, called in a thread at once, however many others are at work.

    A caller that is cancelled leaves the thread to its end, and what it gives is dropped.
    """
    # In a tuple, because trio refuses a thread's result that is something to wait for.
    (value,) = await to_thread.run_sync(_call_in_tuple, call, abandon_on_cancel=True, limiter=CapacityLimiter(1))
    return value


def _call_in_tuple(call: Callable[[], T]) -> tuple[T]:
    try:
        return (call(),)
    except (Exception, SystemExit):
        raise
    except BaseException as error:
        raise ForeignExitError(describe_error(error)) from error
