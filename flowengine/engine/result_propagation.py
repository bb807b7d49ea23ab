"""Works out `result` for each node: what its one live predecessor passes on. Source of the rule: rule 7.

Most nodes pass on what they produced; transparent ones (routing, condition, evaluation) pass on what
they received. A result is worked out when it is first read, and remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flowengine.core import NodeResult
from flowengine.engine.graph import Graph
from flowengine.errors import AmbiguousResultError

NOTHING: Final = object()
"""The value received where nothing was passed on; None is a value."""

_ENTERING: Final = -1
_NOWHERE: Final = -2
"""In the place of a node's number: what first nodes receive, and what no node produced."""


class ResultPropagation:
    """Over one run's results. `result_of` gives a node's result, None unless it succeeded.

    >>> from flowengine.engine.graph import Edge, Vertex
    >>> graph = Graph([Vertex("a"), Vertex("b", transparent=True), Vertex("c")], [Edge("a", "b"), Edge("b", "c")])
    >>> ResultPropagation(graph, [NodeResult("text"), NodeResult("yes"), None].__getitem__).received(2)
    'text'
    """

    def __init__(self, graph: Graph, result_of: Callable[[int], NodeResult | None], entering: Any = NOTHING) -> None:
        """`entering`: what nodes without predecessors receive."""
        self._graph = graph
        self._result_of = result_of
        self._entering = entering
        self._received: dict[int, tuple[int, Any]] = {}
        """By node: where what it received comes from, and what it is."""

    def received(self, number: int) -> Any:
        """`result` as a node gets it, None where there is none; its parents are settled.

        Where one predecessor comes after the others, the last speaks. Raises `AmbiguousResultError`
        where several that are not ordered pass on results of different nodes, be they equal or not.
        """
        value = self._value(number)
        return None if value is NOTHING else value

    def has_received(self, number: int) -> bool:
        """Tells whether anything was passed on to a node, be it None; raises as `received` does."""
        return self._value(number) is not NOTHING

    def _value(self, number: int) -> Any:
        _, value = self._received[number] if number in self._received else self._work_out(number)
        if isinstance(value, _Several):
            raise AmbiguousResultError(
                f"'{self._graph.ids[number]}' follows several nodes that ran ({', '.join(value)}): "
                f"there is no one `result`; read nodes.<id>.output, or prev_outputs[...]"
            )
        return value

    def handed_on(self, number: int) -> Any:
        """Returns what a node passes to its successors; None if it did not succeed or if that is ambiguous."""
        if self._result_of(number) is None:
            return None
        if not self._graph.vertices[number].transparent:
            return self._passed(number)[1]
        try:
            return self.received(number)
        except AmbiguousResultError:
            return None

    def _work_out(self, number: int) -> tuple[int, Any]:
        """Works out the result of this node and, before it, of the transparent ones it depends on; without
        recursion."""
        todo = [number]
        while todo:
            at = todo[-1]
            through = [p for p in self._live(at) if self._graph.vertices[p].transparent and p not in self._received]
            if through and at not in self._received:
                todo.extend(through)
                continue
            todo.pop()
            if at not in self._received:
                self._received[at] = self._pass_on(at)
        return self._received[number]

    def _live(self, number: int) -> list[int]:
        return [parent for parent in self._graph.parents[number] if self._result_of(parent) is not None]

    def _pass_on(self, number: int) -> tuple[int, Any]:
        if not self._graph.parents[number]:
            return _NOWHERE if self._entering is NOTHING else _ENTERING, self._entering
        live = self._live(number)
        passed = [self._passed(parent) for parent in live]
        if len({source for source, _ in passed}) < 2:  # Not their values: which are one object is another matter later.
            return passed[0] if passed else (_NOWHERE, NOTHING)
        last = live[-1]
        if all(self._graph.is_ancestor(parent, last) for parent in live[:-1]):
            return passed[-1]
        ids = self._graph.ids
        several = number, _Several(ids[parent] for parent in live)
        return next((each for each in passed if isinstance(each[1], _Several)), several)

    def _passed(self, parent: int) -> tuple[int, Any]:
        """The number of the node that produced what a node passes on, and what that is."""
        if self._graph.vertices[parent].transparent:
            return self._received[parent]
        result = self._result_of(parent)
        assert result is not None  # It succeeded.
        return parent, result.output if result.result is None else result.result


class _Several(list[str]):
    """The names of predecessors that pass on different results."""
