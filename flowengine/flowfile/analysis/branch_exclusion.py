"""Decides which nodes can be live in one run, and which never are: worked out from the graph alone.

Theory of operation:

1. A node that chooses takes one of its labels. What a node needs of such choices is a *chain*: it runs only
   if this choice fell so, and before it that one. Chains form a tree, since what a chooser itself
   needs is the rest of every chain that it stands in.
2. A route's target has the chooser's chain and one choice more. A node behind several others has what
   their chains have in common; where they part at one chooser, the labels are joined, and where
   these are all its labels, nothing is needed of it.
3. `join: all` (and a gate beside it) needs several chains at once; a few of them are kept. What
   is dropped makes an answer weaker, never wrong: "excludes" and "certain" are only said of what is so.
4. Two nodes exclude each other where two of their chains part at one chooser with no label in common.
5. A node is *exact* if it runs whenever its chains allow it: no `when`, no skipped failure, no loss
   on the way. Then a node whose chains imply its chains can count on it.

Chains are compared by climbing with jump pointers, so a question costs the logarithm of the depth,
and a chain of a thousand routers is as cheap as a thousand chains.

It knows no template and no file. Failures that are not handled end the run, so they are left aside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from flowengine.engine import ON_ERROR, Graph

_ROOT: Final = 0
_KEPT: Final = 4
"""Chains kept of those that must hold at once."""
_DONE: Final = frozenset({""})
"""The one label of a node that has no routes: it succeeded."""

_Chains = tuple[int, ...]
"""Choices that must all have fallen so, each with what it needs itself; empty: nothing is needed."""


class _Tree:
    """A growing tree whose members are climbed in logarithmic time."""

    def __init__(self) -> None:
        self.up = [_ROOT]
        self.depth = [0]
        self._jump = [_ROOT]

    def add(self, up: int) -> int:
        jump = self._jump[up]
        far = self._jump[jump]
        even = self.depth[up] - self.depth[jump] == self.depth[jump] - self.depth[far]
        self.up.append(up)
        self.depth.append(self.depth[up] + 1)
        self._jump.append(far if even else up)
        return len(self.up) - 1

    def at_depth(self, member: int, depth: int) -> int:
        """The ancestor at a depth that is not below the member's."""
        while self.depth[member] > depth:
            jump = self._jump[member]
            member = jump if self.depth[jump] >= depth else self.up[member]
        return member

    def parting(self, one: int, other: int) -> tuple[int, int]:
        """The two children where the lines part; twice the same member where one line holds the other."""
        depth = min(self.depth[one], self.depth[other])
        one, other = self.at_depth(one, depth), self.at_depth(other, depth)
        while one != other and self.up[one] != self.up[other]:
            if self._jump[one] != self._jump[other]:
                one, other = self._jump[one], self._jump[other]
            else:
                one, other = self.up[one], self.up[other]
        return one, other

    def meet(self, one: int, other: int) -> int:
        """The last common ancestor."""
        one, other = self.parting(one, other)
        return one if one == other else self.up[one]


class _Choices(_Tree):
    """Choices that can fall: a chooser and the labels that one of which was taken."""

    def __init__(self, labels: Mapping[int, frozenset[str]]) -> None:
        super().__init__()
        self.all = labels
        """Node → every label that it can take."""
        self._chooser = [-1]
        self._labels: list[frozenset[str]] = [frozenset()]
        self._numbers: dict[tuple[int, frozenset[str]], int] = {}

    def choice(self, chooser: int, labels: frozenset[str], up: int) -> int:
        """The choice, or what it needs, where it says nothing (every label would do)."""
        if labels >= self.all[chooser]:
            return up
        number = self._numbers.get((chooser, labels))
        if number is None:
            number = self._numbers[chooser, labels] = self.add(up)
            self._chooser.append(chooser)
            self._labels.append(labels)
        return number

    def either(self, one: int, other: int) -> tuple[int, bool]:
        """Returns the facts that hold if either of two chains holds, and whether they are complete."""
        one_side, other_side = self.parting(one, other)
        if one_side == other_side:
            return one_side, True
        if self._chooser[one_side] != self._chooser[other_side]:
            return self.up[one_side], False
        union = self.choice(
            self._chooser[one_side], self._labels[one_side] | self._labels[other_side], self.up[one_side]
        )
        return union, one_side == one and other_side == other

    def exclude(self, one: int, other: int) -> bool:
        one_side, other_side = self.parting(one, other)
        same = one_side != other_side and self._chooser[one_side] == self._chooser[other_side]
        return same and not self._labels[one_side] & self._labels[other_side]

    def implies(self, one: int, other: int) -> bool:
        """Tells whether the other chain holds wherever the one does."""
        if self.depth[other] > self.depth[one]:
            return False
        at = self.at_depth(one, self.depth[other])
        return at == other or (self._chooser[at] == self._chooser[other] and self._labels[at] <= self._labels[other])


