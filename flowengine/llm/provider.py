"""What a user says of a vendor: where it is, and how much may be asked of it. Data only.

Which vendors there are is `vendors`' matter, how limits are kept is that of `rate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ProviderSettings", "RateLimits"]


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What a vendor allows; None means no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Of prompts and answers together."""
    max_parallel: int | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "max_parallel"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")


class ProviderSettings(NamedTuple):
    """One vendor's."""

    base_url: str | None = None
    """Its address; None leaves it to the environment."""
    limits: RateLimits | None = None
    is_foreign: bool = False
    """Whether the address is one that somebody else named: no key of this machine is sent there."""
