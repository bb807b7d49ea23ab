"""The one error of everything that reads a run's record: that it is damaged.

A record may come from elsewhere, or have been changed. Each of its values is checked when it is decoded; that they fit
each other shows only where something is made of them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from flowengine.errors import StoreCorruptError

__all__ = ["reading_record"]

_DAMAGE: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What code that takes a record for sound raises where it is not."""


@contextmanager
def reading_record(run_id: str = "") -> Generator[None]:
    """What goes wrong in the block is a `StoreCorruptError` that names the run."""
    try:
        yield
    except _DAMAGE as error:
        name = f"of run {run_id} " if run_id else ""
        problem = f"{type(error).__name__}: {error}"
        raise StoreCorruptError(f"the record {name}does not fit together ({problem:.200})") from error
