"""Opens the database of memories that a user names, and shortens texts for prompts by the count of their tokens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flowengine.agents.memory.database import MemoryDatabase
from flowengine.models import count_tokens, shorten_text

if TYPE_CHECKING:
    from flowengine.agents.memory.postgres import PostgresMemoryDatabase


def open_memory(store: str | os.PathLike[str]) -> MemoryDatabase | PostgresMemoryDatabase:
    """The database at a URL (`postgresql://user@host/database`) or at the path of a SQLite file.

    >>> open_memory(":memory:").close()
    """
    path = os.fspath(store)
    if path.startswith(("postgresql://", "postgres://")):
        # Imported here: psycopg is an extra, and slow to import.
        from flowengine.agents.memory.postgres import PostgresMemoryDatabase

        return PostgresMemoryDatabase(path)
    return MemoryDatabase(path)


def shortened(text: str, max_tokens: int, notice: str, *, model: str | None = None) -> str:
    """The text, or as many of its first sentences as fit with the notice below them.

    Where not even one sentence fits, or they would leave more than half of the room, it ends between two words; where
    the notice takes all the room, it is left out.

    >>> print(shortened("Tea is hot. Milk is cold. Water is wet.", 9, "(cut)"))
    Tea is hot.
    (cut)
    """

    def count(part: str) -> int:
        return count_tokens(part, model)

    return shorten_text(text, max_tokens, count, f"\n{notice}") or shorten_text(text, max_tokens, count, "")
