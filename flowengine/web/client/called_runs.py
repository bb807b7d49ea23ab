"""Defines what callers of flows are told: how a run stands, what it asks, what happens on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowengine.errors import FlowEngineError, RunError
from flowengine.web.service import SETTLED


class ClientError(FlowEngineError):
    """A call was not done; `status` is that of HTTP, 0 where no answer came."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class RunQuestion:
    """A question of a run to a person."""

    name: str
    """Which of its questions: what `answer` takes as `question`."""
    message: str
    choices: Sequence[str]
    form: Mapping[str, Any] | None = None
    """JSON Schema of what is filled in beside the choice."""
    expires: float | None = None
    """Unix seconds."""


@dataclass(frozen=True)
class CalledRun:
    """The state of a run."""

    run_id: str
    flow: str
    status: str
    """`running`, `waiting`, `paused`, `succeeded`, `failed`, `partial` or `cancelled`."""
    outputs: Mapping[str, Any]
    """Empty unless it ended with outputs."""
    error: str | None = None
    failed_node: str | None = None
    questions: Sequence[RunQuestion] = ()

    @property
    def is_settled(self) -> bool:
        """Whether nothing happens until somebody answers or takes it up."""
        return self.status in SETTLED

    def raise_for_status(self) -> CalledRun:
        """This run if it succeeded; else a `RunError` that says why not."""
        if self.status in ("succeeded", "partial"):
            return self
        where = f"node '{self.failed_node}': " if self.failed_node else ""
        raise RunError(f"run {self.run_id} is {self.status}{f': {where}{self.error}' if self.error else ''}")


@dataclass(frozen=True)
class RunProgress:
    """Something that a run tells on its way: a node's state, a piece of text, and at last how the run stands."""

    node: str = ""
    state: str = ""
    """The node's state: `running`, `succeeded`, `failed`, `skipped` or `cancelled`; empty where text is told."""
    text: str = ""
    """A piece of the text that the node's agent writes."""
    run: CalledRun | None = None
    """At the end: how the run stands."""
