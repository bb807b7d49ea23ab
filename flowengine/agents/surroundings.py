"""What agents find where they run: the environment with its keys, what a project says of vendors and prices, and
who keeps the vendors' limits.

Data only. Who runs an agent hands it on; an agent that is given nothing looks at the process's own
environment, at the time when it needs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flowengine.llm.pricing import Price
from flowengine.llm.provider import ProviderSettings
from flowengine.llm.rate import Limiters, limiter_for

__all__ = ["PROCESS", "Surroundings"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment, provider → its settings, and model → its price.

    >>> Surroundings({"OPENAI_API_KEY": "sk-1"})
    Surroundings(providers={}, prices={})
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Holds keys, so it is not shown."""
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    limiters: Limiters = field(default=limiter_for, repr=False)
    """Keep the limits of `providers`."""
    default_provider: str | None = field(default=None, repr=False)
    """Where names of models go that no table knows."""
    stand_in: str | None = field(default=None, repr=False)
    """A model that is asked in place of every other that is given by name."""


PROCESS: Final = Surroundings()
"""The process's own environment, and nothing said of any vendor."""
