"""What is known of the runs of a level before any run: compared with the same said in the plainest way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.engine.graph import Edge, Graph, Vertex
from flowengine.flowfile.analysis.branch_exclusion import BranchExclusion
from flowengine.flowfile.analysis.flow_nodes import labels_of, routes_of, settings_in
from flowengine.flowfile.analysis.level_analysis import (
    EVALUATION,
    LAST,
    ROUTING,
    ReachingDefinitions,
    runs_of,
    without_cycles,
)
from flowengine.flowfile.loader import check_text, load_flow

Draw = Callable[[st.SearchStrategy[Any]], Any]
IDS = "abcdefgh"


@st.composite
def digraphs(draw: Draw) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_nodes_from(IDS[: draw(st.integers(1, len(IDS)))])
    ids = list(made)
    made.add_edges_from(draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), max_size=14)))
    return made


@settings(max_examples=300)
@given(digraphs())
def test_nodes_between_cycles_are_cut_off_and_all_others_keep_their_edges(given_graph: nx.DiGraph):
    circles = {each for part in nx.strongly_connected_components(given_graph) if len(part) > 1 for each in part}
    circles |= {each for each in given_graph if given_graph.has_edge(each, each)}
    after = circles.union(*(nx.descendants(given_graph, each) for each in circles))
    before = circles.union(*(nx.ancestors(given_graph, each) for each in circles))
    edges = [Edge(*pair) for pair in given_graph.edges]
    kept, circling = without_cycles(list(given_graph), edges)
    assert circling == after & before
    assert kept == [each for each in edges if not {each.source, each.target} <= circling]
    assert nx.is_directed_acyclic_graph(nx.DiGraph(kept_pair(each) for each in kept))


def kept_pair(edge: Edge) -> tuple[str, str]:
    return edge.source, edge.target


@st.composite
def marked_graphs(draw: Draw) -> tuple[Graph, nx.DiGraph, set[int]]:
    """A graph without choices, and nodes of it that set a value whenever they run."""
    ids = IDS[: draw(st.integers(1, len(IDS)))]
    pairs = [(one, other) for at, one in enumerate(ids) for other in ids[at + 1 :] if draw(st.booleans())]
    graph = Graph([Vertex(each) for each in ids], [Edge(*pair) for pair in pairs])
    plain = nx.DiGraph()
    plain.add_nodes_from(range(len(ids)))
    plain.add_edges_from((graph.index[one], graph.index[other]) for one, other in pairs)
    return graph, plain, draw(st.sets(st.sampled_from(range(len(ids)))))


@settings(max_examples=300)
@given(marked_graphs())
def test_a_value_was_set_last_by_those_that_no_later_one_follows(drawn: tuple[Graph, nx.DiGraph, set[int]]):
    graph, plain, setters = drawn
    live = BranchExclusion(graph, {number: frozenset() for number in range(len(graph))}, set())
    known = ReachingDefinitions(graph, live, {"value": dict.fromkeys(setters, True)})
    for reader in (*plain, None):
        seen = setters if reader is None else setters & nx.ancestors(plain, reader)
        last = {each for each in seen if not seen & nx.descendants(plain, each)}
        assert set(known.before(reader, "value")) == last
        assert known.surely_before(reader, "value") == bool(last)
        pair = known.two_before(reader, "value")
        assert (pair is None) == (len(last) < 2)
        assert pair is None or set(pair) <= last


NODES = {
    ROUTING: "{type: routing, instruction: Which?, routes: {yes: {}, no: {}}}",
    EVALUATION: "{type: evaluation, criteria: {good: Good?}}",
}


@pytest.mark.parametrize("what", [ROUTING, EVALUATION])
@pytest.mark.parametrize("kind", [ROUTING, EVALUATION])
def test_a_node_sets_what_is_of_its_kind(what: str, kind: str):
    nodes = f"a: {{prompt: x}}, b: {NODES[kind][:-1]}, needs: [a]}}, c: {{prompt: y, needs: [b]}}"
    text = f"flowengine: v1\nname: t\nnodes: {{{nodes}}}"
    assert [each for each in check_text(text) if each.severity == "error"] == []
    level = runs_of(load_flow(text=text))[()]
    assert level.any_before(level.graph.index["c"], what) == (what == kind)
    assert level.any_before(level.graph.index["b"], LAST)


def test_an_agents_own_routing_gives_it_labels():
    text = """
flowengine: v1
name: t
agents: {sorter: {instructions: Sort., routing: {instruction: Where?, routes: {left: {}, right: {}}}}}
nodes:
  own: {prompt: x, routing: {instruction: Where?, routes: {up: {}, down: {}}}}
  shared: {agent: sorter, prompt: x}
  plain: {prompt: x}
"""
    spec = load_flow(text=text)
    assert labels_of(spec, "own") >= {"up", "down"}
    assert labels_of(spec, "shared") >= {"left", "right"}
    assert not labels_of(spec, "plain") & {"up", "down", "left", "right"}
    assert {each.path[:3] for each in routes_of(spec, "own")} == {("nodes", "own", "routing")}
    assert {each.path[:3] for each in routes_of(spec, "shared")} == {("agents", "sorter", "routing")}


def test_settings_of_models_are_found_wherever_a_file_has_them():
    text = """
flowengine: v1
name: t
defaults: {agent: {temperature: 0.1}}
agents: {writer: {instructions: Write., temperature: 0.2}}
nodes:
  own: {prompt: x, temperature: 0.3}
  named: {agent: writer, prompt: x}
  inside: {agent: {instructions: Be short., temperature: 0.4}, prompt: x}
  judge: {type: evaluation, criteria: {good: Good?}, temperature: 0.5, needs: [own]}
  ask: {type: approval, message: Go on?, routes: {"yes": {}}}
  each:
    type: map
    over: "[1]"
    nodes: {deep: {prompt: "{{ item }}", temperature: 0.6}}
"""
    found = {path: each.temperature for path, each in settings_in(load_flow(text=text))}
    assert {path: each for path, each in found.items() if each is not None} == {
        ("defaults", "agent"): 0.1,
        ("agents", "writer"): 0.2,
        ("nodes", "own"): 0.3,
        ("nodes", "inside", "agent"): 0.4,
        ("nodes", "judge"): 0.5,
        ("nodes", "each", "nodes", "deep"): 0.6,
    }
    assert not {("nodes", "ask"), ("nodes", "each")} & found.keys()
