"""The rows of context: random histories, in several languages, are packed within their budgets."""

from __future__ import annotations

import random

from flowengine.agents.context.packer import BudgetError, pack
from flowengine.agents.context.provider import join_fragments
from flowengine.models.tokens import count_tokens
from tests.bench.measure import Row
from tests.support.histories import random_history

__all__ = ["ROWS"]


def context_within_budget() -> Row:
    """The histories whose joined text, counted anew, exceeds the budget: 0 % is 100 % within it."""
    histories, over = 10_000, 0
    for seed in range(histories):
        fragments, budget = random_history(random.Random(seed))
        try:
            packed = pack(fragments, budget)
        except BudgetError:
            continue  # The fixed parts alone are larger, and that is what is said.
        over += count_tokens(join_fragments(packed.kept)) > budget
    return Row("packed beyond the budget, 10,000 histories", 100 * over / histories, 0, "%")


ROWS = (context_within_budget,)
