"""When and how often a failed node is run again, as data. Source of the rule: rule 19 of the flow format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowengine.errors import DefinitionError, LimitError, OutputError, StoreUnavailableError

__all__ = ["Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """When and how often a failed node is run again (rule 19)."""

    attempts: int = 3
    """Counts the first."""
    backoff: Literal["fixed", "exponential"] = "exponential"
    initial: float = 1.0
    """Seconds before the second attempt."""
    max: float = 60.0
    """Seconds, at most, before any attempt."""
    jitter: bool = True
    """Shorten each pause at random, by up to half, so that many nodes do not come back at once."""
    on: tuple[Literal["invalid_output", "error"], ...] = ("invalid_output", "error")

    def covers(self, error: BaseException) -> bool:
        """`invalid_output` is an output that does not fit its shape; `error` is everything else.

        Neither are limits and wrong definitions, which are the same the next time; nor a store that is away, or is
        another's by now, for then the whole run stops.
        """
        if isinstance(error, LimitError | DefinitionError | StoreUnavailableError):
            return False
        return ("invalid_output" if isinstance(error, OutputError) else "error") in self.on
