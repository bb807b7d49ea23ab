"""Several rankings made into one, by reciprocal rank: scores of different kinds need not be comparable.

Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual rank learning
methods", SIGIR 2009. Pure functions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Ranking", "fused"]

K = TypeVar("K", bound=Hashable)

_DAMPING: Final = 60
"""The paper's constant: the larger it is, the less the first places differ from those that follow."""


class Ranking(NamedTuple, Generic[K]):
    """Keys in the order of one ranker, best first."""

    keys: Sequence[K]
    weight: float = 1.0


def fused(rankings: Iterable[Ranking[K]], damping: int = _DAMPING) -> dict[K, float]:
    """Key → score, best first, 1.0 for what is first everywhere; of equal ones what came first.

    >>> list(fused([Ranking("abc"), Ranking("bda")]))
    ['b', 'a', 'd', 'c']
    """
    given = list(rankings)
    best = sum(each.weight / (damping + 1) for each in given)
    scores: dict[K, float] = {}
    for ranking in given:
        for place, key in enumerate(ranking.keys, 1):
            scores[key] = scores.get(key, 0.0) + ranking.weight / (damping + place)
    ordered = sorted(scores.items(), key=lambda pair: -pair[1])
    return {key: score / best for key, score in ordered}
