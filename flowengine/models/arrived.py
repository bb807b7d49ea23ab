"""Returns what has arrived whole although its caller is being cancelled: it is paid for, and belongs on record.

The cancellation is put off to the caller's next wait, which is the one for the journal. Who cancels, and what was
asked, is not known here.
"""

from __future__ import annotations

import asyncio
from math import inf

import anyio

__all__ = ["postpone_cancellation"]


def postpone_cancellation(cancellation: BaseException) -> None:
    """Have a cancellation that is swallowed now come again at the next wait of this task.

    Those of cancel scopes do by themselves; one of an asyncio task is told once.
    """
    if isinstance(cancellation, asyncio.CancelledError) and anyio.current_effective_deadline() > -inf:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()  # Whoever counts the cancellations of this task counts one.
            task.cancel(*cancellation.args[:1])
