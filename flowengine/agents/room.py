"""How many tokens a prompt may have where nobody set a budget: what the model's window leaves beside its answer."""

from __future__ import annotations

from typing import Final

from flowengine.llm.answering import answering
from flowengine.llm.model import Model
from flowengine.llm.pricing import context_window, longest_answer

__all__ = ["room_for_prompt"]

_EXACT: Final = frozenset({"openai", "azure"})
"""Vendors whose vocabularies are public, so that our counts are theirs."""
_OTHERS: Final = 0.8
"""The share that is ours to fill where a vendor may count more tokens than we do."""
_OWN: Final = 0.95
"""The share where the counts agree: tools and schemas are sent beside the messages."""


def room_for_prompt(model: Model, max_tokens: int | None) -> int | None:
    """Tokens for the messages of a call; None where nothing is known of a model that may answer.

    `max_tokens` is the answer's bound; without one the longest answer counts, up to a quarter of the window.
    """
    rooms = [_room(each, max_tokens) for each in answering(model)]
    known = [each for each in rooms if each is not None]
    return min(known) if known and len(known) == len(rooms) else None


def _room(model: Model, max_tokens: int | None) -> int | None:
    window = context_window(model.provider, model.name)
    if window is None:
        return None
    answer = max_tokens or min(longest_answer(model.provider, model.name) or window, window // 4)
    return max(int((window - answer) * (_OWN if model.provider in _EXACT else _OTHERS)), 1)
