"""What can be known of a model by its name alone, without opening it: who has it, its price, its bounds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flowengine.llm.detect import choice_of, default_model
from flowengine.llm.priced import said_price
from flowengine.llm.pricing import Price, context_window, listed_price, longest_answer
from flowengine.llm.worst_case import with_margin

__all__ = ["Facts", "KnownModel"]


class KnownModel(NamedTuple):
    """A model, as far as it is known before it is asked."""

    provider: str
    name: str
    window: int | None
    """The longest question in tokens; None where no list says it."""
    longest: int | None
    """The longest answer; None where no list says it."""
    said: Price | None = None
    """The price that the user says."""
    because: str = ""
    """Why it is that provider's."""

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"

    def price(self, question: int) -> Price | None:
        """For a question of so many tokens; None where it is unknown."""
        if self.said is not None:
            return self.said
        return listed_price(self.provider, self.name, prompt_tokens=question)

    def question(self, counted: int | None) -> int | None:
        """The most tokens of a question that has so many by our count; never more than the window."""
        widened = None if counted is None else with_margin(counted, self.provider)
        return min((each for each in (widened, self.window) if each is not None), default=None)


@dataclass(frozen=True)
class Facts:
    """Models by the names that flows write, looked up in an environment; `prices` are the user's."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    default_provider: str | None = None
    """The project's, for names that no table knows."""

    def of(self, model: str | None) -> KnownModel:
        """The model of a name, or the default one. `ModelConfigError` for a provider or a name that is unknown.

        >>> str(Facts({}).of("gpt-4o-mini")), Facts({}).of("offline").price(100)
        ('openai/gpt-4o-mini', Price(input=0.0, output=0.0, per_call=0.0))
        """
        written = default_model(self.environ).name if model is None else model
        choice = choice_of(written, environ=self.environ, default_provider=self.default_provider)
        provider, name = choice.provider, choice.name
        said = said_price(self.prices, written, provider, name)
        if provider == "offline":
            said = Price(0.0, 0.0)
        window, longest = context_window(provider, name), longest_answer(provider, name)
        return KnownModel(provider, name, window, longest, said, choice.because)
