"""The graph: numbered once, the same for every run; routes and gates apart; cycles spelled out."""

from __future__ import annotations

from typing import Any, cast

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.engine.graph import Ancestry, Edge, Graph, Vertex, find_cycles, sort_topologically
from flowengine.errors import FlowError


def graph_of(names: str, *edges: tuple[str, ...]) -> Graph:
    return Graph([Vertex(name) for name in names.split()], [Edge(*edge) for edge in edges])


def test_nodes_are_numbered_as_declared_wherever_the_edges_allow():
    assert graph_of("z m a k", ("m", "z"), ("z", "k")).ids == ("m", "z", "a", "k")


def test_a_route_makes_a_gate_and_a_plain_edge_does_not():
    graph = graph_of("pick left end", ("pick", "left", "l"), ("pick", "end"), ("left", "end"))
    assert graph.gates == {1: ((0, frozenset({"l"})),)}
    assert graph.routes == {0: ((1, frozenset({"l"})),)}
    assert graph.children == [(2,), (2,), ()]
    assert graph.parents == [(), (0,), (0, 1)]


def test_a_plain_edge_beside_a_route_adds_nothing():
    graph = graph_of("pick left", ("pick", "left"), ("pick", "left", "a"), ("pick", "left", "b"))
    assert graph.routes == {0: ((1, frozenset({"a", "b"})),)}
    assert graph.children == [(), ()]


def test_an_unknown_node_is_refused_with_the_nearest_known_one():
    with pytest.raises(FlowError, match="unknown node 'lef'; did you mean 'left'"):
        graph_of("pick left", ("pick", "lef"))


def test_every_cycle_is_spelled_out():
    with pytest.raises(FlowError) as caught:
        graph_of("a b c d", ("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"))
    assert [each.message for each in caught.value.diagnostics] == [
        "the nodes form a cycle: a → b → a",
        "the nodes form a cycle: c → d → c",
    ]


def test_several_cycles_are_found_each_from_its_first_declared_node():
    found = find_cycles(list("abcde"), [("b", "a"), ("a", "b"), ("d", "c"), ("c", "e"), ("e", "d")])
    assert sorted(found) == [["a", "b", "a"], ["c", "e", "d", "c"]]


EDGE = st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda edge: edge[0] < edge[1])
DAGS = st.sets(EDGE).map(lambda edges: (12, edges))


@settings(deadline=None, max_examples=150)
@given(DAGS, st.randoms(use_true_random=False))
def test_numbering_agrees_with_networkx(dag: tuple[int, set[tuple[int, int]]], shuffle: object):
    size, edges = dag
    names = [f"n{i}" for i in range(size)]
    shuffle.shuffle(names)  # type: ignore[attr-defined]
    named = [(names[a], names[b]) for a, b in edges]
    declared = sorted(names)
    digraph = nx.DiGraph(named)
    digraph.add_nodes_from(declared)
    expected = tuple(nx.lexicographical_topological_sort(digraph, key=declared.index))
    assert sort_topologically(declared, named) == expected


@settings(deadline=None, max_examples=150)
@given(DAGS)
def test_ancestry_agrees_with_networkx(dag: tuple[int, set[tuple[int, int]]]):
    size, edges = dag
    digraph = nx.DiGraph(edges)
    digraph.add_nodes_from(range(size))
    index = Ancestry([tuple(sorted(digraph.predecessors(node))) for node in range(size)])
    for node in range(size):
        above: set[str] = cast(Any, nx).ancestors(digraph, node)
        assert set(index.of(node)) == above
        assert {each for each in range(size) if index.holds(each, node)} == above
