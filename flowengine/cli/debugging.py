"""Knows whether a command was asked to tell more of what goes on inside, and watches its event loop then."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import click

from flowengine.cli.terminal import complain

F = TypeVar("F", bound=Callable[..., Any])

_IS_ASKED: Final = ContextVar("--debug was given", default=False)


def debug_option(function: F) -> F:
    """Gives a command the option --debug, which is no argument of it."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_ask,
        help="Tell on stderr what holds the event loop for 0.1 s or more, and where unexpected errors come from.",
    )(function)


def _ask(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    if is_given:
        _IS_ASKED.set(True)


def is_debugging() -> bool:
    """Tells whether more was asked for: by --debug, or by FLOWENGINE_DEBUG=1."""
    return _IS_ASKED.get() or os.environ.get("FLOWENGINE_DEBUG", "") not in ("", "0")


def watch_loop_if_debugging(tell: Callable[[str], object] = complain) -> AbstractContextManager[None]:
    """Watches the event loop inside of which it is entered, where more was asked for."""
    if not is_debugging():
        return nullcontext()
    from flowengine.runtime import watch_this_loop  # Nobody else needs it.

    return watch_this_loop(lambda hold: tell(str(hold)))
