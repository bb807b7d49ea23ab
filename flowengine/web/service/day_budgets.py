"""Keeps what each caller may spend in a day: reserved in the store before a run begins, and settled after it.

So it holds for all servers of the store together: a server settles the runs that it drives, a worker those
of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import time
from typing import Any, Final

from flowengine.core import thaw
from flowengine.engine import Event, History, JournalStore
from flowengine.errors import FlowEngineError
from flowengine.runs import RunRecord
from flowengine.web.service.outcomes import CALLER, FlowCaller, RunOutcome, read_call, start_of

DAY: Final = "day"
"""Key of a run's setting that names the day whose budget it spends."""

_SPENT: Final = "serve.spent"
_SHARE: Final = 10
"""A run of a flow without a limit of its own reserves that part of what is left of the day's budget, so that runs at
once never use all of it up."""
_LEAST: Final = 0.01
"""Share of the day's budget below which the rest is as good as spent."""
_ROUNDING: Final = 1e-9
"""Dollars that sums of floats may be off by."""
_SOON: Final = 2
"""Seconds until a budget that is reserved, and not spent, may be free again."""
_DAY_SECONDS: Final = 86_400


class QuotaError(FlowEngineError):
    """The key has used up what it may spend, or was used too often; `retry_after`: seconds until that may change."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DayBudgets:
    """Each caller's spending per day (UTC), in the store."""

    def __init__(self, store: JournalStore, clock: Callable[[], float] = time) -> None:
        self._store = store
        self._clock = clock

    def reserve(self, caller: FlowCaller, run_id: str, limit: float | None) -> tuple[float, str]:
        """The dollars that a new run may cost, which are its own until it is settled, and the day that they are of.

        `limit`: what the flow says that a run of it may cost. `QuotaError` where nothing is left today.
        """
        budget = caller.budget_usd_day or 0.0
        day, grant = self.today, 0.0

        def change(record: Any) -> Any:
            nonlocal grant
            spent, open_runs = _read_day(record)
            reserved = sum(amount for each, amount in open_runs.items() if each != run_id)
            rest, least = budget - spent - reserved, _LEAST * budget
            if rest < least and budget - spent >= least:
                text = f"the {budget:g} US dollars of '{caller.name}' for today are reserved for runs that go on"
                raise QuotaError(f"{text}: ask again in {_SOON} s", _SOON)
            if rest < least:
                wait = _DAY_SECONDS - int(self._clock()) % _DAY_SECONDS
                text = f"'{caller.name}' has spent its {budget:g} US dollars of today"
                raise QuotaError(f"{text}: the next day begins in {wait} s", wait)
            grant = rest / _SHARE if limit is None else min(limit, rest)
            return {"spent": spent, "open": {**open_runs, run_id: grant}}

        self._store.revise(_SPENT, f"{caller.name} {day}", change)
        return grant, day

    def reopen(self, caller: FlowCaller, day: str, run_id: str, limit: float, cost_usd: float) -> None:
        """A run that was settled goes on: what it may cost in all is its own again, in the place of what it has cost.

        `QuotaError` where that much of the day's budget is not left.
        """

        def change(record: Any) -> Any:
            spent, open_runs = _read_day(record)
            if run_id in open_runs:
                return record
            spent = max(0.0, spent - cost_usd)
            if spent + sum(open_runs.values()) + limit > (caller.budget_usd_day or 0.0) + _ROUNDING:
                text = f"the budget of '{caller.name}' for {day} has no {limit:g} US dollars left for run '{run_id}'"
                raise QuotaError(f"{text}: ask again in {_SOON} s, or start a new run", _SOON)
            return {"spent": spent, "open": {**open_runs, run_id: limit}}

        self._store.revise(_SPENT, f"{caller.name} {day}", change)

    def open_runs(self, caller: FlowCaller) -> Sequence[str]:
        """Runs of today that are not settled yet."""
        return list(_read_day(self._store.recall(_SPENT, f"{caller.name} {self.today}"))[1])

    def settle(self, caller: str, day: str, run_id: str, cost_usd: float) -> None:
        """The run has ended, or did not begin; more than once does no harm."""

        def change(record: Any) -> Any:
            spent, open_runs = _read_day(record)
            if run_id not in open_runs:
                return record  # It was settled before.
            del open_runs[run_id]
            return {"spent": spent + cost_usd, "open": open_runs}

        self._store.revise(_SPENT, f"{caller} {day}", change)

    def read_spending(self, caller: str) -> tuple[float, float]:
        """Returns today's spending and reservations."""
        spent, open_runs = _read_day(self._store.recall(_SPENT, f"{caller} {self.today}"))
        return spent, sum(open_runs.values())

    @property
    def today(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).date().isoformat()


def _read_day(record: Any) -> tuple[float, dict[str, float]]:
    day: Any = {} if record is None else thaw(record)
    return day.get("spent", 0.0), dict(day.get("open", {}))


def book_run(budgets: DayBudgets, events: Sequence[Event]) -> None:
    """Settles the reservation of a run that has ended, once; one without a budget, or that goes on, is left."""
    started = start_of(events)
    how = read_call(started)
    if DAY in how and RunOutcome.of(events).has_ended:
        budgets.settle(how[CALLER], how[DAY], started.run_id, cost_of(events))


def cost_of(events: Sequence[Event]) -> float:
    """Returns the cost a run counts for: what is on record, and at their most the calls whose answers never came."""
    return RunRecord(events).usage.most_usd + History(events).unrecorded_usd
