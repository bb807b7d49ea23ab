"""Tells how a run stands, and who may know it. It asks no store.

Who called is in the run's record and among its labels, so that every server of the store knows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from flowengine.core import EMPTY, RunStatus
from flowengine.engine import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunStarted,
)
from flowengine.errors import FlowEngineError, RunNotFoundError, StoreCorruptError
from flowengine.runs import Question, RunRecord
from flowengine.runtime.queue import CALLER

SERVED: Final = "served"
"""The setting of a run that says how it was called."""
ENDED: Final = frozenset({"succeeded", "failed", "partial", "cancelled"})
SETTLED: Final = ENDED | {"waiting", "paused"}
NODE_STATES: Final[Mapping[type[Any], str]] = {
    NodeStarted: "running",
    NodeFinished: "succeeded",
    NodeFailed: "failed",
    NodeSkipped: "skipped",
    NodeCancelled: "cancelled",
}
"""Event of a node → the state that callers read."""


class AccessError(FlowEngineError):
    """The caller may not do that."""


class KeyReusedError(FlowEngineError):
    """The key is another run's, which was started with other inputs."""


class FlowCaller(NamedTuple):
    """The caller that a key identifies."""

    name: str
    flows: Collection[str] | None = None
    """Names of those that may be used; None: all."""
    budget_usd_day: float | None = None
    requests_per_minute: int | None = None

    def may_use(self, flow: str) -> bool:
        return self.flows is None or flow in self.flows


def dates_of(status: RunStatus, started: float, finished: float | None) -> dict[str, str | None]:
    """When a run started and ended, as dates in UTC; one that waits for a person has not ended.

    >>> dates_of("waiting", 0.0, 60.0)
    {'started_at': '1970-01-01T00:00:00Z', 'finished_at': None}
    """
    ended = finished if status in ENDED else None
    return {"started_at": format_date(started), "finished_at": None if ended is None else format_date(ended)}


def format_date(at: float) -> str:
    """Unix seconds as a date in UTC.

    >>> format_date(1.5)
    '1970-01-01T00:00:01.500000Z'
    """
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


class RunOutcome(NamedTuple):
    """The state of a run."""

    run_id: str
    flow: str
    status: RunStatus
    """`running` also where it waits for its turn, or was interrupted and is not resumed yet."""
    started: float
    """Unix seconds."""
    finished: float | None
    outputs: Mapping[str, Any]
    """Empty unless it ended with outputs."""
    error: ErrorInfo | None
    failed_node: str | None
    questions: Sequence[Question]
    """The questions that it waits with."""
    caller: str | None

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_settled(self) -> bool:
        """Whether nothing happens until somebody answers or takes it up."""
        return self.status in SETTLED

    @classmethod
    def of(cls, events: Sequence[Event]) -> RunOutcome:
        started, last = start_of(events), events[-1]
        end = last if isinstance(last, RunFinished) else RunFinished(last.at, "running")
        asks = end.status in ("waiting", "running", "paused")
        return cls.between(started, end, RunRecord(events).questions if asks else ())

    @classmethod
    def between(cls, started: RunStarted, end: RunFinished, questions: Sequence[Question] = ()) -> RunOutcome:
        """Makes the outcome from a run's first event and its last."""
        return cls(
            started.run_id,
            started.flow,
            end.status,
            started.at,
            None if end.status == "running" else end.at,
            end.outputs or EMPTY,
            end.error,
            end.node,
            questions,
            read_call(started).get(CALLER),
        )


class StartedRun(NamedTuple):
    """The result of `start`."""

    run_id: str
    is_new: bool
    """False: it is the run that this key had begun before."""
    outcome: RunOutcome | None = None
    """How a run that was begun before stands, where it is settled."""


def check_access(outcome: RunOutcome, caller: FlowCaller | None) -> RunOutcome:
    """The outcome, if the caller may know it."""
    if caller is not None and (outcome.caller != caller.name or not caller.may_use(outcome.flow)):
        raise no_run_of_yours(outcome.run_id)
    return outcome


def no_run_of_yours(run_id: str) -> RunNotFoundError:
    """Makes the error for an unknown run and for another caller's run, which must look the same."""
    return RunNotFoundError(f"there is no run '{run_id:.80}' of yours")


def start_of(events: Sequence[Event]) -> RunStarted:
    started = events[0] if events else None
    if not isinstance(started, RunStarted):
        raise StoreCorruptError("the run's record does not begin with its start")
    return started


def read_call(started: RunStarted) -> Mapping[str, Any]:
    """Returns how a run was called; empty if no server started it."""
    call: Any = started.settings.get(SERVED)
    return cast("Mapping[str, Any]", call) if isinstance(call, Mapping) else EMPTY
