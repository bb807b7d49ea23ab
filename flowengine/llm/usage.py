"""What a call took, as a ledger has it: from its answer, or from its record in a journal, alike.

Where a vendor does not say how many tokens it counted, they are counted here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from flowengine.ledger import Usage
from flowengine.llm.messages import as_dict
from flowengine.llm.model import Reply, Request
from flowengine.llm.tokens import count_tokens
from flowengine.records import ModelCall

__all__ = ["SENT_IN_VAIN", "tokens_of_reply", "usage_of", "usage_of_reply"]

SENT_IN_VAIN: Final = Usage(model_calls=1)
"""A call that failed for good: vendors charge nothing for these."""


def usage_of(call: ModelCall) -> Usage:
    """What a recorded call took.

    >>> usage_of(ModelCall("m", "p", "generation", [], "Green.", prompt_tokens=40, completion_tokens=2, cost_usd=0.01))
    Usage(model_calls=1, tokens=42, cost_usd=0.01, unpriced_calls=0)
    """
    if call.prompt_tokens is not None:
        return _usage(call.prompt_tokens + (call.completion_tokens or 0), call.cost_usd)
    if call.error is not None:
        return SENT_IN_VAIN
    arguments = [str(each.get("arguments", "")) for each in call.tool_calls]
    return _usage(_question(call.messages, call.model) + _answer(call.content, arguments, call.model), call.cost_usd)


def usage_of_reply(request: Request, reply: Reply) -> Usage:
    """What a call took that was answered just now."""
    return _usage(sum(tokens_of_reply(request, reply)), reply.cost_usd)


def tokens_of_reply(request: Request, reply: Reply) -> tuple[int, int]:
    """Tokens of the question and of the answer."""
    prompt, answer, _ = reply.usage
    if prompt is not None:
        return prompt, answer or 0
    model = reply.model or request.model
    question = _question([as_dict(message) for message in request.messages], model)
    return question, _answer(reply.content, [each.arguments for each in reply.tool_calls], model)


def _usage(tokens: int, cost_usd: float | None) -> Usage:
    if cost_usd is None or not (isfinite(cost_usd) and cost_usd >= 0):
        return Usage(1, tokens, 0.0, 1)
    return Usage(1, tokens, cost_usd)


def _question(messages: Sequence[Mapping[str, Any]], model: str) -> int:
    return sum(count_tokens(json.dumps(message, ensure_ascii=False), model) for message in messages)


def _answer(content: str, arguments: Sequence[str], model: str) -> int:
    return sum(count_tokens(text, model) for text in (content, *arguments))
