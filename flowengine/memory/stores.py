"""From what a user says to the database of memories and messages. The one table of the kinds that there are.

Items, which are found by their words, are kept in SQLite only (`sqlite_items`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flowengine.memory.database import MemoryDatabase

if TYPE_CHECKING:
    from flowengine.memory.postgres import PostgresMemoryDatabase

__all__ = ["open_memory"]


def open_memory(store: str | os.PathLike[str]) -> MemoryDatabase | PostgresMemoryDatabase:
    """The database at a URL (`postgresql://user@host/database`) or at the path of a SQLite file.

    >>> open_memory(":memory:").close()
    """
    path = os.fspath(store)
    if path.startswith(("postgresql://", "postgres://")):
        # Imported here: psycopg is an extra, and slow to import.
        from flowengine.memory.postgres import PostgresMemoryDatabase

        return PostgresMemoryDatabase(path)
    return MemoryDatabase(path)
