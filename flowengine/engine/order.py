"""The topological order of names and edges, and the cycles that prevent one. Standard library alone."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

__all__ = ["cycles_of", "topological"]


def topological(declared: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[str, ...] | None:
    """The order that keeps to the declared one wherever the edges allow, or None where there is a cycle.

    >>> topological(["c", "b", "a"], [("a", "b")])
    ('c', 'a', 'b')
    """
    position = {name: number for number, name in enumerate(declared)}
    after: list[list[int]] = [[] for _ in declared]
    waiting = [0] * len(declared)
    for source, target in set(edges):
        after[position[source]].append(position[target])
        waiting[position[target]] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    found: list[str] = []
    while ready:
        at = heapq.heappop(ready)
        found.append(declared[at])
        for each in after[at]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, each)
    return tuple(found) if len(found) == len(declared) else None


def cycles_of(declared: Sequence[str], edges: Iterable[tuple[str, str]], most: int = 10) -> list[list[str]]:
    """Cycles, one after the other, each broken where it was found; the first node is repeated at the end.

    >>> cycles_of(["a", "b"], [("a", "b"), ("b", "a")])
    [['a', 'b', 'a']]
    """
    order = {name: position for position, name in enumerate(declared)}
    left = dict.fromkeys(edges)
    found: list[list[str]] = []
    while len(found) < most:
        above: dict[str, list[str]] = {}
        for source, target in left:
            above.setdefault(target, []).append(source)
        try:
            TopologicalSorter(above).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]
            first = min(range(len(cycle)), key=lambda at: order[cycle[at]])
            cycle = [*cycle[first:], *cycle[:first], cycle[first]]
            found.append(cycle)
            del left[cycle[-2], cycle[-1]]
        else:
            break
    return found
