"""What a call took, as a ledger has it. Tokens that a vendor does not tell are counted here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Final

from flowengine.ledger import Usage
from flowengine.llm.messages import as_dict
from flowengine.llm.model import Reply, Request
from flowengine.llm.tokens import count_tokens

__all__ = ["SENT_IN_VAIN", "tokens_of_reply", "usage_of_reply"]

SENT_IN_VAIN: Final = Usage(model_calls=1)
"""A call that failed for good: vendors charge nothing for these."""


def usage_of_reply(request: Request, reply: Reply) -> Usage:
    """What a call took.

    >>> from flowengine.llm.model import Usage as Counted
    >>> usage_of_reply(Request("m", ()), Reply("Green.", usage=Counted(40, 2), cost_usd=0.01))
    Usage(model_calls=1, tokens=42, cost_usd=0.01, unpriced_calls=0)
    """
    return _usage(sum(tokens_of_reply(request, reply)), reply.cost_usd)


def tokens_of_reply(request: Request, reply: Reply) -> tuple[int, int]:
    """Tokens of the question and of the answer."""
    prompt, answer, _ = reply.usage
    if prompt is not None:
        return prompt, answer or 0
    model = reply.model or request.model
    asked = [json.dumps(as_dict(message), ensure_ascii=False) for message in request.messages]
    said = [reply.content, *(each.arguments for each in reply.tool_calls)]
    return _counted(asked, model), _counted(said, model)


def _usage(tokens: int, cost_usd: float | None) -> Usage:
    if cost_usd is None or not (isfinite(cost_usd) and cost_usd >= 0):
        return Usage(1, tokens, 0.0, 1)
    return Usage(1, tokens, cost_usd)


def _counted(texts: Sequence[str], model: str) -> int:
    return sum(count_tokens(text, model) for text in texts)
