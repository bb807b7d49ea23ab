"""Who could have set a value last, before each node; and which of two writers have no order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from flowengine.engine.exclusion import Liveness
from flowengine.engine.graph import Graph

__all__ = ["Lasts", "masks_of"]

_KEPT: Final = 32
"""Candidates kept for the last setter: the last ones."""


def masks_of(graph: Graph, marked: Collection[int]) -> dict[int, int]:
    """Marked node → which nodes are marked and come before it, one bit a node's number."""
    masks: list[int] = []
    for parents in graph.parents:
        mask = 0
        for parent in parents:
            mask |= masks[parent]
            if parent in marked:
                mask |= 1 << parent
        masks.append(mask)
    return {number: masks[number] for number in marked}


class Lasts:
    """For each kind of value: its candidates before each node, that is the setters that no certain later one covers.

    `setters`: what is set → the nodes that can set it, each with whether it does so whenever it succeeds.
    """

    def __init__(self, graph: Graph, live: Liveness, setters: Mapping[str, Mapping[int, bool]]) -> None:
        self._graph = graph
        self._live = live
        self._setters = setters
        self._before: dict[str, list[tuple[int, ...]]] = {}

    def before(self, number: int | None, what: str) -> tuple[int, ...]:
        """Nodes that could have set a value last, as seen by a node, or (None) at the end of a run."""
        if what not in self._before:
            self._before[what] = []
            for each, parents in enumerate(self._graph.parents):
                self._before[what].append(self._candidates(each, parents, what))
        if number is not None:
            return self._before[what][number]
        graph = self._graph
        ends = [each for each in range(len(graph)) if not graph.children[each] and each not in graph.routes]
        return self._candidates(None, ends, what)

    def two_before(self, number: int | None, what: str) -> tuple[int, int] | None:
        """Two candidates that can both be live and have no order, or None."""
        candidates = self.before(number, what)
        for at, other in enumerate(candidates):
            for one in candidates[:at]:
                if not self._live.exclude(one, other) and not self._graph.ancestry.holds(one, other):
                    return one, other
        return None

    def surely_before(self, number: int | None, what: str) -> bool:
        """Whether somebody has set a value whenever a node runs, or (None) whenever a run succeeds."""
        return any(self._sets(number, each, what) for each in self.before(number, what))

    def _sets(self, reader: int | None, node: int, what: str) -> bool:
        """Whether a node has surely set a value where a reader runs."""
        return self._setters[what].get(node, False) and self._live.certain(reader, node)

    def _candidates(self, reader: int | None, parents: Iterable[int], what: str) -> tuple[int, ...]:
        before, setters = self._before[what], self._setters[what]
        found: set[int] = set()
        for parent in parents:
            if parent in setters:
                found.add(parent)
            if not self._sets(reader, parent, what):
                found.update(before[parent])
        if len(found) < 2:
            return tuple(found)
        last = sorted(found)[-_KEPT:]
        covering = [each for each in last if self._sets(reader, each, what)]
        holds = self._graph.ancestry.holds
        return tuple(each for each in last if not any(each < later and holds(each, later) for later in covering))
