"""Calls to external tools whose end nobody saw: which there are, and what a person decides about them.

Such a call is a deed that may be done or not: a payment, a letter. Neither repeating it nor leaving it
out may be guessed, so a run that has one is not resumed before it is decided (rule 18 of the flow
format). Pure: records in, records out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from flowengine.engine.attempts import Attempts
from flowengine.errors import EffectPendingError, JournalError, did_you_mean
from flowengine.records import EffectDecided, ToolCall

__all__ = ["decided_effects", "pending_calls"]

Decided = tuple[str, EffectDecided]
"""Node path and what was decided about one of its calls."""


def pending_calls(records: Iterable[Any]) -> list[ToolCall]:
    """The external calls among a node's records that began and neither ended nor were decided about."""
    begun: dict[tuple[str, int], ToolCall] = {}
    for record in records:
        if type(record) is ToolCall and record.started:
            begun[record.key, record.occurrence] = record
        elif type(record) is ToolCall or type(record) is EffectDecided:
            begun.pop((record.key, record.occurrence), None)
    return list(begun.values())


def decided_effects(
    run_id: str, attempts: Attempts, *, retry: Collection[str] = (), done: Collection[str] = ()
) -> Sequence[Decided]:
    """What was decided about each pending call: nodes in `retry` run theirs again, in `done` take them as done.

    Raises `EffectPendingError` where a call is left undecided, `JournalError` for nodes that have none.
    """
    pending = {node: calls for node in attempts if (calls := pending_calls(attempts.of(node)))}
    _check_names(run_id, pending, retry, done)
    undecided = {node: calls for node, calls in pending.items() if node not in retry and node not in done}
    if undecided:
        raise EffectPendingError(run_id, [(node, *call[:2]) for node, calls in undecided.items() for call in calls])
    return [
        (node, _decided(call, "retry" if node in retry else "done"))
        for node, calls in pending.items()
        for call in calls
    ]


def _decided(call: ToolCall, decision: Literal["retry", "done"]) -> EffectDecided:
    return EffectDecided(call.name, call.arguments, call.key, call.occurrence, decision)


def _check_names(run_id: str, pending: Collection[str], retry: Collection[str], done: Collection[str]) -> None:
    for node in (*retry, *done):
        if node not in pending:
            raise JournalError(
                f"run {run_id}: node '{node}' has no call to an external tool that waits for a decision"
                f"{did_you_mean(node, pending)}"
            )
        if node in retry and node in done:
            raise JournalError(f"node '{node}': either its call is run again, or it is taken as done")
