"""Scoped memory: what a bot remembers of a workspace, of its channels and of their threads.

The public names are here; each is imported at its first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flowengine.memory.open_database import open_memory, shortened
    from flowengine.memory.scopes.channel_messages import (
        Channel,
        ChannelMemory,
        ChannelMessage,
        ChannelMessages,
        ConversationStore,
        PromptRecord,
    )
    from flowengine.memory.scopes.generation import MemoryLimits, long_term_messages, short_term_messages
    from flowengine.memory.scopes.judge import ReplyDecision
    from flowengine.memory.scopes.memories import (
        Memory,
        MemoryRepository,
        MemoryScope,
        MemoryType,
        parse_thread_scope_id,
        thread_scope_id,
    )
    from flowengine.memory.scopes.memory_prompt import prompt_messages, system_prompt
    from flowengine.memory.scopes.memory_updater import MemoryLoader, Windows
    from flowengine.memory.scopes.sql_stores import SQLConversationStore, SQLMemoryRepository

_MODULES: Final[Mapping[str, Sequence[str]]] = {
    "flowengine.memory.open_database": (
        "open_memory",
        "shortened",
    ),
    "flowengine.memory.scopes.channel_messages": (
        "Channel",
        "ChannelMemory",
        "ChannelMessage",
        "ChannelMessages",
        "ConversationStore",
        "PromptRecord",
    ),
    "flowengine.memory.scopes.generation": (
        "MemoryLimits",
        "long_term_messages",
        "short_term_messages",
    ),
    "flowengine.memory.scopes.judge": ("ReplyDecision",),
    "flowengine.memory.scopes.memories": (
        "Memory",
        "MemoryRepository",
        "MemoryScope",
        "MemoryType",
        "parse_thread_scope_id",
        "thread_scope_id",
    ),
    "flowengine.memory.scopes.memory_prompt": (
        "prompt_messages",
        "system_prompt",
    ),
    "flowengine.memory.scopes.memory_updater": (
        "MemoryLoader",
        "Windows",
    ),
    "flowengine.memory.scopes.sql_stores": (
        "SQLConversationStore",
        "SQLMemoryRepository",
    ),
}
_PUBLIC: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Channel",
    "ChannelMemory",
    "ChannelMessage",
    "ChannelMessages",
    "ConversationStore",
    "Memory",
    "MemoryLimits",
    "MemoryLoader",
    "MemoryRepository",
    "MemoryScope",
    "MemoryType",
    "PromptRecord",
    "ReplyDecision",
    "SQLConversationStore",
    "SQLMemoryRepository",
    "Windows",
    "long_term_messages",
    "open_memory",
    "parse_thread_scope_id",
    "prompt_messages",
    "short_term_messages",
    "shortened",
    "system_prompt",
    "thread_scope_id",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'flowengine.memory' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value
