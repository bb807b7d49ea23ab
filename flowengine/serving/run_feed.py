"""Holds what a run tells while it goes on, for all who follow it: one list that each of them reads at its own pace.

Nothing is kept while nobody follows, unless somebody is about to. A follower has no buffer of its own, so a slow one
costs nothing and delays nobody. What happened before the first of them came is in the run's journal.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import TypeAlias

import anyio

from flowengine.engine.events import Event, TokenStreamed

__all__ = ["Followed", "RunFeed"]

Followed: TypeAlias = "tuple[int | None, Event | TokenStreamed]"
"""Position in the journal and event; what no journal has is without a position."""


class RunFeed:
    """The events of one run from the journal's position `next` until `end`. One event loop uses it."""

    def __init__(self, position: int = 0) -> None:
        self.is_kept = False
        """Whether all is kept from the beginning on, for somebody who is about to follow."""
        self.next = position
        """The position behind the last event that was heard."""
        self.is_over = False
        self.followers = 0
        self._items: list[Followed] = []
        self._first = position
        """The position of the first item."""
        self._bell: anyio.Event | None = None

    def hear(self, event: Event) -> None:
        """The journal has taken an event."""
        if self.followers or self.is_kept:
            self._items.append((self.next, event))
            self._ring()
        self.next += 1

    def hear_token(self, token: TokenStreamed) -> None:
        """An agent has written a piece of text."""
        if token.text and (self.followers or self.is_kept):
            self._items.append((None, token))
            self._ring()

    def end(self) -> None:
        """No more will come from here; whoever waits is told."""
        self.is_over = True
        self._ring()

    @contextmanager
    def follow(self) -> Generator[int]:
        """From now on everything is kept, for as long as somebody follows; the position it is kept from."""
        if not self.followers and not self.is_kept:
            self._items, self._first = [], self.next
        self.followers += 1
        try:
            yield self._first
        finally:
            self.followers -= 1
            if not self.followers and not self.is_kept:
                self._items = []

    async def read(self, after: int) -> AsyncGenerator[Followed]:
        """Yields the events from a position until the end; only inside `follow`."""
        index = max((at + 1 for at, (seq, _) in enumerate(self._items) if seq is not None and seq < after), default=0)
        while True:
            while index < len(self._items):
                position, event = self._items[index]
                index += 1
                if position is None or position >= after:
                    yield position, event
            if self.is_over:
                return
            if self._bell is None:
                self._bell = anyio.Event()
            await self._bell.wait()

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.set()
            self._bell = None
