"""The longest way through a flow, and the dearest of those that exclude each other."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.engine.graph import ON_ERROR, Edge
from flowengine.flowfile.estimate.cost_bound import Most, dearest_way, longest_way


def edges(text: str) -> list[Edge]:
    """`a>b` is a plain edge, `a-x>b` a route."""
    found: list[Edge] = []
    for each in text.split():
        source, _, target = each.partition(">")
        name, _, route = source.partition("-")
        found.append(Edge(name, target, route or None))
    return found


def most_calls(costs: dict[str, int], graph: str, always: str = "") -> int | None:
    return dearest_way({name: Most(calls) for name, calls in costs.items()}, edges(graph), always.split()).calls


COSTS = {"a": 1, "b": 2, "c": 4, "d": 8, "e": 16}


def test_nodes_without_routes_add_up() -> None:
    assert most_calls(COSTS, "a>b a>c b>d c>d") == 31


def test_of_the_targets_of_one_node_the_dearest_counts_with_what_follows_it() -> None:
    assert most_calls(COSTS, "a-x>b a-y>c b>d") == 1 + (2 + 8) + 16
    assert most_calls(COSTS, "a-x>b a-y>c b>d c>d") == 1 + 4 + 8 + 16
    assert most_calls(COSTS, "a-x>b a-y>c a-z>d b>e c>e d>e") == 1 + 8 + 16


def test_a_target_may_read_what_came_before_the_choice() -> None:
    assert most_calls(COSTS, "a>b b-x>c b-y>d a>c a>d") == 1 + 2 + 8 + 16


def test_a_target_of_two_choosers_is_counted() -> None:
    assert most_calls(COSTS, "a-x>c a-y>d b-x>c b-y>e") == 31


def test_targets_of_one_label_do_not_exclude_each_other() -> None:
    assert most_calls(COSTS, "a-x>b a-x>c a-y>d") == 1 + 2 + 4 + 8 + 16


def test_choices_inside_of_choices_are_followed() -> None:
    assert most_calls(COSTS, "a-x>b a-y>e b-p>c b-q>d") == 1 + 16
    assert most_calls(COSTS | {"e": 5}, "a-x>b a-y>e b-p>c b-q>d") == 1 + 2 + 8


def test_the_end_for_failures_comes_on_top() -> None:
    assert most_calls({"a": 1, "b": 2, "c": 4}, f"a-{ON_ERROR}>b a-x>c") == 7


def test_what_runs_whatever_happens_is_never_left_out() -> None:
    assert most_calls({"a": 1, "b": 2, "c": 4, "d": 8}, "a-x>b a-y>c b>d") == 1 + 10
    assert most_calls({"a": 1, "b": 2, "c": 40, "d": 8}, "a-x>b a-y>c b>d", always="d") == 1 + 2 + 40 + 8


def test_no_bound_on_one_way_is_no_bound_at_all() -> None:
    parts = {"a": Most(1, 10, 0.1), "b": Most(None, None, None), "c": Most(2, 20, None, frozenset({"m"}))}
    found = dearest_way(parts, edges("a-x>b a-y>c"), ())
    assert found[:4] == (None, None, None, frozenset({"m"}))


def test_the_longest_way_is_told_node_by_node() -> None:
    assert longest_way(list("abcde"), edges("a>b b>c a>d d>c c>e")) == ["a", "b", "c", "e"]
    assert longest_way(["b", "a"], []) == ["b"]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, int], list[Edge]]:
    names = "abcdefgh"[: draw(st.integers(1, 8))]
    found: list[Edge] = []
    for number, target in enumerate(names):
        for source in names[:number]:
            kind = draw(st.sampled_from(["", "", "", "plain", "x", "y", "z"]))
            if kind:
                found.append(Edge(source, target, None if kind == "plain" else kind))
    return {name: draw(st.integers(0, 9)) for name in names}, found


def taken(costs: dict[str, int], graph: list[Edge], choice: dict[str, str]) -> int:
    """What runs if each chooser takes its route: rules 2 and 3 of the flow format, nothing failing."""
    runs: set[str] = set()
    for node in costs:
        parents = [edge for edge in graph if edge.target == node]
        routes = [edge for edge in parents if edge.route is not None]
        if routes:
            live = any(edge.source in runs and choice[edge.source] == edge.route for edge in routes)
        else:
            live = not parents or any(edge.source in runs for edge in parents)
        if live:
            runs.add(node)
    return sum(costs[node] for node in runs)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_no_choice_of_routes_takes_more_than_the_dearest_way(graph: tuple[dict[str, int], list[Edge]]) -> None:
    costs, found = graph
    labels = {name: sorted({edge.route for edge in found if edge.source == name and edge.route}) for name in costs}
    choosers = [name for name, each in labels.items() if each]
    bound = dearest_way({name: Most(calls) for name, calls in costs.items()}, found, ()).calls
    dearest = max(
        taken(costs, found, dict(zip(choosers, choice, strict=True)))
        for choice in product(*(labels[name] for name in choosers))
    )
    assert bound is not None
    assert dearest <= bound <= sum(costs.values())
