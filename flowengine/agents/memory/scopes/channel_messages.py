"""Defines everything that a prompt with memories is built from, in one frozen record.

Data only: no text of a prompt, no store, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import NoneType
from typing import NamedTuple, Protocol

from flowengine.agents.memory.scopes.memories import aware
from flowengine.errors import DefinitionError, names_fields, refuse_other_kind

# --- Messages of channels, and the seam behind which they are kept


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """A message in a channel."""

    ts: str
    """Its id within the channel."""
    user: str
    text: str
    at: datetime
    thread_ts: str | None = None
    """The `ts` of the thread's first message; None at the top level."""

    def __post_init__(self) -> None:
        for name in ("ts", "user", "text"):
            refuse_other_kind(getattr(self, name), str, f"a message's {name} is text", DefinitionError)
        aware("a message's time", self.at)

    @property
    def is_top_level(self) -> bool:
        """Whether it stands in the channel itself, perhaps as the first one of a thread."""
        return self.thread_ts is None or self.thread_ts == self.ts


@dataclass(frozen=True, slots=True)
class ChannelMessages:
    """The messages of one channel, in chronological order."""

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
    """The interface of stores for messages. A message is identified by channel and `ts`; adding it again replaces
    it.
    """

    async def add(self, channel_id: str, channel_name: str, messages: Sequence[ChannelMessage]) -> None:
        """Keep messages; the channel takes the name given."""
        ...

    async def messages(
        self, channel_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> ChannelMessages:
        """All messages from `since` on, those of threads included: the newest `limit`, in the order of time.

        A channel that was not added has no messages, and its id for a name.
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


@names_fields
@dataclass(frozen=True, slots=True)
class ChannelMemory:
    """A channel that the bot is in, and what it remembers of it."""

    channel_id: str
    channel_name: str
    long_term: str | None = None
    short_term: str | None = None


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """The knowledge of a bot that answers in a channel or a thread."""

    persona: str | None
    """Who the bot is; None leaves it out."""
    conversation_history: ChannelMessages
    """The channel that it is to answer in."""
    workspace_long_term_memory: str | None = None
    workspace_short_term_memory: str | None = None
    channel_memories: Mapping[str, ChannelMemory] = field(default_factory=dict[str, ChannelMemory])
    """Channel id → its memory, for every channel that the bot is in; a memory may be empty."""
    thread_memories: Mapping[str, str] = field(default_factory=dict[str, str])
    """Thread's ts → its memory, for the threads of this channel."""
    target_thread_ts: str | None = None
    """The thread to answer in; None at the top level."""

    def __post_init__(self) -> None:
        refuse_other_kind(
            self.persona, (str, NoneType), "a persona is the text that says who the bot is", DefinitionError
        )

    @property
    def has_memory(self) -> bool:
        """Whether anything is remembered at all."""
        texts = [self.workspace_long_term_memory, self.workspace_short_term_memory, *self.thread_memories.values()]
        for each in self.channel_memories.values():
            texts += [each.long_term, each.short_term]
        return any(text and text.strip() for text in texts)
