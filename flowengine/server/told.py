"""Runs and flows as the API tells them, in the shapes of `schemas`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.engine.events import ErrorInfo, RunResumed, RunStarted
from flowengine.engine.ports import RunInfo
from flowengine.journal.approvals import open_questions
from flowengine.journal.labels import labels_of
from flowengine.journal.plain import plain
from flowengine.server.library import About, input_schema
from visualize.progress import NodeRow
from visualize.viewer.reading import Reading

__all__ = ["flow_object", "run_line", "run_object"]


def run_line(info: RunInfo) -> Mapping[str, Any]:
    """A run in a list."""
    return info._asdict()


def run_object(run: Reading, *, driven_here: bool) -> Mapping[str, Any]:
    """A run with its nodes and what it asks."""
    progress = run.progress
    started, finished, usage = progress.started, progress.finished, progress.usage
    assert isinstance(started, RunStarted)  # As the store gives them.
    return {
        "run_id": run.run_id,
        "flow": progress.flow,
        "status": progress.status,
        "started": started.at,
        "finished": None if finished is None else finished.at,
        "events": len(run.events),
        "path": started.path,
        "labels": labels_of(started),
        "inputs": plain(started.inputs),
        "outputs": None if finished is None else plain(finished.outputs),
        "error": None if finished is None else _error(finished.error, finished.node),
        "nodes": {row.id: _node(row) for row in run.rows},
        "questions": {node: plain(asked._asdict()) for node, asked in _questions(run).items()},
        "seconds": progress.seconds(progress.last_at),
        "idle_seconds": progress.idle,
        "model_calls": usage.calls,
        "tokens": usage.tokens,
        "cost_usd": usage.cost_usd,
        "driven_here": driven_here,
    }


def flow_object(name: str, about: About) -> Mapping[str, Any]:
    problems: Sequence[Mapping[str, Any]] = [
        {
            "code": each.code,
            "severity": each.severity,
            "message": f"{each.message}{each.hint}",
            "line": each.line,
            "column": each.column,
            "node": each.node,
        }
        for each in about.problems
    ]
    return {
        "name": name,
        "path": about.path,
        "description": about.description,
        "inputs": plain(input_schema(about.inputs)),
        "problems": problems,
    }


def _questions(run: Reading) -> Mapping[str, Any]:
    """Only a run that is parked waits with them; while it goes on, they may just have been answered."""
    is_parked = run.progress.finished is not None and not isinstance(run.events[-1], RunResumed)
    return open_questions(run.events) if is_parked else {}


def _node(row: NodeRow) -> Mapping[str, Any]:
    return {
        "status": row.status,
        "kind": row.kind,
        "cause": row.cause,
        "error": _error(row.error, row.id),
        "output": None if row.result is None else plain(row.result.output),
        "earlier_errors": [_error(each, row.id) for each in row.earlier_errors],
        "seconds": row.seconds(),
        "waited_seconds": row.waited(),
        "model_calls": row.usage.calls,
        "tokens": row.usage.tokens,
        "cost_usd": row.usage.cost_usd,
        "retries": row.retries,
        "reused": None if row.reused is None else {"run_id": row.reused.run_id, "node": row.reused.node},
    }


def _error(error: ErrorInfo | None, node: str | None) -> Mapping[str, Any] | None:
    return None if error is None else {"type": error.type, "message": error.message, "node": error.node or node}
