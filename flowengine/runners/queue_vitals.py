"""What a worker knows of itself, for those who ask whether it is well. It asks nothing and waits for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from time import monotonic

from flowengine.runners.notices import Notice, Tell

__all__ = ["Vitals"]


class Vitals:
    """Kept up to date by the worker's parts.

    >>> vitals = Vitals("default", 4, fresh=5.0)
    >>> vitals.unreadiness
    'it has not begun'
    >>> vitals.signed = monotonic()
    >>> vitals.unreadiness is None
    True
    """

    def __init__(self, queue: str, concurrency: int, *, fresh: float) -> None:
        """`fresh`: seconds after which a sign of life to the store is too old."""
        self.queue, self.concurrency, self._fresh = queue, concurrency, fresh
        self.in_hand: Collection[int] = ()
        """Jobs that it works on."""
        self.signed: float | None = None
        """When it last gave a sign of life to the store, as `monotonic` counts."""
        self.orphans = 0
        """Runs of the store without a job, as it last saw."""
        self.is_stopping = False
        self.counts: Counter[str] = Counter()
        """What it told so far, by the word for what happened."""

    @property
    def unreadiness(self) -> str | None:
        """Why it takes no runs; None where it does."""
        if self.is_stopping:
            return "it was told to stop"
        if self.signed is None:
            return "it has not begun"
        silent = monotonic() - self.signed
        return f"it could give the store no sign for {silent:.0f} s" if silent > self._fresh else None

    def counting(self, tell: Tell) -> Tell:
        """As `tell`, with what is told counted."""

        def count(notice: Notice) -> None:
            self.counts[notice.event] += 1
            tell(notice)

        return count