class BranchExclusion:
    """Facts that hold in every run of a graph.

    `labels`: node → every label that it can take, those that lead nowhere included (else only
    those with edges are known). `optional`: nodes that may be skipped of their own accord (`when`,
    `on_error: skip`).

    >>> from flowengine.engine.graph import Edge, Vertex
    >>> graph = Graph(map(Vertex, "pxyz"), [Edge("p", "x", "a"), Edge("p", "y", "b"), Edge("x", "z"), Edge("y", "z")])
    >>> live = BranchExclusion(graph)
    >>> live.exclude(graph.index["x"], graph.index["y"]), live.certain(graph.index["z"], graph.index["x"])
    (True, False)
    """

    def __init__(
        self, graph: Graph, labels: Mapping[int, frozenset[str]] | None = None, optional: Collection[int] = ()
    ) -> None:
        self._graph = graph
        self._optional = optional
        self._choices = _Choices(_all_labels(graph, labels or {}))
        self._chains: list[_Chains | None] = []
        """Node → what it needs in order to run; None: it never runs."""
        self._exact: list[bool] = []
        self._musts = _Tree()
        """Member n + 1 is node n; above it stands the node that must have succeeded before it."""
        for number in range(len(graph)):
            chains, exact = self._needs(number)
            self._chains.append(chains)
            self._exact.append(exact and number not in optional)
            self._musts.add(self._must(number))

    # --- questions

    @property
    def dead(self) -> list[int]:
        """Nodes that no run can reach."""
        return [number for number, chains in enumerate(self._chains) if chains is None]

    def exclude(self, one: int, other: int) -> bool:
        """Tells whether the two never both succeed in one run."""
        return self._never_both(self._find_success(one), self._find_success(other))

    def certain(self, reader: int | None, node: int) -> bool:
        """Tells whether the node has succeeded whenever the reader runs. No reader: whenever a run succeeds."""
        done = self._find_success(node)
        if done is None:
            return False
        chains = () if reader is None else self._chains[reader]
        if chains is None:
            return True
        if self._exact[node] and all(any(self._choices.implies(each, need) for each in chains) for need in done):
            return True
        if reader is None:
            return False
        joined = self._graph.vertices[reader].join == "all" and node in self._required_parents(reader)
        return joined or self._musts.at_depth(reader + 1, self._musts.depth[node + 1]) == node + 1

    def _never_both(self, one: _Chains | None, other: _Chains | None) -> bool:
        if one is None or other is None:
            return True
        return any(self._choices.exclude(each, against) for each in one for against in other)

    # --- what a node needs

    def _needs(self, number: int) -> tuple[_Chains | None, bool]:
        graph = self._graph
        gates, parents = graph.gates.get(number, ()), graph.parents[number]
        join = graph.vertices[number].join
        chains, exact = (
            self._either([self._conditions_of_labels(parent, labels) for parent, labels in gates])
            if gates
            else ((), True)
        )
        if join == "always" or not parents or chains is None:
            return chains, exact
        gating = {parent for parent, _ in gates}
        if join == "all":
            every = [chains, *(self._find_success(parent) for parent in parents if parent not in gating)]
            every += [self._chains[parent] for parent in gating]
            met = self._all(every)
            return met, exact and all(self._exact[each] for each in parents) and len(met or ()) < _KEPT
        if gates:
            return chains, exact
        return self._either([(self._find_success(parent), self._exact[parent]) for parent in parents])

    def _conditions_of_labels(self, parent: int, labels: frozenset[str]) -> tuple[_Chains | None, bool]:
        """Returns the conditions under which a parent takes one of these labels."""
        return self._conditions_of_choice(parent, labels), self._exact[parent]

    def _find_success(self, number: int) -> _Chains | None:
        """Returns the conditions under which a node succeeds."""
        if self._graph.vertices[number].on_error != "then":
            return self._chains[number]
        return self._conditions_of_choice(number, self._choices.all[number] - {ON_ERROR})

    def _conditions_of_choice(self, chooser: int, labels: frozenset[str]) -> _Chains | None:
        chains = self._chains[chooser]
        if chains is None:
            return None
        choice = self._choices.choice(chooser, labels, chains[0] if chains else _ROOT)
        return (choice, *chains[1:]) if choice != _ROOT else ()

    def _either(self, options: Sequence[tuple[_Chains | None, bool]]) -> tuple[_Chains | None, bool]:
        """Returns the facts that hold if any of several chains holds, and whether they are exact; None if none can
        hold.
        """
        possible = [(chains, exact) for chains, exact in options if chains is not None]
        if not possible:
            return None, False
        met, lossless = possible[0][0], True
        for chains, _ in possible[1:]:
            if not met:
                break
            met, kept_all = self._common(met, chains)
            lossless = lossless and kept_all
        exact = any(exact and chains == met for chains, exact in possible)
        return met, exact or (lossless and all(exact for _, exact in possible))

    def _common(self, one: _Chains, other: _Chains) -> tuple[_Chains, bool]:
        if one == other:
            return one, True
        pairs = [self._choices.either(each, against) for each in one for against in other]
        lossless = len(pairs) == 1 and pairs[0][1]
        return self._strongest([choice for choice, _ in pairs]), lossless

    def _all(self, every: Iterable[_Chains | None]) -> _Chains | None:
        """Several conditions at once; None where they exclude each other."""
        needed: list[int] = []
        for chains in every:
            if chains is None or self._never_both(tuple(needed), chains):
                return None
            needed = list(self._strongest([*needed, *chains]))
        return tuple(needed)

    def _strongest(self, choices: Iterable[int]) -> _Chains:
        """The choices that no other one implies, the deepest first, as many as are kept."""
        strongest: list[int] = []
        for each in sorted(set(choices) - {_ROOT}, key=lambda choice: (-self._choices.depth[choice], choice)):
            if not any(self._choices.implies(stronger, each) for stronger in strongest):
                strongest.append(each)
        return tuple(strongest[:_KEPT])

    def _must(self, number: int) -> int:
        """The member of the tree of musts above a node."""
        graph = self._graph
        gates, join = graph.gates.get(number, ()), graph.vertices[number].join
        if join == "all" and graph.parents[number]:
            every = [parent + 1 for parent in self._required_parents(number)]
            return max(every, key=self._musts.depth.__getitem__, default=_ROOT)
        if gates:
            above = [self._musts.up[gate + 1] if ON_ERROR in labels else gate + 1 for gate, labels in gates]
        elif join == "some":
            above = [parent + 1 for parent in graph.parents[number] if self._chains[parent] is not None]
        else:
            above = []
        meeting = above[0] if above else _ROOT
        for each in above[1:]:
            meeting = self._musts.meet(meeting, each)
        return meeting

    def _required_parents(self, number: int) -> list[int]:
        """The parents that must succeed under `join: all`: all but those whose failure may lead here."""
        error_gates = {gate for gate, labels in self._graph.gates.get(number, ()) if ON_ERROR in labels}
        return [parent for parent in self._graph.parents[number] if parent not in error_gates]


def _all_labels(graph: Graph, labels_by_node: Mapping[int, frozenset[str]]) -> dict[int, frozenset[str]]:
    """Node → every label that it can take."""
    every_label: dict[int, frozenset[str]] = {}
    for number, vertex in enumerate(graph.vertices):
        labels = labels_by_node.get(number, frozenset())
        for _, opening in graph.routes.get(number, ()):
            labels |= opening
        if vertex.on_error == "then":
            labels = (labels - {ON_ERROR} or _DONE) | {ON_ERROR}
        if labels:
            every_label[number] = labels
    return every_label
