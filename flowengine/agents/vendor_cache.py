"""Says for which prompts a vendor's cache is worth its price, and explains where one that was asked for was of no use.

What a cache costs and saves is the matter of `pricing`; how a prompt is marked that of the vendor's protocol.
"""

from __future__ import annotations

import time
from typing import Final

from flowengine.models import PromptCache, Reply

# --- Which prompts are asked again

_LIFETIME: Final = 300.0
"""Seconds for which vendors keep a prompt from its last use on."""
_MOST: Final = 10_000
_last_uses: Final[dict[str, float]] = {}
"""Key of prompts that begin alike → when one of them was asked."""


def note_prompt(cache: PromptCache, *, is_planned: bool) -> PromptCache:
    """The settings of a prompt's cache, with whether another prompt that begins alike is to come: since the plan says
    so, or since one has come in this process a short time ago.

    >>> first, second = (note_prompt(PromptCache("a.flow.of.this.example"), is_planned=False) for _ in range(2))
    >>> first.is_asked_again, second.is_asked_again
    (False, True)
    """
    if not cache.key:
        return cache
    now = time.monotonic()
    last = _last_uses.get(cache.key)
    if len(_last_uses) >= _MOST:
        _last_uses.clear()
    _last_uses[cache.key] = now
    return cache._replace(is_asked_again=is_planned or (last is not None and now - last < _LIFETIME))


# --- What is told

CACHE_NOTICE: Final = "prompt_cache: "
"""How notices on a cache that was of no use begin."""


def explain_unused_cache(reply: Reply, model: str) -> str | None:
    """Explains why a requested cache was not used; None if it was, or if the vendor does not say.

    >>> from flowengine.models.model import TokenUsage
    >>> explain_unused_cache(Reply("", provider="openai", usage=TokenUsage(900, 5)), "gpt-4o")
    'prompt_cache: openai keeps prompts of gpt-4o from 1,024 tokens on, and this one has 900'
    """
    from flowengine.models.http import cache_minimum  # Few agents ask for a cache.

    minimum, usage = cache_minimum(reply.provider, model), reply.usage
    if minimum is None or usage.prompt_tokens is None or usage.cached_tokens or usage.cache_write_tokens:
        return None
    vendor = f"{CACHE_NOTICE}{reply.provider} keeps prompts of {model} from {minimum:,} tokens on"
    if usage.prompt_tokens < minimum:
        return f"{vendor}, and this one has {usage.prompt_tokens:,}"
    if usage.cache_write_tokens is None:
        return None  # The vendor does not tell what it writes: the next call may be served.
    return f"{vendor}, and what stays of this one (tools, system message, fixed context) is shorter"


def find_cache_rule(notice: str) -> str:
    """Extracts the vendor's cache rule from a notice of `explain_unused_cache`.

    >>> find_cache_rule("prompt_cache: openai keeps prompts of gpt-4o from 1,024 tokens on, and this one has 900")
    'prompt_cache: openai keeps prompts of gpt-4o from 1,024 tokens on'
    """
    return notice.partition(", and ")[0]
