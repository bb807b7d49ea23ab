"""Folds a run's events into where it stands: what pictures, the live tree, `runs show` and `--json` are drawn from.

Pure: events in, rows out. It needs neither the flow nor the store. A row is one time that a node ran, so
the body of a loop has rows for each round; what a body costs counts for its container too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from flowengine.core import (
    TRAITS,
    Answered,
    ApprovalRequested,
    Decided,
    MapBegan,
    ModelCall,
    NodeResult,
    NodeStatus,
    Notice,
    Notified,
    Retry,
    Reused,
    RunStatus,
    SkipCause,
    UsageTotals,
    question_path,
)
from flowengine.engine import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from visualize.skeleton import Skeleton, Spot

SETTLED: Final[frozenset[NodeStatus]] = frozenset({"succeeded", "failed", "skipped", "cancelled"})


class ReusedCount(NamedTuple):
    """The number of nodes whose result was taken from another run."""

    nodes: int
    of: int
    """Those that came to an end, the skipped ones left out. Each item and each round counts; a container does where
    nothing inside it was entered."""


@dataclass(slots=True)
class NodeRow:
    """One node as it stands, or one of the times that it runs."""

    id: str
    """Its path."""
    kind: str = ""
    status: NodeStatus = "pending"
    started: float | None = None
    """The moment it began; for an approval, and a container that waited with one, the moment it first began to wait."""
    ended: float | None = None
    usage: UsageTotals = field(default_factory=UsageTotals)
    """Its own calls, and those of its body."""
    retries: int = 0
    cause: SkipCause | None = None
    """Why it was skipped."""
    error: ErrorInfo | None = None
    result: NodeResult | None = None
    spot: Spot = field(default_factory=lambda: Spot(""))
    total: int | None = None
    """Items of a map, once it knows how many; rounds that a loop may have."""
    units: set[int] = field(default_factory=set[int])
    """Indices of the items or rounds that began."""
    inside: Counter[NodeStatus] = field(default_factory=Counter[NodeStatus])
    """How many rows of its body have which status."""
    questions: dict[str, ApprovalRequested] = field(default_factory=dict[str, ApprovalRequested])
    """Path → what it asks people, as far as it is unanswered."""
    question: ApprovalRequested | None = None
    """The last question."""
    asked_at: float | None = None
    """The moment it last began to wait."""
    notified: Sequence[Notified] = ()
    """The attempts to tell people of the question."""
    answered: Answered | None = None
    """The last answer, once nothing is open any more."""
    answered_at: float | None = None
    waited_before: float = 0.0
    """Seconds that it waited with questions that were all answered before it asked anew."""
    has_waited: bool = False
    """Whether it, or something inside it, has waited for a person since it began."""
    earlier_errors: list[ErrorInfo] = field(default_factory=list[ErrorInfo])
    """How it failed before the run was resumed and it ran again."""
    decided: list[Decided] = field(default_factory=list[Decided])
    """Why it ran or not, and why its route was taken, in the order in which it was decided."""
    reused: Reused | None = None
    """The source of its result, where it did not run."""
    model: str = ""
    """The model that it asked last, itself."""

    @property
    def has_run(self) -> bool:
        """Whether its body began, so that its time means something: one that was skipped because it failed has run."""
        return self.status != "pending" and (self.status != "skipped" or self.cause == "error")

    def seconds(self, now: float | None = None) -> float | None:
        """Returns the duration, until `now` if still running; None if it never started or was left open."""
        end = self.ended if self.ended is not None else now
        return None if self.started is None or end is None else max(0.0, end - self.started)

    def sum_waiting(self, now: float | None = None) -> float | None:
        """Seconds for which a person was waited for; None where none was asked."""
        end = self.answered_at if self.answered_at is not None else now
        return None if self.asked_at is None or end is None else self.waited_before + max(0.0, end - self.asked_at)

    @property
    def waits(self) -> bool:
        """Whether a person is asked and has not answered."""
        return bool(self.questions)

    def to_object(self) -> dict[str, Any]:
        """The node in JSON's types, as every listing of a run has it; each adds errors and output in its own form."""
        return {
            "status": self.status,
            "kind": self.kind,
            "cause": self.cause,
            "seconds": self.seconds(),
            "waited_seconds": self.sum_waiting(),
            "model_calls": self.usage.calls,
            "tokens": self.usage.tokens,
            "cost_usd": self.usage.cost_usd,
            "retries": self.retries,
            "reused": None if self.reused is None else {"run_id": self.reused.run_id, "node": self.reused.node},
        }

    def ask(self, question: ApprovalRequested, at: float) -> None:
        if not self.questions:
            self.waited_before = self.sum_waiting() or 0.0
            self.asked_at, self.answered, self.answered_at = at, None, None
        self.question = question
        self.questions[question_path(self.id, question)] = question

    def answer(self, answer: Answered, at: float) -> None:
        self.questions.pop(question_path(self.id, answer), None)
        if not self.questions:
            self.answered, self.answered_at = answer, at

    def forget_questions(self) -> None:
        """It begins anew."""
        self.notified = ()
        self.questions.clear()
        self.question = self.answered = self.asked_at = self.answered_at = None
        self.waited_before = 0.0

    @property
    def deliveries(self) -> Sequence[Notified]:
        """The last attempt to tell each person of an open question."""
        last = {(each.name, each.channel, each.to): each for each in self.notified}
        return [each for each in last.values() if question_path(self.id, each) in self.questions]


