"""Opens the database of memories that a user names, and shortens texts for prompts by the count of their tokens."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from flowengine.memory.database import MemoryDatabase
from flowengine.models.tokens import count_tokens

if TYPE_CHECKING:
    from flowengine.memory.postgres import PostgresMemoryDatabase

__all__ = ["open_memory", "shortened"]


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


_LONGEST_TOKEN: Final = 200
"""Characters that no token has more of."""
_END: Final = re.compile(r"[.!?](?=\s)|[。！？]|\n|$")
"""After a sentence or a line, where a text may end."""


def shortened(text: str, max_tokens: int, notice: str, *, model: str | None = None) -> str:
    """The text, or as many of its first sentences as fit with the notice below them.

    Where not even one sentence fits, it ends inside of it; where the notice takes all the room, it is left out.

    >>> print(shortened("Tea is hot. Milk is cold. Water is wet.", 9, "(cut)"))
    Tea is hot.
    (cut)
    """
    # What is longer has more tokens, and need not be counted again and again.
    beginning = text[: max_tokens * _LONGEST_TOKEN]
    if beginning == text and count_tokens(text, model) <= max_tokens:
        return text
    text = beginning
    for ends in ([match.end() for match in _END.finditer(text)], range(1, len(text))):
        found = _longest(text, ends, max_tokens, f"\n{notice}", model)
        if found is not None:
            return found
    return _longest(text, range(1, len(text)), max_tokens, "", model) or ""


def _longest(text: str, ends: Sequence[int], max_tokens: int, notice: str, model: str | None) -> str | None:
    """The longest beginning that ends in one of these places and fits with the notice after it."""

    def ending(end: int) -> str:
        return text[:end].rstrip() + notice

    place = bisect_right(ends, max_tokens, key=lambda end: count_tokens(ending(end), model)) - 1
    # Tokens may merge across the seam, so that counts need not grow with every character.
    while place >= 0 and count_tokens(ending(ends[place]), model) > max_tokens:
        place -= 1
    kept = text[: ends[place]].rstrip() if place >= 0 else ""
    return kept + notice if kept else None
