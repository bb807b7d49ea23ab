"""How many nodes may be in flight at once, over all levels of a run. First come, first served."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

__all__ = ["Slots"]

_MANY: Final = 1 << 60


class Slots:
    """Slots for nodes in flight; containers hold none, and neither does a node that waits for a person.

    >>> slots = Slots(1)
    >>> slots.try_take(), slots.try_take()
    (True, False)
    """

    __slots__ = ("_waiting", "limit", "used")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or _MANY
        self.used = 0
        self._waiting: deque[anyio.Event] = deque()

    def try_take(self) -> bool:
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    async def take(self) -> None:
        """Wait for a slot; it is handed over by whoever gives one back."""
        turn = anyio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.give_back()
            else:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self.used -= 1
