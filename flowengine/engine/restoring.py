"""What a journal says had settled for good, for a run that goes on. Pure: events in, facts out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flowengine.context import SkipCause
from flowengine.engine.attempts import Attempts
from flowengine.engine.events import (
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunResumed,
)
from flowengine.engine.graph import Graph

__all__ = ["Past", "Settling", "past_of"]

Settling = NodeFinished | NodeFailed | NodeSkipped


class Past(NamedTuple):
    """What earlier owners of a run left behind."""

    settled: Mapping[int, Settling]
    """Node → the event that settled it for good: successes, handled failures, conditions that were false."""
    told: frozenset[tuple[int, SkipCause]]
    """Skips that are journaled since the run was last resumed."""
    attempts: Attempts
    """What nodes recorded that have not finished."""


def past_of(graph: Graph, events: Iterable[Event]) -> Past:
    """Fold a journal; nodes that the graph does not have are left out."""
    index = graph.index
    settled: dict[int, Settling] = {}
    told: set[tuple[int, SkipCause]] = set()
    attempts = Attempts()
    for event in events:
        match event:
            case NodeStarted(node=node) if node in index:
                settled.pop(index[node], None)
            case NodeFinished(node=node) | NodeFailed(node=node) | NodeSkipped(node=node):
                # A node that was interrupted and then called off (skipped) keeps what it recorded.
                if isinstance(event, NodeFinished):
                    attempts.finish(node)
                elif isinstance(event, NodeFailed):
                    attempts.fail(node)
                if node in index:
                    settled[index[node]] = event
                    if isinstance(event, NodeSkipped):
                        told.add((index[node], event.cause))
            case NodeRecorded(node=node, record=record):
                attempts.add(node, record)
            case RunResumed():
                settled = _for_good(graph, settled)
                told.clear()
            case _:
                pass
    return Past(_for_good(graph, settled), frozenset(told), attempts)


def _for_good(graph: Graph, settled: Mapping[int, Settling]) -> dict[int, Settling]:
    return {number: event for number, event in settled.items() if _stays(graph, number, event)}


def _stays(graph: Graph, number: int, event: Settling) -> bool:
    if isinstance(event, NodeFailed):
        return graph.vertices[number].on_error != "fail"
    return isinstance(event, NodeFinished) or event.cause == "condition_false"
