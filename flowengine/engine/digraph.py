"""All that is asked of networkx. Imported when a graph is built, and not before: it costs half a second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import networkx as nx

__all__ = ["CycleError", "cycle_of", "lean_digraph", "topological"]


_find_cycle: Any = vars(nx)["find_cycle"]  # Its declared type is only partly known.


class CycleError(Exception):
    """The nodes of one cycle, the first repeated at the end."""

    def __init__(self, nodes: list[str]) -> None:
        super().__init__(" → ".join(nodes))
        self.nodes = nodes


class _Lean(nx.DiGraph):  # pyright: ignore[reportMissingTypeArgument, reportUnknownVariableType] - no stubs
    """One attribute dict for all nodes and edges, never written: 67 instead of 90 MB at 100,000 nodes."""

    _nothing: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def _shared() -> dict[str, Any]:
        return _Lean._nothing

    node_attr_dict_factory = _shared
    edge_attr_dict_factory = _shared


def lean_digraph(nodes: Iterable[str], edges: Iterable[tuple[str, str]]) -> Any:
    """The networkx graph of ids, without attributes."""
    digraph: Any = _Lean()
    digraph.add_nodes_from(nodes)
    digraph.add_edges_from(edges)
    return digraph


def topological(digraph: Any, order: Mapping[str, int]) -> tuple[str, ...]:
    """The topological order that keeps to `order` wherever the edges allow; `CycleError` if there is none."""
    try:
        return tuple(nx.lexicographical_topological_sort(digraph, key=order.__getitem__))
    except nx.NetworkXUnfeasible:
        cycle: list[str] = [edge[0] for edge in _find_cycle(digraph)]
        first = min(range(len(cycle)), key=lambda at: order[cycle[at]])
        raise CycleError([*cycle[first:], *cycle[:first], cycle[first]]) from None


def cycle_of(edges: Iterable[tuple[str, str]]) -> list[str] | None:
    """The nodes of one cycle, the first repeated at the end, or None.

    >>> cycle_of([("a", "b"), ("b", "c"), ("c", "b")])
    ['b', 'c', 'b']
    """
    try:
        found: list[tuple[str, str]] = list(_find_cycle(lean_digraph((), edges)))
    except nx.NetworkXNoCycle:
        return None
    return [found[0][0], *(target for _, target in found)]