class Progress:
    """Give it the events of one run, in their order."""

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self.finished: RunFinished | None = None
        self.skeleton = Skeleton({})
        self.last_at: float | None = None
        self.idle = 0.0
        """Seconds in which the run was not going on: from when it waited or broke off until it was resumed."""
        self.events = 0
        """How many events were applied."""
        self.nodes: dict[str, NodeRow] = {}
        """Path → row, in the flow's order; nodes that only turn up in events (those inside containers, too) follow."""
        self.times: dict[str, list[NodeRow]] = {}
        """Path of a site → its rows, in the order in which they turned up."""
        self.running: dict[str, NodeRow] = {}
        self.settled = 0
        self.usage = UsageTotals()
        self.notices: dict[str, None] = {}
        """Each notice once, in order."""

    def apply(self, event: Event) -> None:
        # A fork made by an earlier version begins with what the other run did, at that run's times.
        at = event.at if self.started is None else max(event.at, self.started.at)
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, RunResumed):
            self._reopen(at)
        elif isinstance(event, RunFinished):
            self.finished = event
        else:
            self._apply_node(event, at)
        self.last_at = at
        self.events += 1

    @property
    def status(self) -> RunStatus:
        return "running" if self.finished is None else self.finished.status

    @property
    def flow(self) -> str:
        return "" if self.started is None else self.started.flow

    def seconds(self, now: float | None = None) -> float | None:
        """Seconds from the start to the end, or to `now`; a run that waits for a person goes on with its time."""
        has_ended = self.finished is not None and (now is None or self.finished.status != "waiting")
        end = self.finished.at if self.finished is not None and has_ended else now
        # The process that went on with the run may have had an earlier clock.
        return None if self.started is None or end is None else max(0.0, end - self.started.at)

    def working_seconds(self, now: float | None = None) -> float | None:
        """`seconds` without those in which the run was not going on."""
        whole = self.seconds(now)
        return None if whole is None else max(0.0, whole - self.idle)

    def count_reused(self) -> ReusedCount:
        """Counts the nodes whose results were re-used."""
        ended = [
            row
            for row in self.nodes.values()
            if row.status in ("succeeded", "failed", "skipped")
            and row.has_run
            and (not TRAITS[row.kind].container or not row.inside.total())
        ]
        return ReusedCount(sum(row.reused is not None for row in ended), len(ended))

    def _begin(self, event: RunStarted) -> None:
        self.started = event
        self.skeleton = Skeleton(event.graph)
        for name in self.skeleton.top.sites:
            self._row(name)

    def _row(self, path: str) -> NodeRow:
        row = self.nodes.get(path)
        if row is None:
            spot = self.skeleton.spot(path)
            site = self.skeleton.sites.get(spot.site)
            row = self.nodes[path] = NodeRow(path, "" if site is None else site.kind, spot=spot)
            row.total = None if site is None or site.body is None else site.body.most
            self.times.setdefault(spot.site, []).append(row)
            if spot.container is not None:
                container = self._row(spot.container)
                container.inside[row.status] += 1
                if spot.number is not None:
                    container.units.add(spot.number)
        return row

    def _around(self, row: NodeRow) -> Iterator[NodeRow]:
        """The containers that a row is inside, from the nearest on."""
        while row.spot.container is not None:
            row = self._row(row.spot.container)
            yield row

    def _reopen(self, at: float) -> None:
        """Starts the nodes again that were in flight when the run was interrupted."""
        stopped = self.last_at if self.finished is None else self.finished.at
        if stopped is not None:
            self.idle += max(0.0, at - stopped)
        self.finished = None
        for row in self.nodes.values():
            if row.status in ("running", "cancelled"):
                self._become(row, "pending")

    def _apply_node(
        self, event: NodeStarted | NodeRecorded | NodeFinished | NodeFailed | NodeSkipped | NodeCancelled, at: float
    ) -> None:
        row = self._row(event.node)
        if isinstance(event, NodeRecorded):
            self._record(row, event.record, at)
        elif isinstance(event, NodeStarted):
            self._start(row, at)
        else:
            self._settle(row, event, at)

    def _start(self, row: NodeRow, at: float) -> None:
        if row.status in SETTLED and row.status != "cancelled":  # Who was interrupted still waits for the same answers.
            row.forget_questions()
            row.has_waited = False
        if row.error is not None:
            row.earlier_errors.append(row.error)
        if not row.has_waited:
            row.started = at
        row.ended = None
        row.decided = []
        row.error = row.cause = row.result = row.reused = None
        self._become(row, "waiting" if row.waits or _only_waits(row) else "running")

    def _settle(self, row: NodeRow, event: NodeFinished | NodeFailed | NodeSkipped | NodeCancelled, at: float) -> None:
        row.ended = at
        if row.inside["waiting"] and isinstance(event, NodeFinished):  # It goes on without them.
            inside = (f"{row.id}.", f"{row.id}[")
            for each in [each for path, each in self.nodes.items() if path.startswith(inside)]:
                if each.status == "waiting":
                    each.ended = at
                    self._become(each, "cancelled")
        if isinstance(event, NodeFinished):
            row.result = event.result
            self._become(row, "succeeded")
        elif isinstance(event, NodeFailed):
            row.error = event.error
            row.cause = "error" if event.skipped else None
            self._become(row, "skipped" if event.skipped else "failed")
        elif isinstance(event, NodeSkipped):
            row.cause = event.cause
            if event.why is not None:
                row.decided.append(event.why)
            self._become(row, "skipped")
        else:
            self._become(row, "cancelled")

    def _become(self, row: NodeRow, status: NodeStatus) -> None:
        """The one place where a status changes; a container that is open follows what is inside it."""
        before, row.status = row.status, status
        row.has_waited |= status == "waiting"
        self.settled += (status in SETTLED) - (before in SETTLED)
        if status == "running":
            self.running[row.id] = row
        else:
            self.running.pop(row.id, None)
        if row.spot.container is not None and before != status:
            container = self._row(row.spot.container)
            container.inside[before] -= 1
            container.inside[status] += 1
            if container.status in ("running", "waiting"):
                self._become(container, "waiting" if _only_waits(container) else "running")

    def _record(self, row: NodeRow, record: Any, at: float) -> None:
        if isinstance(record, ModelCall):
            self.usage.add(record)
            row.model = record.model
            for each in (row, *self._around(row)):
                each.usage.add(record)
        elif isinstance(record, Retry):
            row.retries += 1
            row.forget_questions()
        elif isinstance(record, Decided):
            row.decided.append(record)
        elif isinstance(record, Notice):
            self.notices.setdefault(record.text)
        elif isinstance(record, MapBegan):
            row.total = record.total
        elif isinstance(record, Reused):
            row.reused = record
        elif isinstance(record, ApprovalRequested):
            row.ask(record, at)
            if row.status not in SETTLED:
                self._become(row, "waiting")
        elif isinstance(record, Notified):
            row.notified = (*row.notified, record)
        elif isinstance(record, Answered):
            row.answer(record, at)
            if row.status == "waiting" and not row.waits:
                self._become(row, "running")


def _only_waits(container: NodeRow) -> bool:
    """Tells whether a node inside waits for a person and none runs."""
    return container.inside["waiting"] > 0 and not container.inside["running"]


def fold_events(events: Iterable[Event]) -> Progress:
    """All events of a run, or its first ones, as they leave it."""
    progress = Progress()
    for event in events:
        progress.apply(event)
    return progress
