"""Whether a run is suspected, or proven, to kill its workers, as what is on record of their deaths says. Pure.

A worker that dies takes all its runs with it, and at most one of them is at fault. So a death says the less about a
run, the more runs it shared it with; and only deaths that a run had to itself prove anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log
from typing import Final, NamedTuple

__all__ = ["SUSPECT", "Suspicion", "share_out", "weigh_death"]

SUSPECT: Final = 2.0
"""The weight of deaths in a row from which on a run is driven alone."""
_FEW: Final = 4
"""A death among so many runs counts in full."""


def weigh_death(company: int) -> float:
    """What the death of a worker with so many runs weighs for one of them: 1, and less from five runs on.

    A run that was in each of them is suspected after two deaths among 4 runs, three among 16, four among 64.

    >>> [round(weigh_death(company), 2) for company in (1, 4, 16, 64, 256)]
    [1.0, 1.0, 0.67, 0.5, 0.4]
    """
    return min(1.0, SUSPECT / (1 + log(max(company, 1), _FEW)))


class Suspicion(NamedTuple):
    """The deaths of a run's writers in a row, without anything new on record in between."""

    companies: Sequence[int | None]
    """How many runs each of those workers had, the last one at the end; None where that is not on record."""

    @classmethod
    def of(cls, deaths: int, noted: Sequence[int]) -> Suspicion:
        """So many deaths in a row, of which these companies are on record, and maybe earlier ones.

        >>> Suspicion.of(3, [50, 1]), Suspicion.of(1, [50, 1])
        (Suspicion(companies=(None, 50, 1)), Suspicion(companies=(1,)))
        """
        known = tuple(noted)[-deaths:] if deaths else ()
        return cls((*[None] * (deaths - len(known)), *known))

    @property
    def weight(self) -> float:
        """Deaths of which nothing else is known count in full."""
        return sum(weigh_death(company or 1) for company in self.companies)

    @property
    def alone(self) -> int:
        """How many deaths the run had to itself."""
        return sum(company == 1 for company in self.companies)

    def is_suspect(self, takeovers: int) -> bool:
        """Whether the run is to be driven alone; after its first death where it may be taken over not even once."""
        return bool(self.companies) and (takeovers == 0 or self.weight >= SUSPECT)

    def is_proven(self, takeovers: int) -> bool:
        """Whether the run is at fault: more deaths than it may be taken over, all but two of which were its own.

        >>> Suspicion((9, 9, 1, 1, 1, 1)).is_proven(5), Suspicion((9, 9, 9, 1, 1, 1)).is_proven(5)
        (True, False)
        """
        own = min(takeovers, max(1, takeovers - 1))
        return self.is_suspect(takeovers) and len(self.companies) > takeovers and self.alone >= own


def share_out(waiting: int, idle: int) -> int:
    """How many of the runs that wait for their turn in a worker are left to workers that have nothing to do.

    >>> share_out(1, 1), share_out(9, 2), share_out(9, 0)
    (1, 6, 0)
    """
    return ceil(waiting * idle / (idle + 1))
