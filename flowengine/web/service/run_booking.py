"""Books what runs have cost on the day's budget of the key that started them, wherever they end.

A server does so for the runs that it drives, a worker for those of the queue. More than once does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowengine.engine import Event, History
from flowengine.runs import RunRecord
from flowengine.web.service.day_budgets import DayBudgets
from flowengine.web.service.outcomes import CALLER, RunOutcome, read_call, start_of

DAY: Final = "day"
"""Key of a run's setting that names the day whose budget it spends."""


def book_run(budgets: DayBudgets, events: Sequence[Event]) -> None:
    """Settle the reservation of a run that has ended; nothing for one of no budget, or that goes on."""
    started = start_of(events)
    how = read_call(started)
    if DAY in how and RunOutcome.of(events).has_ended:
        budgets.settle(how[CALLER], how[DAY], started.run_id, cost_of(events))


def cost_of(events: Sequence[Event]) -> float:
    """Returns the cost a run counts for: what is on record, and at their most the calls whose answers never came."""
    return RunRecord(events).usage.most_usd + History(events).unrecorded_usd
