"""Counts runs that stop in a worker, and what they spent, by flow and caller. It asks no store and knows no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from flowengine.core import ModelCall, Spending, usage_of
from flowengine.engine import Event, NodeRecorded, RunFinished, RunStarted, add_up_spending
from flowengine.journal import labels_of

SPENT_METRICS: Final = (
    ("flowengine_model_calls", "Model calls of runs that stopped here.", 0),
    ("flowengine_tokens", "Tokens of prompts and answers of runs that stopped here.", 1),
    ("flowengine_cost_usd", "Cost of runs that stopped here, in US dollars, as far as prices are known.", 2),
    ("flowengine_unpriced_calls", "Model calls whose price is not known.", 3),
)
"""Metrics by flow and caller: the name without `_total`, its help, and the place in `Spending`."""
CALLER: Final = "caller"
"""The label of a run that says by whose key it was started."""


class RunTotals:
    """Totals since a worker began."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[str, str, str]] = Counter()
        """By flow, caller and status."""
        self.spent: dict[tuple[str, str], Spending] = {}
        """By flow and caller."""

    def count(self, events: Sequence[Event]) -> None:
        """A run has stopped; `events` are all that it has."""
        if not events or not isinstance(events[0], RunStarted):
            return
        started, last = events[0], events[-1]
        source = (started.flow, labels_of(started).get(CALLER, ""))
        self.runs[*source, last.status if isinstance(last, RunFinished) else "running"] += 1
        self.spent[source] = add_up_spending([self.spent.get(source, Spending()), spent_since_stop(events)])


def spent_since_stop(events: Sequence[Event]) -> Spending:
    """Returns the spending of a run since its last stop: the spending before was counted then."""
    usages: list[Spending] = []
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if isinstance(event, RunFinished) and number < len(events) - 1:
            break
        if isinstance(event, NodeRecorded) and type(event.record) is ModelCall:
            usages.append(usage_of(event.record))
    return add_up_spending(usages)
