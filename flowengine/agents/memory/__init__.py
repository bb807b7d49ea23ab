"""Scoped memory: what a bot remembers of a workspace, of its channels and of their threads.

The public names are here; each is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flowengine.agents.memory.open_database import open_memory, shortened
    from flowengine.agents.memory.scopes.channel_messages import (
        Channel,
        ChannelMemory,
        ChannelMessage,
        ChannelMessages,
        ConversationStore,
        PromptRecord,
    )
    from flowengine.agents.memory.scopes.generation import (
        MemoryGenerator,
        MemoryLimits,
        long_term_messages,
        short_term_messages,
    )
    from flowengine.agents.memory.scopes.judge import ReplyDecision, judge
    from flowengine.agents.memory.scopes.memories import (
        WORKSPACE_ID,
        Memory,
        MemoryRepository,
        MemoryScope,
        MemoryType,
        parse_thread_scope_id,
        thread_scope_id,
    )
    from flowengine.agents.memory.scopes.memory_prompt import prompt_messages, system_prompt
    from flowengine.agents.memory.scopes.memory_updater import MemoryKeeper, MemoryLoader, Windows
    from flowengine.agents.memory.scopes.sql_stores import SQLConversationStore, SQLMemoryRepository

_MODULES: Final = (
    *("open_database", "scopes.memories", "scopes.channel_messages", "scopes.sql_stores"),
    *("scopes.memory_prompt", "scopes.generation", "scopes.memory_updater", "scopes.judge"),
)
"""Those that need few others come first."""

__all__ = [
    "WORKSPACE_ID",
    "Channel",
    "ChannelMemory",
    "ChannelMessage",
    "ChannelMessages",
    "ConversationStore",
    "Memory",
    "MemoryGenerator",
    "MemoryKeeper",
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
    "judge",
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
    modules = (import_module(f"flowengine.agents.memory.{each}") for each in _MODULES if name in __all__)
    module = next((each for each in modules if name in each.__all__), None)
    if module is None:
        raise AttributeError(f"module 'flowengine.agents.memory' has no attribute {name!r}")
    globals()[name] = value = getattr(module, name)
    return value
