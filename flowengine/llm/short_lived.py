"""A word about the running event loop: that it ends with the call that it was made for.

What is made for such a loop alone is made for nothing. Who cares asks here; who makes loops says it here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["is_short_lived", "short_lived"]

_says_so: Final = ContextVar("the loop ends with this call", default=False)


@contextmanager
def short_lived() -> Generator[None]:
    """The running loop ends with this block."""
    token = _says_so.set(True)
    try:
        yield
    finally:
        _says_so.reset(token)


def is_short_lived() -> bool:
    """Whether the code that runs has been told so."""
    return _says_so.get()
