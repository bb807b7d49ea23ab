"""Where a run stands, folded from its events: what pictures, the live tree, `runs show` and `--json` are drawn from.

Pure: events in, rows out. It needs neither the flow nor the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from flowengine.context import NodeResult, NodeStatus, RunStatus
from flowengine.engine.events import (
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
from flowengine.records import ModelCall, Notice, Retry

__all__ = ["SETTLED", "NodeRow", "Progress", "Usage"]

SETTLED: Final[frozenset[NodeStatus]] = frozenset({"succeeded", "failed", "skipped", "cancelled"})


@dataclass(slots=True)
class Usage:
    """Model calls with what is known of their tokens and costs."""

    calls: int = 0
    counted: int = 0
    """Calls whose tokens are known."""
    priced: int = 0
    """Calls whose price is known."""
    answered: int = 0
    """Calls that did not fail; a failed one costs nothing that is known."""
    known_tokens: int = 0
    known_cost: float = 0.0

    def add(self, call: ModelCall) -> None:
        self.calls += 1
        self.answered += call.error is None
        if call.prompt_tokens is not None or call.completion_tokens is not None:
            self.counted += 1
            self.known_tokens += (call.prompt_tokens or 0) + (call.completion_tokens or 0)
        if call.cost_usd is not None:
            self.priced += 1
            self.known_cost += call.cost_usd

    @property
    def tokens(self) -> int | None:
        """Prompts and completions together; None where calls were made and none was counted."""
        return None if self.answered and not self.counted else self.known_tokens

    @property
    def cost_usd(self) -> float | None:
        """Of the calls with a known price; None where calls were made and none has one."""
        return None if self.answered and not self.priced else self.known_cost

    @property
    def is_whole(self) -> bool:
        """Whether the cost counts every call."""
        return self.priced >= self.answered


@dataclass(slots=True)
class NodeRow:
    """One node as it stands."""

    id: str
    kind: str = ""
    status: NodeStatus = "pending"
    started: float | None = None
    ended: float | None = None
    usage: Usage = field(default_factory=Usage)
    retries: int = 0
    cause: str | None = None
    """Why it was skipped."""
    error: ErrorInfo | None = None
    result: NodeResult | None = None

    def seconds(self, now: float | None = None) -> float | None:
        """How long it took, or takes until `now`; None where it never started or was left open."""
        end = self.ended if self.ended is not None else now
        return None if self.started is None or end is None else end - self.started


class Progress:
    """Give it the events of one run, in their order."""

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self.finished: RunFinished | None = None
        self.last_at: float | None = None
        self.events = 0
        """How many were applied."""
        self.nodes: dict[str, NodeRow] = {}
        """In the flow's order; nodes that only turn up in events follow."""
        self.running: dict[str, NodeRow] = {}
        self.settled = 0
        self.usage = Usage()
        self.notices: dict[str, None] = {}
        """Each notice once, in order."""

    def apply(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, RunResumed):
            self._reopen()
        elif isinstance(event, RunFinished):
            self.finished = event
        else:
            self._apply_node(event)
        self.last_at = event.at
        self.events += 1

    @property
    def status(self) -> RunStatus:
        return "running" if self.finished is None else self.finished.status

    @property
    def flow(self) -> str:
        return "" if self.started is None else self.started.flow

    def seconds(self, now: float | None = None) -> float | None:
        """From the start to the end, or to `now`."""
        end = self.finished.at if self.finished is not None else now
        return None if self.started is None or end is None else end - self.started.at

    def _begin(self, event: RunStarted) -> None:
        self.started = event
        for row in event.graph.get("nodes", ()):
            self.nodes[row[0]] = NodeRow(row[0], row[1])

    def _reopen(self) -> None:
        """What was in flight when the run broke off starts again."""
        self.finished = None
        self.running.clear()
        for row in self.nodes.values():
            if row.status in ("running", "cancelled"):
                self.settled -= row.status in SETTLED
                row.status = "pending"

    def _apply_node(
        self, event: NodeStarted | NodeRecorded | NodeFinished | NodeFailed | NodeSkipped | NodeCancelled
    ) -> None:
        row = self.nodes.get(event.node)
        if row is None:
            row = self.nodes[event.node] = NodeRow(event.node)
        if isinstance(event, NodeRecorded):
            self._record(row, event.record)
        elif isinstance(event, NodeStarted):
            self._start(row, event.at)
        else:
            self._settle(row, event)

    def _start(self, row: NodeRow, at: float) -> None:
        self.settled -= row.status in SETTLED
        row.status, row.started, row.ended = "running", at, None
        row.error = row.cause = row.result = None
        self.running[row.id] = row

    def _settle(self, row: NodeRow, event: NodeFinished | NodeFailed | NodeSkipped | NodeCancelled) -> None:
        self.settled += row.status not in SETTLED
        self.running.pop(row.id, None)
        row.ended = event.at
        if isinstance(event, NodeFinished):
            row.status, row.result = "succeeded", event.result
        elif isinstance(event, NodeFailed):
            row.status, row.error = "failed", event.error
        elif isinstance(event, NodeSkipped):
            row.status, row.cause = "skipped", event.cause
        else:
            row.status = "cancelled"

    def _record(self, row: NodeRow, record: Any) -> None:
        if isinstance(record, ModelCall):
            row.usage.add(record)
            self.usage.add(record)
        elif isinstance(record, Retry):
            row.retries += 1
        elif isinstance(record, Notice):
            self.notices.setdefault(record.text)
