"""Everything that a prompt with memories is built from, in one frozen record.

Data only: no text of a prompt, no store, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowengine.memory.conversation import ChannelMessages

__all__ = ["ChannelMemory", "PromptRecord"]


@dataclass(frozen=True, slots=True)
class ChannelMemory:
    """A channel that the bot is in, and what it remembers of it."""

    channel_id: str
    channel_name: str
    long_term: str | None = None
    short_term: str | None = None


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """What is known when a bot is to answer in a channel, or in one of its threads."""

    persona: str
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

    @property
    def has_memory(self) -> bool:
        """Whether anything is remembered at all."""
        texts = [self.workspace_long_term_memory, self.workspace_short_term_memory, *self.thread_memories.values()]
        for each in self.channel_memories.values():
            texts += [each.long_term, each.short_term]
        return any(text and text.strip() for text in texts)
