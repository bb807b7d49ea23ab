"""Messages of channels, and the seam behind which they are kept.

Data and a protocol: no chat's API, no database, no prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from flowengine.memory.scopes import aware

__all__ = ["Channel", "ChannelMessage", "ChannelMessages", "ConversationStore"]


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """What somebody said in a channel."""

    ts: str
    """Its id within the channel."""
    user: str
    text: str
    at: datetime
    thread_ts: str | None = None
    """The `ts` of the thread's first message; None at the top level."""

    def __post_init__(self) -> None:
        aware("a message's time", self.at)

    @property
    def is_top_level(self) -> bool:
        """Whether it stands in the channel itself, perhaps as the first one of a thread."""
        return self.thread_ts is None or self.thread_ts == self.ts


@dataclass(frozen=True, slots=True)
class ChannelMessages:
    """What was said in one channel, in the order of time."""

    channel_id: str
    channel_name: str
    messages: tuple[ChannelMessage, ...] = ()

    @property
    def top_level_messages(self) -> tuple[ChannelMessage, ...]:
        return tuple(each for each in self.messages if each.is_top_level)

    def get_thread(self, ts: str) -> tuple[ChannelMessage, ...]:
        """A thread's messages, its first one included; none where there is no such thread."""
        return tuple(each for each in self.messages if ts in (each.thread_ts, each.ts))


class Channel(NamedTuple):
    """A channel that the bot is in."""

    id: str
    name: str
    last_activity: datetime | None = None
    """When something was said last; None where nothing was."""


class ConversationStore(Protocol):
    """Where messages are kept. A message is told apart by its channel and `ts`: adding it again replaces it."""

    async def add(self, channel_id: str, channel_name: str, messages: Sequence[ChannelMessage]) -> None:
        """Keep messages; the channel takes the name given."""
        ...

    async def messages(
        self, channel_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> ChannelMessages:
        """All messages from `since` on, those of threads included: the newest `limit`, in the order of time.

        A channel that nobody has added has no messages, and its id for a name.
        """
        ...

    async def top_level(
        self, channel_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> ChannelMessages:
        """The same without what was said inside threads."""
        ...

    async def thread(self, channel_id: str, ts: str, *, limit: int | None = None) -> ChannelMessages:
        """One thread: its first message, and of the others the newest that `limit` leaves room for."""
        ...

    async def channels(self, *, active_since: datetime | None = None) -> Sequence[Channel]:
        """The channels in which something was said from `active_since` on, by name; without it, all of them."""
        ...
