"""Keeps what a run tells while it goes on, for those who follow it: one list, that each reads at its own pace.

A slow follower has no buffer of its own, costs nothing and delays no one. The list is bounded: one that is too slow for
it reads what it has missed in the store. Nothing is kept without a follower, unless somebody is about to follow. It
asks no journal and no store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

import anyio

from flowengine.engine.events import Event, TokenStreamed
from flowengine.journal.stores import copy_for_listener

__all__ = ["Followed", "RunFeed"]

Followed: TypeAlias = "tuple[int | None, Event | TokenStreamed]"
"""Position in the journal and event; what no journal has is without a position."""


_MOST: Final = 4_096
"""Events and pieces of text that are kept of a run for its followers."""


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
        self._dropped = 0
        """How many items came before those that are kept."""
        self._first = position
        """The position of the first event that is kept, or will be."""
        self._bell: anyio.Event | None = None

    def hear(self, event: Event) -> None:
        """The journal has taken an event."""
        if self.followers or self.is_kept:
            self._keep((self.next, copy_for_listener(event)))
        self.next += 1

    def hear_token(self, token: TokenStreamed) -> None:
        """An agent has written a piece of text."""
        if token.text and (self.followers or self.is_kept):
            self._keep((None, token))

    def end(self) -> None:
        """No more will come from here; followers that wait are told."""
        self.is_over = True
        self._ring()

    @contextmanager
    def follow(self) -> Generator[int]:
        """From now on what comes is kept, for as long as somebody follows; the position it is kept from."""
        if not self.followers and not self.is_kept:
            self._drop(len(self._items))
        self.followers += 1
        try:
            yield self._first
        finally:
            self.followers -= 1
            if not self.followers and not self.is_kept:
                self._drop(len(self._items))

    async def read(self, after: int, *, has_missed: bool = False) -> AsyncGenerator[Followed]:
        """Yields the events from a position until the end, or until what comes next is kept no more, because the
        follower has fallen behind; only inside `follow`.

        `has_missed`: the follower fell behind before; texts that have begun since are told, and no ends of others.
        """
        if after < self._first:
            return
        index = max((at + 1 for at, (seq, _) in enumerate(self._items) if seq is not None and seq < after), default=0)
        index += self._dropped
        begun: set[str] = set()
        while True:
            while index < self._dropped + len(self._items):
                if index < self._dropped:
                    return
                position, event = self._items[index - self._dropped]
                index += 1
                if type(event) is TokenStreamed and has_missed:
                    if event.begins:
                        begun.add(event.node)
                    elif event.node not in begun:
                        continue
                if position is None or position >= after:
                    yield position, event
            if self.is_over:
                return
            if self._bell is None:
                self._bell = anyio.Event()
            await self._bell.wait()

    def _keep(self, item: Followed) -> None:
        if len(self._items) >= _MOST:
            self._drop(_MOST // 2)
        self._items.append(item)
        self._ring()

    def _drop(self, count: int) -> None:
        del self._items[:count]
        self._dropped += count
        self._first = next((position for position, _ in self._items if position is not None), self.next)

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.set()
            self._bell = None
