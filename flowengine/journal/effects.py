"""Names the external calls whose end is not on record, and takes down what people decide about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flowengine.core import EffectDecided, ToolCall
from flowengine.engine import Attempts
from flowengine.errors import EffectPendingError, JournalError, UndecidedCall, did_you_mean

Decided = tuple[str, EffectDecided]
"""Node path and what was decided about one of its calls."""


def pending_calls(records: Iterable[Any]) -> list[ToolCall]:
    """The external calls among a node's records that began and neither ended nor were decided about."""
    open_calls: dict[tuple[str, int], ToolCall] = {}
    for record in records:
        if type(record) is ToolCall and record.started:
            open_calls[record.key, record.occurrence] = record
        elif type(record) is ToolCall or type(record) is EffectDecided:
            open_calls.pop((record.key, record.occurrence), None)
    return list(open_calls.values())


def name_calls(node: str, calls: Sequence[ToolCall]) -> Mapping[str, ToolCall]:
    """The path by which people decide about each pending call of a node: `pay`, or of several `help:refund`,
    `help:refund:2`.

    >>> call = ToolCall("refund", {}, None)
    >>> [*name_calls("help", [call])], [*name_calls("help", [call, call])]
    (['help'], ['help:refund', 'help:refund:2'])
    """
    if len(calls) == 1:
        return {node: calls[0]}
    numbers = Counter[str]()
    calls_by_name: dict[str, ToolCall] = {}
    for call in calls:
        numbers[call.name] += 1
        number = numbers[call.name]
        calls_by_name[f"{node}:{call.name}" if number == 1 else f"{node}:{call.name}:{number}"] = call
    return calls_by_name


def decided_effects(
    run_id: str, attempts: Attempts, *, retry: Collection[str] = (), done: Collection[str] = ()
) -> Sequence[Decided]:
    """Returns the decision for each pending call: those in `retry` are made again, those in `done` taken as done.

    A node's path decides about all of its calls that have no decision of their own (`name_calls`). Raises
    `EffectPendingError` where a call is left undecided, `JournalError` for what has no such call.
    """
    pending = {node: name_calls(node, calls) for node in attempts if (calls := pending_calls(attempts.of(node)))}
    _check_names(run_id, {*pending, *(path for calls in pending.values() for path in calls)}, retry, done)
    decisions: list[Decided] = []
    undecided: list[UndecidedCall] = []
    for node, calls in pending.items():
        for path, call in calls.items():
            name = path if path in retry or path in done else node
            if name in retry or name in done:
                decision = "retry" if name in retry else "done"
                decisions.append((node, EffectDecided(call.name, call.arguments, call.key, call.occurrence, decision)))
            else:
                undecided.append(UndecidedCall(node, call.name, call.arguments, path))
    if undecided:
        raise EffectPendingError(run_id, undecided)
    return decisions


def _check_names(run_id: str, pending: Collection[str], retry: Collection[str], done: Collection[str]) -> None:
    for path in (*retry, *done):
        if path not in pending:
            raise JournalError(
                f"run {run_id}: '{path}' has no call to an external tool that waits for a decision"
                f"{did_you_mean(path, pending)}"
            )
        if path in retry and path in done:
            raise JournalError(f"'{path}': either its call is made again, or it is taken as done")
