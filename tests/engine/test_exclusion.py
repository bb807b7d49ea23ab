"""What is said of all runs, against every run that the walk can take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.context import NodeResult
from flowengine.engine.events import ErrorInfo, NodeFailed, NodeFinished, NodeSkipped
from flowengine.engine.graph import ON_ERROR, Edge, Graph, Vertex
from flowengine.engine.state import StateStore
from flowengine.engine.walk import Walk
from flowengine.flowfile.analysis.branch_exclusion import BranchExclusion

Edges = Sequence[tuple[str, str] | tuple[str, str, str]]


def graph_of(nodes: str | Sequence[Vertex], edges: Edges) -> Graph:
    vertices = [Vertex(name) for name in nodes.split()] if isinstance(nodes, str) else nodes
    return Graph(vertices, [Edge(*edge) for edge in edges])


def live(graph: Graph, **labels: str) -> BranchExclusion:
    return BranchExclusion(graph, {graph.index[name]: frozenset(each.split()) for name, each in labels.items()})


def excludes(graph: Graph, one: str, other: str, **labels: str) -> bool:
    return live(graph, **labels).exclude(graph.index[one], graph.index[other])


def certain(graph: Graph, reader: str | None, node: str, **labels: str) -> bool:
    return live(graph, **labels).certain(None if reader is None else graph.index[reader], graph.index[node])


# --- the rules, one by one


def test_targets_of_different_labels_exclude_each_other() -> None:
    graph = graph_of("pick a b", [("pick", "a", "x"), ("pick", "b", "y")])
    assert excludes(graph, "a", "b")


def test_targets_of_one_label_do_not_exclude_each_other() -> None:
    graph = graph_of("pick a b", [("pick", "a", "x"), ("pick", "b", "x")])
    assert not excludes(graph, "a", "b")


def test_what_follows_a_branch_is_excluded_too_until_the_branches_meet() -> None:
    edges: Edges = [("pick", "a", "x"), ("pick", "b", "y"), ("a", "after"), ("after", "join"), ("b", "join")]
    graph = graph_of("pick a b after join", edges)
    assert excludes(graph, "after", "b")
    assert not excludes(graph, "join", "b")


def test_a_choice_within_a_branch_excludes_the_other_branch() -> None:
    edges: Edges = [("p", "q", "x"), ("p", "b", "y"), ("q", "c", "m"), ("q", "d", "n")]
    graph = graph_of("p q b c d", edges)
    assert excludes(graph, "c", "b")
    assert excludes(graph, "c", "d")
    assert not excludes(graph, "c", "q")


def test_a_node_behind_both_branches_is_certain_where_they_are_all_there_are() -> None:
    edges: Edges = [("p", "a", "x"), ("p", "b", "y"), ("a", "z"), ("b", "z")]
    graph = graph_of("p a b z", edges)
    assert certain(graph, None, "z")
    assert not certain(graph, None, "z", p="x y nowhere")
    assert not certain(graph, "z", "a")


def test_a_target_is_certain_for_what_only_it_leads_to() -> None:
    graph = graph_of("p a z", [("p", "a", "x"), ("a", "z")])
    assert certain(graph, "z", "a", p="x other")
    assert certain(graph, "a", "p")


def test_an_optional_node_is_certain_for_its_only_child_and_for_nobody_else() -> None:
    graph = graph_of("a b c", [("a", "b"), ("a", "c"), ("b", "c")])
    found = BranchExclusion(graph, {}, {graph.index["b"]})
    assert not found.certain(graph.index["c"], graph.index["b"])
    assert found.certain(graph.index["c"], graph.index["a"])


def test_join_all_can_count_on_every_parent() -> None:
    nodes = [Vertex("p"), Vertex("q"), Vertex("a"), Vertex("b"), Vertex("z", join="all")]
    graph = graph_of(nodes, [("p", "a", "x"), ("q", "b", "x"), ("a", "z"), ("b", "z")])
    assert certain(graph, "z", "a", p="x o", q="x o")
    assert certain(graph, "z", "b", p="x o", q="x o")


def test_a_node_that_waits_for_both_branches_is_never_reached() -> None:
    nodes = [*map(Vertex, "pab"), Vertex("z", join="all"), Vertex("after")]
    graph = graph_of(nodes, [("p", "a", "x"), ("p", "b", "y"), ("a", "z"), ("b", "z"), ("z", "after")])
    assert [graph.ids[number] for number in live(graph).dead] == ["z", "after"]


def test_who_handles_a_failure_excludes_who_follows_a_success() -> None:
    nodes = [Vertex("a", on_error="then"), Vertex("rescue"), Vertex("go_on"), Vertex("end")]
    edges: Edges = [("a", "rescue", ON_ERROR), ("a", "go_on"), ("rescue", "end"), ("go_on", "end")]
    graph = graph_of(nodes, edges)
    assert excludes(graph, "rescue", "go_on")
    assert excludes(graph, "rescue", "a")
    assert certain(graph, "go_on", "a")
    assert not certain(graph, "end", "a")
    assert certain(graph, None, "end")


# --- against every run


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[int, frozenset[str]], set[int]]:
    """Small graphs with routes (labels that lead nowhere included), all joins, `when` and handled failures."""
    names = "abcdefg"[: draw(st.integers(2, 7))]
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    labels: dict[str, frozenset[str]] = {}
    optional: set[str] = set()
    for at, name in enumerate(names):
        kind = draw(st.sampled_from(["plain", "plain", "router", "then", "when"]))
        join: Any = draw(st.sampled_from(["some", "some", "some", "all", "always"]))
        vertices.append(Vertex(name, join=join, on_error="then" if kind == "then" else "fail"))
        if kind == "router":
            labels[name] = frozenset(draw(st.sampled_from(["x", "xy", "xyz"])))
        if kind == "when":
            optional.add(name)
        for source in draw(st.lists(st.sampled_from(names[:at]), max_size=3)) if at else ():
            routed = [
                *labels.get(source, ()),
                *([ON_ERROR] if vertices[names.index(source)].on_error == "then" else ()),
            ]
            edges.append(Edge(source, name, draw(st.sampled_from([None, *sorted(routed)]))))
    graph = Graph(vertices, edges)
    index = graph.index
    return graph, {index[name]: each for name, each in labels.items()}, {index[name] for name in optional}


def runs_of(graph: Graph, labels: dict[int, frozenset[str]], optional: set[int]) -> Iterator[dict[int, str]]:
    """The statuses at the end of every run, by all ways that a node can go."""

    def ways(number: int) -> list[str | None]:
        if graph.vertices[number].on_error == "then":
            return [None, "fails"]
        if number in optional:
            return [None, "is skipped"]
        return [*sorted(labels[number])] if number in labels else [None]

    def go(script: list[str | None]) -> tuple[Walk, list[str | None] | None]:
        walk = Walk(graph, StateStore({}))
        told = iter(script)
        while walk.ready:
            number = walk.ready.popleft()
            way = next(told, "ask")
            if way == "ask":
                return walk, ways(number)
            walk.start(number)
            name = graph.ids[number]
            if way == "fails":
                walk.apply(NodeFailed(name, 0.0, ErrorInfo("E", "")))
            elif way == "is skipped":
                walk.apply(NodeSkipped(name, 0.0, "condition_false"))
            else:
                walk.apply(NodeFinished(name, 0.0, NodeResult(route=way)))
        return walk, None

    todo: list[list[str | None]] = [[]]
    while todo:
        script = todo.pop()
        walk, options = go(script)
        if options is None:
            yield {number: _outcome(walk, number) for number in range(len(graph))}
        else:
            todo += [[*script, way] for way in options]


def _outcome(walk: Walk, number: int) -> str:
    """`succeeded`, `ran` (and was handled or skipped itself), or `skipped`."""
    status = walk.status_of(number)
    if status == "succeeded":
        return status
    return "ran" if status == "failed" or walk.cause_of(number) == "condition_false" else "skipped"


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_what_is_said_holds_in_every_run(case: tuple[Graph, dict[int, frozenset[str]], set[int]]) -> None:
    graph, labels, optional = case
    said = BranchExclusion(graph, labels, optional)
    dead = set(said.dead)
    for outcome in runs_of(graph, labels, optional):
        done = {number for number, each in outcome.items() if each == "succeeded"}
        ran = {number for number, each in outcome.items() if each != "skipped"}
        assert not dead & ran
        for one, other in combinations(sorted(done), 2):
            assert not said.exclude(one, other), (graph.edges, outcome)
        for reader in (None, *ran):
            for node in range(len(graph)):
                if said.certain(reader, node) and node != reader:
                    assert node in done, (graph.edges, outcome, reader, node)


# --- cost


def _chain_of_choices(size: int) -> Graph:
    """Routers in a row, each with two branches that meet in the next one."""
    edges: list[tuple[str, str] | tuple[str, str, str]] = []
    nodes: list[str] = []
    for at in range(size // 3):
        router, left, right = f"r{at}", f"a{at}", f"b{at}"
        nodes += [router, left, right]
        edges += [(router, left, "x"), (router, right, "y")]
        edges += [(left, f"r{at + 1}"), (right, f"r{at + 1}")] if at < size // 3 - 1 else []
    return graph_of(" ".join(nodes), edges)


def _nested_choices(size: int) -> Graph:
    """Each router lies in a branch of the one before it."""
    names = [f"r{at}" for at in range(size)]
    return graph_of(" ".join(names), [(one, two, "x") for one, two in pairwise(names)])


@pytest.mark.parametrize("make", [_chain_of_choices, _nested_choices])
def test_long_chains_of_choices_cost_little(make: Any) -> None:
    def cost(size: int) -> float:
        graph = make(size)
        labels = {number: frozenset("xyz") for number in range(size) if number in graph.routes}
        started = time.process_time()
        said = BranchExclusion(graph, labels)
        for number in range(1, len(graph)):
            said.exclude(number - 1, number)
            said.certain(number, number // 2)
        return time.process_time() - started

    small, large = min(cost(750) for _ in range(3)), min(cost(3000) for _ in range(3))
    assert large < 10 * small  # Four times the nodes: quadratic would be sixteen times the cost.
