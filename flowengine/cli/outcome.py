"""Formats what is printed of a run at its end, and chooses its exit code. It prints nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from flowengine.cli.interrupt import INTERRUPTED
from flowengine.core.context import NodeStatus, RunStatus
from flowengine.engine.events import ErrorInfo
from flowengine.errors import LimitError
from flowengine.journal.run_export import dumps, shown
from flowengine.journal.run_lookup import labels_of
from flowengine.nodes.node import RunLimits
from visualize.progress import NodeRow, Progress

__all__ = [
    "exit_code_of",
    "format_error",
    "format_outputs",
    "format_reuse",
    "higher_limit",
    "to_node_object",
    "to_run_json",
]


def exit_code_of(status: RunStatus, error: ErrorInfo | None) -> int:
    """The exit code of a run that ended.

    >>> exit_code_of("failed", ErrorInfo("LimitError", "the run took longer than its limit of 1 s"))
    4
    """
    if status == "failed":
        return 4 if error is not None and error.type == LimitError.__name__ else 1
    return {"succeeded": 0, "waiting": 3, "paused": 4, "partial": 4, "cancelled": INTERRUPTED}.get(status, 1)


def format_error(error: ErrorInfo, node: str | None) -> str:
    place = f"node '{node}': " if node is not None else ""
    return f"error: {place}{error.message}".replace("\n", "\n  ")


def format_outputs(outputs: Mapping[str, Any]) -> str:
    r"""The outputs for people: one text alone as it is, else `name: value`, a longer text below its name.

    >>> format_outputs({"greeting": "Hello"}), format_outputs({"a": "x", "n": [1]})
    ('Hello', 'a: x\nn: [1]')
    """
    if len(outputs) == 1:
        [value] = outputs.values()
        if isinstance(value, str):
            return value
    return "\n".join(_format_named(name, shown(value)) for name, value in outputs.items())


def higher_limit(error: ErrorInfo, limits: RunLimits) -> str:
    """Twice the limit at which a run ended, or what the call that it refused needs; money in whole cents.

    >>> higher_limit(ErrorInfo("LimitError", "", limit="model_calls", needed=4), RunLimits())
    '4'
    >>> higher_limit(ErrorInfo("LimitError", "", limit="cost_usd", needed=0.512), RunLimits())
    '0.52'
    """
    most = max(2 * (getattr(limits.bounds, error.limit) or 0), error.needed or 0)
    return f"{ceil(100 * most) / 100:.2f}" if error.limit == "cost_usd" else str(ceil(most))


def format_reuse(progress: Progress) -> str | None:
    """How many nodes took a known result; None where none did, and no earlier run was named to take results from."""
    nodes, of = progress.reused()
    asked = progress.started is not None and "reuse" in progress.started.settings
    return f"re-used {nodes:,} of {of:,} nodes" if nodes or asked else None


def _format_named(name: str, text: str) -> str:
    if "\n" not in text:
        return f"{name}: {text}"
    return f"{name}:\n" + "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


def to_run_json(
    progress: Progress, outputs: Mapping[str, Any] | None, statuses: Mapping[str, NodeStatus] | None = None
) -> str:
    """The run as one JSON object. `statuses` are the walk's, which also knows what an `on_error` made of a failure."""
    finished = progress.finished
    error = None if finished is None else finished.error
    usage = progress.usage
    return dumps(
        {
            "run_id": "" if progress.started is None else progress.started.run_id,
            "flow": progress.flow,
            "status": progress.status,
            "labels": {} if progress.started is None else labels_of(progress.started),
            "outputs": outputs,
            "error": None if error is None or finished is None else _to_error_object(error, finished.node),
            "nodes": {name: to_node_object(row, (statuses or {}).get(name)) for name, row in progress.nodes.items()},
            "seconds": progress.seconds(),
            "idle_seconds": progress.idle,
            "reused": progress.reused()._asdict(),
            "tokens": usage.tokens,
            "cost_usd": usage.cost_usd,
        },
        indent=2,
    )


def _to_error_object(error: ErrorInfo, node: str | None) -> Mapping[str, Any]:
    return {"type": error.type, "message": error.message, "node": node}


def to_node_object(row: NodeRow, status: NodeStatus | None = None) -> Mapping[str, Any]:
    """One node as an object."""
    calls = row.usage.calls
    return {
        "status": status or row.status,
        "kind": row.kind,
        "cause": row.cause,
        "error": None if row.error is None else row.error._asdict(),
        "earlier_errors": [each._asdict() for each in row.earlier_errors],
        "seconds": row.seconds(),
        "waited_seconds": row.waited(),
        "model_calls": calls,
        "tokens": row.usage.tokens,
        "cost_usd": row.usage.cost_usd,
        "retries": row.retries,
        "reused": None if row.reused is None else {"run_id": row.reused.run_id, "node": row.reused.node},
    }
