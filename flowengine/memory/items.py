"""Single things to remember, and the seam behind which they are kept and found.

Data and a protocol. An item with a subject is a fact: a newer one of the same subject closes it, and nothing is
deleted. An item without one happened, or was said, and stays true.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from flowengine.errors import DefinitionError
from flowengine.memory.scopes import MemoryScope, aware, parse_thread_scope_id

__all__ = ["MemoryItem", "MemoryItems", "Recalled"]


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One thing to remember."""

    scope: MemoryScope
    scope_id: str
    text: str
    valid_from: datetime
    subject: str | None = None
    """What it is a fact about: `Mika's home`."""
    valid_to: datetime | None = None
    """When another fact took its place; None for what holds."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON values."""
    id: str = ""
    """Adding it again changes nothing. Made from the rest where none is given."""

    def __post_init__(self) -> None:
        aware("valid_from", self.valid_from)
        if self.scope is MemoryScope.THREAD:
            parse_thread_scope_id(self.scope_id)
        elif not self.scope_id:
            raise DefinitionError(f"an item of a {self.scope} needs that {self.scope}'s id")
        if not self.id:
            object.__setattr__(self, "id", self._made_id())

    def _made_id(self) -> str:
        told = [self.scope, self.scope_id, self.text, self.valid_from.timestamp(), self.subject]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


class Recalled(NamedTuple):
    """An item that was found."""

    item: MemoryItem
    score: float
    """0.0–1.0: the share of what was asked that the item speaks of, rare words weighing more."""


class MemoryItems(Protocol):
    """Where items are kept. No search ever gives an item of another scope."""

    async def add(self, items: Sequence[MemoryItem]) -> None:
        """Keep items, all or none. A fact closes the one of its subject that held when it began."""
        ...

    async def search(
        self,
        scope: MemoryScope,
        scope_id: str,
        query: str,
        *,
        limit: int = 5,
        threshold: float = 0.0,
        now: datetime | None = None,
        also: Sequence[MemoryItem] = (),
    ) -> Sequence[Recalled]:
        """The items nearest to a query, best first; none whose score is below the threshold.

        `also`: items of this scope that are not kept yet, found as if they were.

        Facts that are closed are found only where the query names a time at which they held. `now` (the present
        where it is not given) is what `last week` is reckoned from.
        """
        ...

    async def around(self, item: MemoryItem) -> Sequence[MemoryItem]:
        """What was said right before and right after an item in its scope, and still holds; facts are left out."""
        ...

    async def close(self, scope: MemoryScope, scope_id: str, *, at: datetime) -> None:
        """Forget the items of a scope: from `at` on none of them holds. They stay on record."""
        ...
