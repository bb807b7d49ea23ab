"""What the format knows and this version does not run. Later versions delete rows; nothing else changes.

A key of this table is refused by name, so that nothing is ever accepted that nothing reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["UNAVAILABLE_KEYS"]

_OF_AGENTS: Final = frozenset({"memory"})

UNAVAILABLE_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "nodes": _OF_AGENTS,
    "agents": _OF_AGENTS,
    "defaults": _OF_AGENTS,
}
"""Top-level key → keys anywhere below it."""
