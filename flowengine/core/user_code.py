"""Calls code that users wrote, so that nothing but a value or an `Exception` leaves the call.

It knows no node, no tool and no run, and imports what installed packages bring only when it is asked for. Whose code
it is, and what its failure means, is the caller's matter.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from anyio import CapacityLimiter, to_thread

from flowengine.errors import DefinitionError, JournalError, RunError

# --- Names of a project's modules

ROOT_PREFIX: Final = "_flowengine_"
"""How the names begin under which project modules are known to Python."""

_ROOT: Final = re.compile(ROOT_PREFIX + r"[0-9a-f]{12}\.")


def is_of_project(name: str) -> bool:
    """Tells whether a module's name, as Python knows it, is that of a project's module."""
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
    """Code raised what is meant for its runner (`KeyboardInterrupt`, `GeneratorExit`).

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
    """Tells whether it is a `KeyboardInterrupt`, or holds one.

    >>> is_interrupt(BaseExceptionGroup("of a task group", [KeyboardInterrupt()]))
    True
    """
    if isinstance(error, BaseExceptionGroup):
        return any(is_interrupt(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, KeyboardInterrupt)


def is_failure(error: BaseException) -> bool:
    """Tells whether code ended itself by it and nothing else: it is neither an interrupt nor a cancellation, and holds
    none.

    >>> class Panic(BaseException): ...
    >>> is_failure(Panic()), is_failure(SystemExit(1)), is_failure(KeyboardInterrupt())
    (True, True, False)
    """
    if isinstance(error, Exception | SystemExit):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(is_failure(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return not isinstance(error, KeyboardInterrupt | GeneratorExit) and not _is_cancellation(error)


def _is_cancellation(error: BaseException) -> bool:
    return any(kind.__name__ in ("CancelledError", "Cancelled") for kind in type(error).__mro__)


def failure_of_code(error: JournalError) -> RunError:
    """Makes the failure of users' code from an error of the record of another run, which it began or looked for: it
    ends a node, and not the run as the failure of its own record does."""
    return RunError(describe_error(error))


class _UserCode:
    def __enter__(self) -> None:
        """Nothing is held, so that the one object serves all calls."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, JournalError) and not error.ends_run:
            raise failure_of_code(error) from error


USER_CODE: Final = _UserCode()
"""`with USER_CODE:` stands round calls of what users wrote, and raises `failure_of_code`."""


_at_work: Final[set[threading.Thread]] = set()


async def call_abandonable(call: Callable[[], T], limiter: CapacityLimiter | None = None) -> T:
    """Calls a function in another thread. A caller that is cancelled leaves the thread to its end, which the end of the
    command line does not wait for."""
    return await to_thread.run_sync(_call_at_work, call, abandon_on_cancel=True, limiter=limiter)


def _call_at_work(call: Callable[[], T]) -> T:
    thread = threading.current_thread()
    _at_work.add(thread)
    try:
        return call()
    finally:
        _at_work.discard(thread)


def left_threads() -> Collection[threading.Thread]:
    """Threads that still run what their callers left; none is anybody else's."""
    return [each for each in tuple(_at_work) if each.is_alive() and not each.daemon]


async def call_in_thread(call: Callable[[], T]) -> T:
    """Calls a plain function in a new thread, regardless of how many others are running.

    A caller that is cancelled leaves the thread to its end, and what it gives is dropped.
    """
    # In a tuple, because trio refuses a thread's result that is something to wait for.
    (value,) = await call_abandonable(partial(_call_in_tuple, call), CapacityLimiter(1))
    return value


def _call_in_tuple(call: Callable[[], T]) -> tuple[T]:
    try:
        return (call(),)
    except (Exception, SystemExit):
        raise
    except BaseException as error:
        raise ForeignExitError(describe_error(error)) from error


# --- What installed packages bring, by entry point group and name

_REMEMBERED: Final = 16
"""Groups whose entry points are kept: each search reads every installed package's metadata."""


def find_entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Name → entry point of a group. Nothing is imported; the search is repeated when `sys.path` has changed."""
    return _search(group, tuple(sys.path))


@lru_cache(maxsize=_REMEMBERED)
def _search(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def load_entry_point(point: EntryPoint, what: str) -> Any:
    """The object of an entry point. A package that cannot be imported is a `DefinitionError` that names it."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # A package is foreign code: whatever it raises is its own failure.
        raise DefinitionError(
            f"{what} of the package '{package_of(point)}' cannot be loaded: {describe_error(error)}"
        ) from error


def package_of(point: EntryPoint) -> str:
    """The name of the package that brings an entry point."""
    return point.value if point.dist is None else point.dist.name
