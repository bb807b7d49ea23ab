"""How many tokens a text has, counted on this machine.

Which vocabulary is meant is known here; where it comes from is known in `vocabulary`. Where it is missing, an estimate
is given. Word counts would be 60-100 % wrong on Japanese and Chinese.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from flowengine.llm.vocabulary import NEWEST, VOCABULARIES, encoding

__all__ = ["count_tokens", "estimate_tokens"]

_PART: Final = 10_000
"""Characters of a part of a text that cannot be counted as a whole."""


def count_tokens(text: str, model: str | None = None) -> int:
    """Tokens of a text as OpenAI's models count them; control words in it are plain text.

    >>> count_tokens("Hello, world!")
    4
    """
    if not text:
        return 0
    made = encoding(_encoding_name(model))
    if made is None:
        return estimate_tokens(text)
    try:
        return len(made.encode(text, disallowed_special=()))
    except ValueError:
        # Hundreds of thousands of blanks in a row are more than its pattern can go back over.
        parts = (text[start : start + _PART] for start in range(0, len(text), _PART))
        return sum(len(made.encode(part, disallowed_special=())) for part in parts)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has: at once, with nothing to load.

    A token is about four characters of a Latin script and a bit more than one of most others.

    >>> estimate_tokens("Hello, world!"), estimate_tokens("今日は世界。")
    (4, 5)
    """
    if not text:
        return 0
    latin = len(text) if text.isascii() else sum(character < "\u0250" for character in text)
    return max(1, -(-latin // 4) + round((len(text) - latin) * 0.8))


@cache
def _encoding_name(model: str | None) -> str:
    """Of a model; the newest is also the nearest guess for other vendors' models, whose vocabularies are not public."""
    if model is None:
        return NEWEST
    try:
        name = import_module("tiktoken").encoding_name_for_model(model.rpartition("/")[2])
    except (ImportError, KeyError):
        return NEWEST
    return name if name in VOCABULARIES else NEWEST
