"""Keeps what a run tells while it goes on, for those who follow it: one list, that each reads at its own pace.

A slow follower has no buffer of its own, costs nothing and delays no one. The list is bounded: one that is too slow for
it reads what it has missed in the store. Nothing is kept without a follower, unless somebody is about to follow. It
asks no journal and no store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias, cast

import anyio

from flowengine.engine import Event, NodeCancelled, NodeFailed, NodeFinished, TokenStreamed
from flowengine.journal import LiveTexts, copy_for_listener

Followed: TypeAlias = "tuple[int | None, Event | TokenStreamed]"
"""Position in the journal and event; what no journal has is without a position."""


_MOST: Final = 4_096
"""Events and pieces of text that are kept of a run for its followers."""
_MOST_BYTES: Final = 4_000_000
"""Bytes that they have together, roughly. Whatever comes at once is kept, however much it is."""
_MOST_COUNTED: Final = 5_000
"""Values of one event that are counted."""
_BATCH: Final = 500
"""Events and pieces that a follower is given at once."""


class FeedPlace(NamedTuple):
    """The place at which a follower comes in."""

    position: int
    """Of the first event that it has from the feed; those before are read from the store."""
    start: int
    """Of what the feed has of it, counted from its beginning."""
    texts: Sequence[Followed]
    """What agents are writing at this moment, from the beginning of each text on."""


class RunFeed:
    """The events of one run from the journal's position `next` until `end`. One event loop uses it."""

    def __init__(self, position: int = 0, *, retells: bool = False) -> None:
        """`retells`: who comes late, or has fallen behind, is told from its beginning what is being written; else only
        what begins since."""
        self.is_kept = False
        """Whether all is kept from the beginning on, for somebody who is about to follow."""
        self.next = position
        """The position behind the last event that was heard."""
        self.is_over = False
        self.followers = 0
        self._texts = LiveTexts() if retells else None
        self._items: list[Followed] = []
        self._sizes: list[int] = []
        self._size = 0
        self._dropped = 0
        """How many items came before those that are kept."""
        self._first = position
        """The position of the first event that is kept, or will be."""
        self._bell: anyio.Event | None = None

    def begin_at(self, position: int) -> None:
        """The journal has so many events from before."""
        if self.next < position and not self._items:
            self.next = self._first = position

    def hear(self, event: Event) -> None:
        """The journal has taken an event."""
        if self._texts is not None and isinstance(event, NodeFinished | NodeFailed | NodeCancelled):
            self._texts.settle(event.node)
        if self.followers or self.is_kept:
            self._keep((self.next, copy_for_listener(event)), _estimate_size(event))
        self.next += 1

    def hear_token(self, token: TokenStreamed) -> None:
        """An agent has written a piece of text, or asks a model."""
        if self._texts is not None:
            self._texts.hear(token)
        elif not token.text:
            return
        if self.followers or self.is_kept:
            self._keep((None, token), len(token.text))

    def end(self) -> None:
        """No more will come from here; followers that wait are told."""
        self.is_over = True
        self._ring()

    @contextmanager
    def follow(self) -> Generator[FeedPlace]:
        """From now on what comes is kept, for as long as somebody follows; where the follower comes in."""
        if not self.followers and not self.is_kept:
            self._drop(len(self._items))
        self.followers += 1
        try:
            if self._texts is None:
                yield FeedPlace(self._first, self._dropped, ())
            else:
                texts = [(None, piece) for piece in self._texts.pieces()]
                yield FeedPlace(self.next, self._dropped + len(self._items), texts)
        finally:
            self.followers -= 1
            if not self.followers and not self.is_kept:
                self._drop(len(self._items))

    async def read(self, after: int, place: FeedPlace, *, has_missed: bool = False) -> AsyncGenerator[list[Followed]]:
        """Yields the events from a position until the end, or until what comes next is kept no more, because the
        follower has fallen behind; only inside `follow`, of whose place.

        `has_missed`: the follower fell behind before; texts that have begun since are told, and no ends of others.
        """
        index = place.start
        if self._texts is None:
            if after < self._first:
                return
            has_missed_texts, index = has_missed, self._index_of(after)
        else:
            has_missed_texts = False
            if place.texts:
                yield list(place.texts)
        nodes: set[str] = set()
        while index >= self._dropped:
            start = index - self._dropped
            items = self._items[start : start + _BATCH]
            index += len(items)
            batch: list[Followed] = []
            for position, event in items:
                if type(event) is TokenStreamed and has_missed_texts:
                    if event.begins:
                        nodes.add(event.node)
                    elif event.node not in nodes:
                        continue
                if position is None or position >= after:
                    batch.append((position, event))
            if batch:
                yield batch
            if items:
                continue
            if self.is_over:
                return
            if self._bell is None:
                self._bell = anyio.Event()
            await self._bell.wait()

    def _index_of(self, after: int) -> int:
        """Of what stands behind the last event before a position."""
        positions = (at + 1 for at, (seq, _) in enumerate(self._items) if seq is not None and seq < after)
        return self._dropped + max(positions, default=0)

    def _keep(self, item: Followed, size: int) -> None:
        if len(self._items) >= _MOST or (self._items and self._size + size > _MOST_BYTES):
            self._make_room(size)
        self._items.append(item)
        self._sizes.append(size)
        self._size += size
        self._ring()

    def _make_room(self, size: int) -> None:
        """Drop the oldest, until half of what may be kept is free, or nothing is kept."""
        count, rest = 0, self._size
        while count < len(self._items) and (len(self._items) - count > _MOST // 2 or rest + size > _MOST_BYTES // 2):
            rest -= self._sizes[count]
            count += 1
        self._drop(count)

    def _drop(self, count: int) -> None:
        self._size -= sum(self._sizes[:count])
        del self._items[:count]
        del self._sizes[:count]
        self._dropped += count
        self._first = next((position for position, _ in self._items if position is not None), self.next)

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.set()
            self._bell = None


def _estimate_size(event: Event) -> int:
    """The characters in an event, roughly: of very many values only the first are counted.

    >>> _estimate_size(TokenStreamed("a", 1.0, "x" * 1_000)) // 100
    10
    """
    size, count, pending = 0, 0, cast("list[Any]", [event])
    while pending and count < _MOST_COUNTED:
        count += 1
        value = pending.pop()
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, Mapping):
            pending += [each for pair in cast("Mapping[Any, Any]", value).items() for each in pair]
        elif isinstance(value, list | tuple):
            pending += cast("Sequence[Any]", value)
        else:
            size += 8
    return size + 8 * len(pending)
