"""Puts in the place of re-used results what led to them in the runs that they come from, for what replays a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from flowengine.core import Reused
from flowengine.engine import Event, NodeFailed, NodeFinished, NodeRecorded, NodeSkipped, NodeStarted
from flowengine.errors import JournalError

_DEEPEST: Final = 100
"""Runs that one takes results of, one from the other."""


class UnfoldedRun(NamedTuple):
    """A run's events as if it had done all of it itself."""

    events: Sequence[Event]
    lacking: Sequence[str]
    """Why records are missing: the runs that they are in cannot be read."""


def unfold_reused(events: Sequence[Event], read: Callable[[str], Sequence[Event]]) -> UnfoldedRun:
    """`read`: the events of another run of the store, by id; `JournalError` where there is none any more."""
    lacking: dict[str, None] = {}
    return UnfoldedRun([*_unfold(events, read, lacking, 0)], list(lacking))


def _unfold(
    events: Sequence[Event], read: Callable[[str], Sequence[Event]], lacking: dict[str, None], depth: int
) -> Iterator[Event]:
    finished = {event.node for event in events if isinstance(event, NodeFinished)}
    for event in events:
        if not isinstance(event, NodeRecorded) or type(event.record) is not Reused:
            yield event
            continue
        node, (run_id, origin, calls) = event.node, event.record
        try:
            past = read(run_id) if depth < _DEEPEST else ()
        except JournalError as error:
            lacking[f"what led to '{node}' was in run {run_id}: {error}"] = None
            yield from (NodeRecorded(node, event.at, each) for each in calls)
            continue
        is_told_inside = any(each.startswith((f"{node}.", f"{node}[")) for each in finished)
        for each in _unfold(_of_node(past, origin, is_alone=is_told_inside), read, lacking, depth + 1):
            path = str(getattr(each, "node", ""))
            yield cast(Any, each)._replace(node=f"{node}{path[len(origin) :]}")


def _of_node(events: Sequence[Event], node: str, *, is_alone: bool) -> list[Event]:
    """Returns the events of a node's last pass and of all nodes inside it; `is_alone`: the node's own only."""
    node_events: list[Event] = []
    for event in events:
        path = getattr(event, "node", None) or ""
        if path == node and isinstance(event, NodeStarted):
            continue
        is_inside = path.startswith((f"{node}.", f"{node}["))
        if (path == node and isinstance(event, NodeRecorded)) or (
            is_inside
            and not is_alone
            and isinstance(event, NodeStarted | NodeRecorded | NodeFinished | NodeFailed | NodeSkipped)
        ):
            node_events.append(event)
    return node_events
