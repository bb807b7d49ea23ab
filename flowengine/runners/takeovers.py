"""How often a run's writers have died, as its journal tells it. Pure: events in, a number out.

Whoever goes on with a run writes that it was resumed; whoever stops, ends or puts it back writes that it finished. So
a resumption of a run that nobody finished says that its last writer died. What is not told apart: one that was cut
off from the store for good, and one that could not write its last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flowengine.engine.events import (
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
from flowengine.records import Answered, ModelCall, ToolCall

__all__ = ["Deaths", "deaths_of", "is_progress"]


class Deaths(NamedTuple):
    """Writers that died one after another, without anything new on record in between."""

    in_a_row: int
    nodes: Sequence[str]
    """The innermost nodes that the last of them was in; empty where that is not on record."""


def deaths_of(events: Iterable[Event]) -> Deaths:
    """Of a run that nobody works on: the last of its writers is one of them, unless it said that it ended."""
    count, within = 0, dict[str, None]()
    nodes: tuple[str, ...] = ()
    before: Event | None = None
    for event in events:
        if isinstance(event, RunResumed):
            count, nodes = _counted(count, nodes, before, within)
            within.clear()
        elif isinstance(event, NodeStarted):
            within[event.node] = None
        elif isinstance(event, NodeFinished | NodeFailed | NodeSkipped | NodeCancelled):
            within.pop(event.node, None)
        if is_progress(event):
            count = 0
        before = event
    return Deaths(*_counted(count, nodes, before, within))


def _counted(
    count: int, nodes: tuple[str, ...], last: Event | None, within: dict[str, None]
) -> tuple[int, tuple[str, ...]]:
    """One more, unless the writer before has said that it ended, or there was none yet.

    From the second one on, a node must have been at work: it is written which nodes are, before they are. Of the first
    that is not known.
    """
    if last is None or isinstance(last, RunStarted | RunFinished) or (count and not within):
        return count, nodes
    return count + 1, _innermost(within) or nodes


def _innermost(within: Iterable[str]) -> tuple[str, ...]:
    names = tuple(within)
    return tuple(each for each in names if not any(other.startswith((f"{each}.", f"{each}[")) for other in names))


def is_progress(event: Event) -> bool:
    """Whether it is something that the next writer need not do again, or somebody has seen to the run."""
    if isinstance(event, NodeRecorded):
        return type(event.record) in (ModelCall, ToolCall, Answered)
    if isinstance(event, RunFinished):
        return event.status not in ("cancelled", "running")
    return isinstance(event, NodeFinished | NodeFailed | NodeSkipped)
