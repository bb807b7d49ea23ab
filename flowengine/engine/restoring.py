"""What a journal says had settled for good, for a run that goes on. Pure: events in, facts out.

A journal is read level by level: the nodes of the flow are one, each round of a loop and each item of
a map is another (`polish.round[2].`), named by the prefix of its nodes' paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Final, NamedTuple

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
from flowengine.ledger import Usage
from flowengine.records import ModelCall, usage_of

__all__ = ["TOP", "History", "Past", "Settling", "past_of"]

Settling = NodeFinished | NodeFailed | NodeSkipped

TOP: Final = ""
"""The prefix of the flow's own level."""


class History:
    """What earlier owners of a run left behind, by level.

    >>> history = History([NodeStarted("loop", 0.0), NodeFinished("loop.round[0].a", 1.0, None)])
    >>> [event.node for event in history.of("loop.round[0].")]
    ['loop.round[0].a']
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.attempts = Attempts()
        """What nodes recorded that have not finished."""
        self._spent: dict[str, Usage] = {}
        self._levels: dict[str, list[Event]] = {TOP: []}
        self._done: set[str] = set()
        for event in events:
            self._take(event)

    def of(self, prefix: str) -> Sequence[Event]:
        """The events of one level, oldest first; what was settled before a resumption is told apart by it."""
        return self._levels.get(prefix, ())

    def spent(self, part: str = TOP) -> Usage:
        """What the model calls of a node, and of all nodes inside it, took; of the whole run by default."""
        inside = (f"{part}.", f"{part}[")
        return _sum([used for node, used in self._spent.items() if not part or node == part or node.startswith(inside)])

    def _take(self, event: Event) -> None:
        match event:
            case RunResumed():
                for level in self._levels.values():
                    level.append(event)
                return
            case NodeStarted(node=node):
                if node in self._done:
                    self._forget_inside(node)
            case NodeFinished(node=node) | NodeSkipped(node=node):
                # A node that was interrupted and then called off (skipped) keeps what it recorded.
                self._done.add(node)
                if isinstance(event, NodeFinished):
                    self.attempts.finish(node)
            case NodeFailed(node=node):
                self.attempts.fail(node)
            case NodeRecorded(node=node, record=record):
                self.attempts.add(node, record)
                if isinstance(record, ModelCall):
                    self._spent[node] = _sum([self._spent.get(node, Usage()), usage_of(record)])
                return
            case _:
                return
        prefix = node[: node.rfind(".") + 1]
        self._levels.setdefault(prefix, []).append(event)

    def _forget_inside(self, node: str) -> None:
        """A container that had ended begins anew: its body does too."""
        self._done.discard(node)
        for prefix in [each for each in self._levels if each.startswith((f"{node}.", f"{node}["))]:
            for event in self._levels.pop(prefix):
                if not isinstance(event, RunResumed):
                    self.attempts.finish(getattr(event, "node", ""))


def _sum(usages: Sequence[Usage]) -> Usage:
    if not usages:
        return Usage()
    calls, tokens, costs, unpriced = zip(*usages, strict=True)
    return Usage(sum(calls), sum(tokens), fsum(costs), sum(unpriced))


class Past(NamedTuple):
    """What earlier owners of a run left behind on one level."""

    settled: Mapping[int, Settling]
    """Node → the event that settled it for good: successes, handled failures, conditions that were false."""
    told: frozenset[tuple[int, SkipCause]]
    """Skips that are journaled since the run was last resumed."""


_NOTHING: Final = Past({}, frozenset())


def past_of(graph: Graph, events: Iterable[Event], prefix: str = TOP) -> Past:
    """Fold the events of a level; nodes that the graph does not have are left out."""
    if not events:
        return _NOTHING
    index, skip = graph.index, len(prefix)
    settled: dict[int, Settling] = {}
    told: set[tuple[int, SkipCause]] = set()
    for event in events:
        match event:
            case NodeStarted(node=node):
                if node[skip:] in index:
                    settled.pop(index[node[skip:]], None)
            case NodeFinished(node=node) | NodeFailed(node=node) | NodeSkipped(node=node):
                if node[skip:] in index:
                    number = index[node[skip:]]
                    settled[number] = event
                    if isinstance(event, NodeSkipped):
                        told.add((number, event.cause))
            case RunResumed():
                settled = _for_good(graph, settled)
                told.clear()
            case _:
                pass
    return Past(_for_good(graph, settled), frozenset(told))


def _for_good(graph: Graph, settled: Mapping[int, Settling]) -> dict[int, Settling]:
    return {number: event for number, event in settled.items() if _stays(graph, number, event)}


def _stays(graph: Graph, number: int, event: Settling) -> bool:
    if isinstance(event, NodeFailed):
        return graph.vertices[number].on_error != "fail"
    return isinstance(event, NodeFinished) or event.cause == "condition_false"
