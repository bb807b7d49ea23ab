"""What the format knows and this version does not run. Later versions delete rows; nothing else changes.

A key or a type of this table is refused by name, so that nothing is ever accepted that nothing reads.
"""

from __future__ import annotations

from typing import Final

__all__ = ["UNAVAILABLE_KEYS", "UNAVAILABLE_TYPES"]

UNAVAILABLE_TYPES: Final = frozenset({"map", "loop", "subflow", "approval"})
"""Node types."""

UNAVAILABLE_KEYS: Final = frozenset(
    {
        # of every node
        "effect",
        "cache",
        "limits",
        # of agents
        "tools",
        "mcp_servers",
        "context",
        "contexts",
        "memory",
        "skills",
    }
)
"""Keys of nodes, agents and defaults."""
