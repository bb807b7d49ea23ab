"""Is one node an ancestor of another? Answered without keeping a set of ancestors for each node.

Nodes are numbered topologically, so an ancestor's number is smaller. Runs of nodes with one parent
are strung into lines; a question walks back whole lines, and leaves out what lies below the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["Ancestry"]


class Ancestry:
    """The index over one graph's parents (numbers, ascending).

    >>> diamond = Ancestry([(), (0,), (0,), (1, 2), (0,)])
    >>> diamond.holds(0, 3), diamond.holds(1, 2), diamond.holds(3, 4)
    (True, False, False)
    """

    def __init__(self, parents: Sequence[tuple[int, ...]]) -> None:
        self._parents = parents
        self._head = list(range(len(parents)))
        """Node → the first node of its line."""
        continued = bytearray(len(parents))
        for node, above in enumerate(parents):
            if len(above) == 1 and not continued[above[0]]:
                continued[above[0]] = 1
                self._head[node] = self._head[above[0]]

    def holds(self, ancestor: int, node: int) -> bool:
        """Whether `ancestor` comes before `node` on some path (a node is no ancestor of itself)."""
        head = self._head
        line = head[ancestor]
        stack = [each for each in self._parents[node] if each >= ancestor]
        seen: set[int] = set()
        while stack:
            first = head[stack.pop()]
            if first == line:
                return True  # Same line and not below the target's number: the target is on the way.
            if first > ancestor and first not in seen:
                seen.add(first)
                stack.extend(each for each in self._parents[first] if each >= ancestor)
        return False

    def of(self, node: int) -> Iterator[int]:
        """All ancestors of a node, ascending."""
        seen: set[int] = set()
        stack = list(self._parents[node])
        while stack:
            each = stack.pop()
            if each not in seen:
                seen.add(each)
                stack.extend(self._parents[each])
        return iter(sorted(seen))
