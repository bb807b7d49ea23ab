"""A run's record as a command reads it: its events, its beginning, one node's part. It writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowengine.engine.events import Event, NodeRecorded, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import RunNotFoundError, StoreCorruptError, did_you_mean
from flowengine.journal.classes import only_looking
from visualize.progress import Progress

__all__ = ["beginning", "folded", "node_events", "read", "records_of"]


def read(store: JournalStore, run_id: str) -> Sequence[Event]:
    """The events of a run, of which there is at least the first. To look at: values of the flow's own classes
    come as what they held."""
    with only_looking():
        events = store.events(run_id)
    beginning(events)
    return events


def beginning(events: Sequence[Event]) -> RunStarted:
    if not events or not isinstance(events[0], RunStarted):
        raise StoreCorruptError("the run's record does not begin with its start")
    return events[0]


def folded(events: Sequence[Event]) -> Progress:
    progress = Progress()
    for event in events:
        progress.apply(event)
    return progress


def node_events(events: Sequence[Event], node: str) -> list[Event]:
    """The events of one node; an unknown name is an error that names the nearest."""
    known = folded(events).nodes
    if node not in known:
        raise RunNotFoundError(f"the run has no node '{node}'{did_you_mean(node, known) or _some(list(known))}")
    return [event for event in events if getattr(event, "node", None) == node and not hasattr(event, "outputs")]


def records_of(events: Sequence[Event]) -> list[Any]:
    """What the nodes told, in order."""
    return [event.record for event in events if isinstance(event, NodeRecorded)]


def _some(names: Sequence[str]) -> str:
    rest = len(names) - 10
    return f"; it has {', '.join(names[:10])}" + (f" and {rest} more" if rest > 0 else "")
