"""Tells what became of a run: its status, its outputs, and every node's part. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from flowengine.core.context import Context, EvaluationResult, NodeStatus, RoutingResult, RunStatus, SkipCause
from flowengine.core.records import Reused
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
)
from flowengine.engine.view import FinalContext
from flowengine.engine.walk import Walk
from flowengine.errors import LimitError, NodeError, RunError, did_you_mean
from flowengine.nodes.node import RunLimits

__all__ = ["NodeRun", "Run"]


class NodeRun(NamedTuple):
    """One node's part in a run."""

    status: NodeStatus
    output: Any = None
    """None unless the node succeeded."""
    result: Any = None
    """What it handed on as `result` (an `LLMResult` for agents)."""
    error: str | None = None
    cause: SkipCause | None = None
    """Why it was skipped."""


class _NodeRuns(Mapping[str, NodeRun]):
    """The flow's nodes by name. Nodes inside loops, maps and subflows are found by their paths, and not listed."""

    def __init__(self, walk: Walk, read: Callable[[], Sequence[Event]]) -> None:
        self._walk = walk
        self._read = read

    def __getitem__(self, node: str) -> NodeRun:
        walk = self._walk
        if "." in node:
            found = _find_inside(self._read(), node)
            if found is not None:
                return found
        if node not in walk.graph.index:
            raise KeyError(f"there is no node '{node}'{did_you_mean(node, walk.graph.index)}")
        number = walk.graph.index[node]
        result, error = walk.result_of(number), walk.error_of(number)
        return NodeRun(
            walk.status_of(number),
            None if result is None else result.output,
            walk.passing.handed_on(number),
            None if error is None else error.message,
            walk.cause_of(number),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._walk.graph.ids)

    def __len__(self) -> int:
        return len(self._walk.graph)


def _find_inside(events: Sequence[Event], node: str) -> NodeRun | None:
    """Returns the journaled result of a node inside another, or None."""
    found: NodeRun | None = None
    for event in events:
        if getattr(event, "node", None) != node or isinstance(event, RunFinished):
            continue
        match event:
            case NodeFinished(result=result):
                found = NodeRun("succeeded", result.output, result.output if result.result is None else result.result)
            case NodeFailed(error=error, skipped=True):
                found = NodeRun("skipped", error=error.message, cause="error")
            case NodeFailed(error=error):
                found = NodeRun("failed", error=error.message)
            case NodeSkipped(cause=cause):
                found = NodeRun("skipped", cause=cause)
            case NodeCancelled():
                found = NodeRun("cancelled")
            case NodeStarted():
                found = NodeRun("running")
            case _:
                found = found or NodeRun("running")
    return found


class Run:
    """One run, ended or parked.

    `read` gets the journal, when somebody asks for it.
    """

    def __init__(
        self,
        run_id: str,
        walk: Walk,
        finished: RunFinished,
        read: Callable[[], Sequence[Event]],
        limits: RunLimits,
    ) -> None:
        self.id = run_id
        self.limits = limits
        """Those that it last went on with."""
        self.status: RunStatus = finished.status
        self.outputs: Mapping[str, Any] = finished.outputs or {}
        self.error: ErrorInfo | None = finished.error
        self.failed_node: str | None = finished.node
        """Path of the first node, in topological order, whose failure nobody handled."""
        self.inputs = walk.inputs
        self._walk = walk
        self._read = read

    @cached_property
    def nodes(self) -> Mapping[str, NodeRun]:
        """The flow's nodes by name; those inside loops, maps and subflows by their paths."""
        return _NodeRuns(self._walk, lambda: self._read())

    @property
    def events(self) -> Sequence[Event]:
        """The journal, the whole of it, read anew each time."""
        return self._read()

    def reading(self, read: Callable[[], Sequence[Event]]) -> Run:
        """This run, with another way to its journal."""
        self._read = read
        return self

    @property
    def reused(self) -> Mapping[str, Reused]:
        """Path of a node that did not run, since its result was known → the run and the node that it comes from."""
        found: dict[str, Reused] = {}
        for event in self._read():
            if type(event) is NodeStarted:
                found.pop(event.node, None)
            elif type(event) is NodeRecorded and type(event.record) is Reused:
                found[event.node] = event.record
        return found

    @cached_property
    def context(self) -> Context:
        """The view of the flow's outputs: every node, and the merged state."""
        return FinalContext(self._walk)

    @property
    def shared_state(self) -> Mapping[str, Any]:
        return self.context.shared_state

    @property
    def routing_result(self) -> RoutingResult | None:
        return self.context.routing_result

    @property
    def evaluation_result(self) -> EvaluationResult | None:
        return self.context.evaluation_result

    def raise_for_status(self) -> Run:
        """This run if it succeeded; `NodeError`, `LimitError` or `RunError` otherwise."""
        if self.status == "succeeded":
            return self
        message = self.error.message if self.error is not None else f"the run {self.status}"
        if self.failed_node is not None:
            raise NodeError(self.failed_node, message)
        if self.error is not None and self.error.type == LimitError.__name__:
            raise LimitError(message)
        raise RunError(message)

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}>"
