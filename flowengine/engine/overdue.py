"""What follows an evaluation that ran into its task's deadline: the cancellation that it could not receive.

A template is evaluated without suspending, so its task is cancelled only once it waits for something.
"""

from __future__ import annotations

from typing import Final, NoReturn

import anyio

from flowengine.errors import OverdueError

__all__ = ["meet_deadline"]

_LONGEST: Final = 1.0
"""Seconds; the cancellation is due already."""


async def meet_deadline(error: OverdueError) -> NoReturn:
    """Wait until the cancellation arrives that is due; raise the error where none does."""
    await anyio.sleep(_LONGEST)
    raise error
