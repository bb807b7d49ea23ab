"""Marks for OpenAI's cache how far prompts begin alike, for the models whose cache costs to write.

From GPT-5.6 on a prompt is found in the cache only up to a mark, exactly as it was written. The vendor sets one at the
newest message, which is another in each prompt of a map: without a mark of ours such prompts are written each time,
at a quarter more, and never read. Where nothing but the end of a prompt changes and no tool's round follows, its end is
not written at all.
Source, as of November 2026: https://developers.openai.com/api/docs/guides/prompt-caching
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Final, NamedTuple

from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.model import Request

_MARK: Final = {"mode": "explicit"}


class SharedBeginning(NamedTuple):
    """The part that a prompt has in common with others of its node."""

    message: int
    """The index of the message in which it ends."""
    characters: int
    """Characters of that message that are part of it."""
    is_all: bool
    """Whether no later prompt begins with more of this one."""

    def split_text(self, text: str, kind: str) -> list[dict[str, Any]]:
        """The parts of the message in which it ends. `kind`: of its parts.

        >>> SharedBeginning(0, 4, False).split_text("long short", "text")[1]
        {'type': 'text', 'text': ' short'}
        """
        parts = [{"type": kind, "text": text[: self.characters], "prompt_cache_breakpoint": _MARK}]
        return [*parts, {"type": kind, "text": rest}] if (rest := text[self.characters :]) else parts

    @property
    def options(self) -> dict[str, Any]:
        return {"prompt_cache_options": _MARK} if self.is_all else {}


def find_shared_beginning(request: Request, traits: VendorTraits) -> SharedBeginning | None:
    """Finds the beginning that is to be marked; None where there is none, or it is shorter than the cache keeps.

    A text has at most as many tokens as bytes, so that nothing is counted here; tools stand before all texts, and are
    long.
    """
    cache, messages = request.cache, request.messages
    if cache is None or not (cache.is_wanted and traits.marks_beginnings):
        return None
    system_count = sum(1 for _ in takewhile(lambda each: each.role == "system", messages))
    mark_index = next((at for at, each in enumerate(messages) if each.stable and not each.attachments), None)
    message, end = (system_count - 1, None) if mark_index is None else (mark_index, messages[mark_index].stable)
    texts = [each.content for each in messages[: message + 1]]
    if not texts:
        return None
    texts[-1] = texts[-1][:end]
    is_short = sum(len(each.encode("utf-8", "replace")) for each in texts) < traits.cache_minimum and not request.tools
    if is_short or not texts[-1].strip():
        return None
    return SharedBeginning(message, len(texts[-1]), is_all=len(messages) == system_count + 1 and not request.tools)
