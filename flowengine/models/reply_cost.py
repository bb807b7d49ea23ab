"""Computes what an answer cost, from the tokens that its vendor told and the rates of the table.

Where a rate or the tokens are unknown, so is the cost. What a call may cost at most, before it is made, is the matter
of `pricing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from flowengine.models.model import TokenUsage
from flowengine.models.pricing import listed_entry

__all__ = ["cost_of"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def cost_of(provider: str, name: str, usage: TokenUsage, extra: Mapping[str, Any] = _NOTHING) -> float | None:
    """Dollars for one call; None where the table has no price of the model, or the tokens are unknown.

    `extra`: options of the call; a service tier has rates of its own.

    >>> cost_of("openai", "gpt-4o-mini", TokenUsage(1000, 100, 600))
    0.000165
    """
    if usage.prompt_tokens is None:
        return None
    entry = listed_entry(provider, name)
    if entry is None:
        return None
    prompt, answer = usage.prompt_tokens, usage.completion_tokens or 0
    tier = str(extra.get("service_tier") or "")
    into, out = (_rate(entry, f"{kind}_cost_per_token", prompt, tier) for kind in ("input", "output"))
    if into is None or out is None:
        return None
    cached = min(usage.cached_tokens or 0, prompt)
    written = min(usage.cache_write_tokens or 0, prompt - cached)
    thought = min(usage.reasoning_tokens or 0, answer)
    cost = (prompt - cached - written) * into + (answer - thought) * out
    cost += cached * _or(_rate(entry, "cache_read_input_token_cost", prompt, tier), into)
    cost += written * _or(_rate(entry, "cache_creation_input_token_cost", prompt, tier), into)
    cost += thought * _or(_rate(entry, "output_cost_per_reasoning_token", prompt, tier), out)
    fee = entry.get("input_cost_per_request")
    return round(cost + (fee if isinstance(fee, int | float) else 0.0), 12)


def _or(rate: float | None, other: float) -> float:
    return other if rate is None else rate


def _rate(entry: Mapping[str, Any], kind: str, prompt: int, tier: str) -> float | None:
    """Dollars a token, after a prompt of so many: the rate of the highest threshold that it is above."""
    found, highest = entry.get(kind), -1
    if tier and isinstance(special := entry.get(f"{kind}_{tier}"), int | float):
        return special
    for name, value in entry.items():
        if name.startswith(f"{kind}_above_") and name.endswith("k_tokens") and isinstance(value, int | float):
            threshold = int(name.removeprefix(f"{kind}_above_").removesuffix("k_tokens")) * 1000
            if prompt > threshold > highest:
                found, highest = value, threshold
    return found if isinstance(found, int | float) else None
