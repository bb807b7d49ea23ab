"""Declares what retrieval is: documents in, hits out. The protocol that every engine behind it implements.

It knows no index and no storage. Engines of other packages are found by their entry points
(`flowengine.agents.context.retrieval`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

__all__ = ["Document", "Embedder", "Hit", "Ranking", "Retriever", "Searchable", "SourcedRetriever", "fuse_rankings"]


class Document(NamedTuple):
    """A text to be found again."""

    id: str
    """One that is added again under its id takes the place of the former."""
    text: str
    metadata: Mapping[str, Any] = {}
    """JSON values."""


class Hit(NamedTuple):
    """A document that was found."""

    id: str
    text: str
    score: float
    """0.0–1.0, where 1.0 is as good as it gets for this query. Comparable within one search only."""
    metadata: Mapping[str, Any] = {}


@runtime_checkable
class Searchable(Protocol):
    """An index in which documents can be found. Calls may come from several tasks at once."""

    async def search(self, query: str, limit: int = 5, where: Mapping[str, Any] | None = None) -> Sequence[Hit]:
        """The best documents for a query, best first.

        `where`: only documents whose metadata have these values; of a list, any of its values. A query in
        which there is nothing to search for finds nothing.
        """
        ...


@runtime_checkable
class Retriever(Searchable, Protocol):
    """An index that takes documents in and out."""

    async def add(self, documents: Sequence[Document]) -> None:
        """Take documents in, all or none."""
        ...

    async def remove(self, ids: Sequence[str]) -> None:
        """Take documents out; an unknown id is nothing to complain about."""
        ...


@runtime_checkable
class SourcedRetriever(Retriever, Protocol):
    """A retriever that knows where its documents are from, so that those go that are there no more."""

    async def synchronise(
        self, source: str, added: Sequence[Document], removed: Sequence[str] = (), *, is_all: bool = False
    ) -> None:
        """Bring the documents of a source up to date, all or nothing.

        `is_all`: these are all that there are; whatever else it has of the source goes. What has not changed is
        left alone.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors that are near each other where the texts mean the like."""

    @property
    def name(self) -> str:
        """Vectors are compared with those of the same name only."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector a text, in their order, all of one length."""
        ...


# --- Rankings fused by reciprocal rank

K = TypeVar("K", bound=Hashable)

_DAMPING: Final = 60
"""The paper's constant: the larger it is, the less the first places differ from those that follow."""


class Ranking(NamedTuple, Generic[K]):
    """Keys in the order of one ranker, best first."""

    keys: Sequence[K]
    weight: float = 1.0


def fuse_rankings(rankings: Iterable[Ranking[K]], damping: int = _DAMPING) -> dict[K, float]:
    """Key → score, best first, 1.0 for what is first everywhere; of equal ones what came first.

    >>> list(fuse_rankings([Ranking("abc"), Ranking("bda")]))
    ['b', 'a', 'd', 'c']
    """
    ranking_list = list(rankings)
    best = sum(each.weight / (damping + 1) for each in ranking_list)
    scores: dict[K, float] = {}
    for ranking in ranking_list:
        for place, key in enumerate(ranking.keys, 1):
            scores[key] = scores.get(key, 0.0) + ranking.weight / (damping + place)
    ordered = sorted(scores.items(), key=lambda pair: -pair[1])
    return {key: score / best for key, score in ordered}
