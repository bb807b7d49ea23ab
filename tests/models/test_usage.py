"""What an answered call took."""

from __future__ import annotations

import pytest

from flowengine.core.budget import Spending
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.model import TokenUsage as Counted
from flowengine.models.tokens import count_tokens
from flowengine.models.wrappers.bounded import usage_of_reply

ASKED = Request("gpt-4o", (Message("user", "What do you know of tea? " * 20),))


def test_what_the_vendor_counted_counts() -> None:
    assert usage_of_reply(ASKED, Reply("x", usage=Counted(40, 2), cost_usd=0.01)) == Spending(1, 42, 0.01)
    assert usage_of_reply(ASKED, Reply("x", usage=Counted(40), cost_usd=0.0)) == Spending(1, 40, 0.0)


def test_what_it_did_not_count_is_counted_here() -> None:
    call = ToolRequest("1", "look", '{"where": "in the tea house"}')
    usage = usage_of_reply(ASKED, Reply("Very little.", (call,), cost_usd=0.0))
    texts = (ASKED.messages[0].content, "Very little.", call.arguments)
    least = sum(count_tokens(text, "gpt-4o") for text in texts)
    assert least <= usage.tokens <= least + 20


@pytest.mark.parametrize("cost", [None, float("nan"), -1.0])
def test_a_cost_that_is_none_is_unknown(cost: float | None) -> None:
    assert usage_of_reply(ASKED, Reply("x", usage=Counted(1, 1), cost_usd=cost)) == Spending(1, 2, 0.0, 1)
