"""Given these events, these nodes are ready: every rule about what runs next."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.context import NodeResult, Note
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunResumed,
)
from flowengine.engine.graph import ON_ERROR, Edge, Graph, OnError, Vertex
from flowengine.engine.merging import FOLDS, Merge, StateKey
from flowengine.engine.restoring import History
from flowengine.engine.state import StateStore
from flowengine.engine.view import FinalContext, NodeContext, view_of
from flowengine.engine.walk import Walk
from flowengine.errors import AmbiguousResultError, StateConflictError, StateError
from tests.support.pace import spent_within

Edges = list[tuple[str, str] | tuple[str, str, str]]


def walk_of(
    nodes: str | list[Vertex],
    edges: Edges,
    state: Mapping[str, StateKey] | None = None,
    restored: list[Event] | None = None,
) -> Walk:
    vertices = [Vertex(name) for name in nodes.split()] if isinstance(nodes, str) else nodes
    graph = Graph(vertices, [Edge(*edge) for edge in edges])
    return Walk(graph, StateStore(state or {}), history=History(restored or []))


def ready(walk: Walk) -> list[str]:
    return [walk.graph.ids[number] for number in walk.ready]


def start(walk: Walk, *nodes: str) -> None:
    for node in nodes:
        number = walk.graph.index[node]
        walk.ready.remove(number)
        walk.start(number)


def finish(walk: Walk, node: str, output: Any = None, **result: Any) -> None:
    """Start and finish a ready node."""
    start(walk, node)
    done = walk.admit(walk.graph.index[node], NodeResult(output, **result))
    walk.apply(NodeFinished(node, 0.0, done))


def fail(walk: Walk, node: str) -> None:
    start(walk, node)
    walk.apply(NodeFailed(node, 0.0, ErrorInfo("ValueError", f"{node} broke")))


def skips(walk: Walk) -> dict[str, str]:
    return {walk.graph.ids[number]: cause for number, cause in walk.decided}


class Nobody:
    """A listener to whom nothing is told."""

    scope = None
    ledger = None

    def note_of(self, node: str, /) -> Note:
        raise AssertionError("no node runs here")

    def tell_of(self, node: str, /) -> None:
        return None


def context(walk: Walk, node: str) -> NodeContext:
    return view_of(walk, walk.graph.index[node], Nobody())


# --- order -------------------------------------------------------------------------------------------


def test_nodes_without_parents_are_ready_at_once():
    assert ready(walk_of("a b c", [("a", "c")])) == ["a", "b"]


def test_a_node_is_ready_when_its_last_parent_has_finished():
    walk = walk_of("a b c", [("a", "c"), ("b", "c")])
    finish(walk, "a")
    assert ready(walk) == ["b"]
    finish(walk, "b")
    assert ready(walk) == ["c"]
    finish(walk, "c")
    assert walk.done


# --- gates ---------------------------------------------------------------------------------------------


def test_only_the_target_of_the_taken_route_runs():
    walk = walk_of("pick left right", [("pick", "left", "l"), ("pick", "right", "r")])
    finish(walk, "pick", route="l")
    assert ready(walk) == ["left"]
    assert skips(walk) == {"right": "not_selected"}


def test_a_target_of_two_labels_runs_for_either():
    walk = walk_of("pick both", [("pick", "both", "x"), ("pick", "both", "y")])
    finish(walk, "pick", route="y")
    assert ready(walk) == ["both"]


def test_a_target_of_two_routers_runs_if_one_of_them_chose_it():
    walk = walk_of("p q t", [("p", "t", "go"), ("q", "t", "go")])
    finish(walk, "p", route="stay")
    finish(walk, "q", route="go")
    assert ready(walk) == ["t"]


def test_a_gate_stays_shut_for_an_always_join():
    nodes = [Vertex("pick"), Vertex("t", join="always")]
    walk = walk_of(nodes, [("pick", "t", "go")])
    finish(walk, "pick", route="stay")
    assert skips(walk) == {"t": "not_selected"}


def test_what_follows_a_target_that_was_not_selected_is_skipped_behind_it():
    walk = walk_of("pick left after", [("pick", "left", "l"), ("left", "after")])
    finish(walk, "pick", route="r")
    assert skips(walk) == {"left": "not_selected", "after": "upstream_skipped"}
    assert walk.done


# --- joins -----------------------------------------------------------------------------------------------


def test_a_skipped_branch_does_not_block_its_join():
    walk = walk_of("pick l r join", [("pick", "l", "l"), ("pick", "r", "r"), ("l", "join"), ("r", "join")])
    finish(walk, "pick", route="l")
    finish(walk, "l")
    assert ready(walk) == ["join"]


def test_an_all_join_wants_every_parent():
    nodes = [Vertex("pick"), Vertex("l"), Vertex("r"), Vertex("join", join="all")]
    walk = walk_of(nodes, [("pick", "l", "l"), ("pick", "r", "r"), ("l", "join"), ("r", "join")])
    finish(walk, "pick", route="l")
    finish(walk, "l")
    assert skips(walk) == {"r": "not_selected", "join": "upstream_skipped"}


def test_an_always_join_runs_after_a_failure_and_nothing_else_does():
    nodes = [Vertex("a"), Vertex("b"), Vertex("next"), Vertex("clean", join="always")]
    walk = walk_of(nodes, [("a", "next"), ("next", "clean"), ("b", "clean")])
    start(walk, "b")
    fail(walk, "a")
    walk.apply(NodeFinished("b", 0.0, NodeResult()))
    assert skips(walk) == {"next": "upstream_failed"}
    assert ready(walk) == ["clean"]


def test_a_failure_reaches_a_join_through_a_skip():
    walk = walk_of("a b c ok join", [("a", "b"), ("b", "c"), ("c", "join"), ("ok", "join")])
    start(walk, "ok")
    fail(walk, "a")
    walk.apply(NodeFinished("ok", 0.0, NodeResult()))
    assert skips(walk) == {"b": "upstream_failed", "c": "upstream_failed", "join": "upstream_failed"}


def test_a_false_when_skips_the_node_and_what_hangs_on_it_alone():
    walk = walk_of("a b c d", [("a", "b"), ("b", "c"), ("a", "d"), ("b", "d")])
    finish(walk, "a")
    start(walk, "b")
    walk.apply(NodeSkipped("b", 0.0, "condition_false"))
    assert skips(walk) == {"c": "upstream_skipped"}
    assert ready(walk) == ["d"]


# --- failures ----------------------------------------------------------------------------------------------


def test_after_an_unhandled_failure_ready_nodes_are_called_off():
    walk = walk_of("a b c", [("b", "c")])
    fail(walk, "a")
    assert ready(walk) == []
    assert skips(walk) == {"b": "cancelled", "c": "upstream_skipped"}
    assert walk.done
    assert walk.failure() == ("a", ErrorInfo("ValueError", "a broke"))


def test_a_node_in_flight_finishes_after_a_failure_and_its_children_are_called_off():
    walk = walk_of("a b c", [("b", "c")])
    start(walk, "b")
    fail(walk, "a")
    walk.apply(NodeFinished("b", 0.0, NodeResult(7)))
    assert skips(walk) == {"c": "cancelled"}
    assert walk.result_of(walk.graph.index["b"]) == NodeResult(7)


def test_a_handled_failure_leads_to_its_handler_only():
    nodes = [Vertex("a", on_error="then"), Vertex("handler"), Vertex("next")]
    walk = walk_of(nodes, [("a", "handler", ON_ERROR), ("a", "next")])
    fail(walk, "a")
    assert ready(walk) == ["handler"]
    assert skips(walk) == {"next": "upstream_skipped"}
    assert context(walk, "handler").error == "a broke"
    finish(walk, "handler")
    assert walk.failure() is None


def test_the_handler_does_not_run_when_nothing_failed():
    nodes = [Vertex("a", on_error="then"), Vertex("handler"), Vertex("next")]
    walk = walk_of(nodes, [("a", "handler", ON_ERROR), ("a", "next"), ("handler", "next")])
    finish(walk, "a")
    assert ready(walk) == ["next"]
    assert skips(walk) == {"handler": "not_selected"}


def test_a_failure_that_skips_does_not_count_as_failed():
    nodes = [Vertex("a", on_error="skip"), Vertex("b"), Vertex("join")]
    walk = walk_of(nodes, [("a", "join"), ("b", "join")])
    fail(walk, "a")
    finish(walk, "b")
    assert walk.status("a") == "skipped"
    assert walk.cause_of(walk.graph.index["a"]) == "error"
    assert ready(walk) == ["join"]
    assert walk.failure() is None


def test_stopping_starts_nothing_not_even_clean_up():
    nodes = [Vertex("a"), Vertex("b"), Vertex("clean", join="always")]
    walk = walk_of(nodes, [("a", "clean"), ("b", "clean")])
    start(walk, "a")
    walk.stop()
    walk.apply(NodeCancelled("a", 0.0))
    assert ready(walk) == []
    assert walk.status("b") == "pending"


def test_a_node_that_waits_is_entered_again_only_while_anything_may_start():
    walk = walk_of("ask other", [])
    start(walk, "ask")
    ask = walk.graph.index["ask"]
    assert not walk.enter_again(ask)
    walk.park(ask)
    assert walk.enter_again(ask)
    assert ready(walk) == ["other", "ask"]
    start(walk, "ask")
    walk.park(ask)
    fail(walk, "other")
    assert not walk.enter_again(ask)
    assert (ready(walk), walk.waits) == ([], True)


def test_a_walk_with_a_node_that_was_called_off_is_not_done_though_all_are_settled():
    walk = walk_of("a b", [("a", "b")])
    start(walk, "a")
    walk.stop()
    walk.apply(NodeCancelled("a", 0.0))
    assert skips(walk) == {"b": "upstream_skipped"}
    assert not walk.done


def test_the_failure_told_is_the_first_in_topological_order_whatever_came_first():
    walk = walk_of("a b", [])
    start(walk, "a", "b")
    for node in ("b", "a"):
        walk.apply(NodeFailed(node, 0.0, ErrorInfo("E", node)))
    assert walk.failure() == ("a", ErrorInfo("E", "a"))


# --- result ------------------------------------------------------------------------------------------------


def test_a_transparent_node_passes_on_the_result_it_received():
    nodes = [Vertex("analyze"), Vertex("route", transparent=True), Vertex("technical")]
    walk = walk_of(nodes, [("analyze", "route"), ("route", "technical", "t")])
    finish(walk, "analyze", "the analysis")
    finish(walk, "route", "t", route="t")
    assert context(walk, "technical").result == "the analysis"


def test_a_thousand_transparent_nodes_in_a_row_pass_on_one_result():
    names = [f"n{i}" for i in range(1000)]
    nodes = [Vertex(names[0]), *(Vertex(name, transparent=True) for name in names[1:])]
    walk = walk_of(nodes, list(pairwise(names)))
    for name in names[:-1]:
        finish(walk, name, "first")
    assert context(walk, names[-1]).result == "first"


def test_two_unordered_live_predecessors_leave_no_one_result():
    walk = walk_of("a b c", [("a", "c"), ("b", "c")])
    finish(walk, "a", 1)
    finish(walk, "b", 2)
    seen = context(walk, "c")
    with pytest.raises(AmbiguousResultError, match=r"a, b.*prev_outputs"):
        _ = seen.result
    assert dict(seen.prev_outputs) == {"a": 1, "b": 2}


@pytest.mark.parametrize("output", ["the same", None])
def test_equal_results_of_unordered_predecessors_are_no_one_result(output: Any):
    walk = walk_of("a b c", [("a", "c"), ("b", "c")])
    finish(walk, "a", output)
    finish(walk, "b", output)  # The very same object, which is another one in a run that was resumed.
    with pytest.raises(AmbiguousResultError, match=r"'c' follows several nodes that ran \(a, b\)"):
        _ = context(walk, "c").result


def test_of_ordered_predecessors_the_last_one_speaks():
    walk = walk_of("a b c", [("a", "b"), ("a", "c"), ("b", "c")])
    finish(walk, "a", 1)
    finish(walk, "b", 2)
    assert context(walk, "c").result == 2


def test_a_skipped_predecessor_does_not_make_the_result_ambiguous():
    walk = walk_of("pick l r join", [("pick", "l", "l"), ("pick", "r", "r"), ("l", "join"), ("r", "join")])
    finish(walk, "pick", route="r")
    finish(walk, "r", "right")
    assert context(walk, "join").result == "right"


# --- what a node sees ------------------------------------------------------------------------------------


def test_a_node_sees_its_ancestors_and_nobody_else():
    walk = walk_of("a b c d", [("a", "b"), ("b", "c"), ("a", "d")])
    for node in ("a", "d", "b"):
        finish(walk, node, node.upper())
    seen = context(walk, "c")
    assert dict(seen.prev_outputs) == {"a": "A", "b": "B"}
    with pytest.raises(KeyError, match="'d' is not an ancestor of 'c'"):
        seen.prev_outputs["d"]
    with pytest.raises(KeyError, match="no node 'x'"):
        seen.nodes["x"]


def test_a_skipped_ancestor_has_a_view_and_no_output():
    walk = walk_of("pick l join", [("pick", "l", "l"), ("pick", "join"), ("l", "join")])
    finish(walk, "pick", route="r")
    seen = context(walk, "join")
    assert seen.nodes["l"].status == "skipped"
    assert "l" not in seen.prev_outputs


def test_writes_are_seen_by_descendants_only():
    walk = walk_of("a b c", [("a", "b")], {"k": StateKey(0)})
    finish(walk, "a", state={"k": 1})
    assert context(walk, "b").shared_state["k"] == 1
    assert context(walk, "c").shared_state["k"] == 0


def test_two_unordered_writers_of_a_key_conflict_and_both_are_named():
    walk = walk_of("a b", [], {"k": StateKey(0)})
    finish(walk, "b", state={"k": 1})
    with pytest.raises(StateConflictError) as caught:
        finish(walk, "a", state={"k": 2})
    assert caught.value.writers == ("a", "b")


def test_the_same_pair_of_writers_is_named_whatever_the_timing():
    told = set[str]()
    for order in (("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")):
        walk = walk_of("a b c", [], {"k": StateKey(0)})
        start(walk, *order)
        for node in order:
            number = walk.graph.index[node]
            try:
                walk.apply(NodeFinished(node, 0.0, walk.admit(number, NodeResult(state={"k": node}))))
            except StateConflictError as error:
                walk.apply(NodeFailed(node, 0.0, ErrorInfo("StateConflictError", str(error))))
        failure = walk.failure()
        assert failure is not None
        told.add(failure[1].message)
    assert len(told) == 1
    assert "'a' and by 'b'" in told.pop()


def test_exclusive_branches_may_write_one_key():
    walk = walk_of(
        "pick l r join", [("pick", "l", "l"), ("pick", "r", "r"), ("l", "join"), ("r", "join")], {"k": StateKey()}
    )
    finish(walk, "pick", route="r")
    finish(walk, "r", state={"k": "right"})
    assert context(walk, "join").shared_state["k"] == "right"


def test_an_undeclared_key_is_refused_with_the_nearest_known_one():
    walk = walk_of("a", [], {"counter": StateKey(0)})
    with pytest.raises(StateError, match="no key 'conter'; did you mean 'counter'"):
        finish(walk, "a", state={"conter": 1})


@pytest.mark.parametrize("merge", ["append", "union", "sum", "max", "min", "update"])
def test_null_is_no_contribution(merge: Merge):
    walk = walk_of("a", [], {"k": StateKey(None, merge)})
    with pytest.raises(StateError, match=f"merge: {merge} takes contributions"):
        finish(walk, "a", state={"k": None})


def test_numbers_of_one_hash_take_no_longer_to_unite_than_others():
    alike = [number * (2**61 - 1) for number in range(20_000)]
    pairs = [(each, "x") for each in alike]
    found: list[Any] = []
    assert spent_within(1.0, lambda: found.extend(FOLDS["union"](None, [alike, pairs, alike, pairs])))
    assert found == [*alike, *pairs]
    assert FOLDS["union"](None, [[1, 1.0, True, 0.5, 0.5, "1", -0.0, 0]]) == [1, True, 0.5, "1", 0]


def test_what_a_node_returns_cannot_be_changed_by_those_who_read_it():
    walk = walk_of("a b", [("a", "b")], {"k": StateKey([])})
    finish(walk, "a", {"deep": [1]}, state={"k": [1]})
    seen = context(walk, "b")
    with pytest.raises(TypeError, match="shared with other nodes"):
        seen.prev_outputs["a"]["deep"].append(2)
    with pytest.raises(TypeError, match="shared with other nodes"):
        seen.shared_state["k"].append(2)


def test_the_engines_own_values_come_from_the_last_ancestor_that_set_them():
    walk = walk_of("a b c", [("a", "b"), ("b", "c")])
    finish(walk, "a", prompt="p1", generation="g1")
    finish(walk, "b", prompt="p2", generation="g2")
    seen = context(walk, "c").shared_state
    assert (seen["_last_prompt"], seen["_last_generation"]) == ("p2", "g2")
    assert "_last_prompt" not in context(walk, "a").shared_state


# --- going on with an earlier run ------------------------------------------------------------------------


def test_what_had_finished_stays_finished():
    events: list[Event] = [NodeStarted("a", 0.0), NodeFinished("a", 0.0, NodeResult(1)), NodeStarted("b", 0.0)]
    walk = walk_of("a b", [("a", "b")], restored=events)
    assert walk.status("a") == "succeeded"
    assert ready(walk) == ["b"]


def test_a_failed_node_and_what_was_called_off_run_again():
    events: list[Event] = [
        NodeFailed("a", 0.0, ErrorInfo("E", "no")),
        NodeSkipped("b", 0.0, "upstream_failed"),
        NodeSkipped("c", 0.0, "cancelled"),
        RunResumed(0.0),
    ]
    walk = walk_of("a b c", [("a", "b")], restored=events)
    assert ready(walk) == ["a", "c"]
    assert walk.decided == []


def test_a_clean_up_runs_again_after_what_it_cleans_up_for():
    nodes = [Vertex("a"), Vertex("b"), Vertex("clean", join="always")]
    events: list[Event] = [
        NodeFinished("b", 0.0, NodeResult()),
        NodeFailed("a", 0.0, ErrorInfo("E", "no")),
        NodeFinished("clean", 0.0, NodeResult("first time")),
    ]
    walk = walk_of(nodes, [("a", "clean"), ("b", "clean")], restored=events)
    assert ready(walk) == ["a"]
    finish(walk, "a")
    assert ready(walk) == ["clean"]


@pytest.mark.parametrize("on_error", ["fail", "skip", "then"])
def test_the_limit_of_a_larger_part_is_never_settled_whatever_the_nodes_on_error_says(on_error: OnError):
    events: list[Event] = [
        NodeStarted("a", 0.0),
        NodeFinished("a", 0.0, NodeResult(1)),
        NodeStarted("b", 0.0),
        NodeFailed("b", 0.0, ErrorInfo("LimitError", "two calls", part="")),
        NodeSkipped("c", 0.0, "upstream_failed"),
    ]
    walk = walk_of([Vertex("a"), Vertex("b", on_error=on_error), Vertex("c")], [("b", "c")], restored=events)
    assert (ready(walk), walk.status("a"), walk.failure()) == (["b"], "succeeded", None)
    own = [
        each._replace(error=each.error._replace(part="b")) if isinstance(each, NodeFailed) else each for each in events
    ]
    assert ready(walk_of([Vertex("a"), Vertex("b", on_error=on_error)], [], restored=own)) == (
        ["b"] if on_error == "fail" else []
    )


def test_what_had_finished_is_not_undone_by_being_called_off_afterwards():
    done = [NodeStarted("a", 0.0), NodeFinished("a", 0.0, NodeResult(1)), NodeStarted("b", 0.0)]
    called_off = [RunResumed(0.0), NodeSkipped("a", 0.0, "cancelled"), NodeSkipped("b", 0.0, "cancelled")]
    walk = walk_of("a b", [("a", "b")], restored=[*done, *called_off])
    assert (walk.status("a"), ready(walk)) == ("succeeded", ["b"])


def test_a_false_when_is_not_asked_again():
    events: list[Event] = [NodeFinished("a", 0.0, NodeResult()), NodeSkipped("b", 0.0, "condition_false")]
    walk = walk_of("a b c", [("a", "b"), ("a", "c")], restored=events)
    assert walk.status("b") == "skipped"
    assert ready(walk) == ["c"]


def test_skips_that_were_journaled_are_not_journaled_again():
    edges: Edges = [("pick", "l", "l"), ("pick", "r", "r")]
    done = NodeFinished("pick", 0.0, NodeResult(route="l"))
    told = walk_of("pick l r", edges, restored=[done, NodeSkipped("r", 0.0, "not_selected")])
    assert told.decided == []
    untold = walk_of("pick l r", edges, restored=[done])
    assert skips(untold) == {"r": "not_selected"}


def test_records_of_an_interrupted_node_are_kept_for_it():
    events: list[Event] = [NodeStarted("a", 0.0), NodeRecorded("a", 0.0, "a call")]
    walk = walk_of("a", [], restored=events)
    assert context(walk, "a").runtime.recorded == ["a call"]


# --- properties --------------------------------------------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[Vertex], Edges]:
    size = draw(st.integers(1, 9))
    joins = st.sampled_from(["some", "some", "all", "always"])
    errors = st.sampled_from(["fail", "skip"])
    nodes = [Vertex(f"n{i}", join=draw(joins), on_error=draw(errors)) for i in range(size)]
    edges: Edges = []
    for target in range(size):
        for source in range(target):
            kind = draw(st.sampled_from(["none", "none", "plain", "l", "r"]))
            if kind == "plain":
                edges.append((f"n{source}", f"n{target}"))
            elif kind in "lr":
                edges.append((f"n{source}", f"n{target}", kind))
    return nodes, edges


def outcome(node: str, plan: str) -> Event:
    number = int(node[1:])
    kind = plan[number % len(plan)]
    if kind == "f":
        return NodeFailed(node, 0.0, ErrorInfo("E", node))
    if kind == "s":
        return NodeSkipped(node, 0.0, "condition_false")
    return NodeFinished(node, 0.0, NodeResult(node, state={"log": [node]}, route=kind))


def played(walk: Walk, plan: str, picks: list[int]) -> list[Event]:
    """Settle ready nodes in an order that `picks` chooses; the events, in order."""
    events: list[Event] = []
    turn = 0
    while walk.ready:
        node = ready(walk)[picks[turn % len(picks)] % len(walk.ready)]
        turn += 1
        start(walk, node)
        event = outcome(node, plan)
        walk.apply(event)
        events.append(event)
    return events


def ended(walk: Walk) -> tuple[Any, ...]:
    final = FinalContext(walk)
    return [(walk.status(node), final.prev_outputs.get(node)) for node in walk.graph.ids], list(
        final.shared_state["log"]
    )


PLANS = st.text("lrlrs", min_size=1, max_size=9)
PICKS = st.lists(st.integers(0, 8), min_size=1, max_size=9)
LOG = {"log": StateKey([], "append")}


@settings(deadline=None, max_examples=150)
@given(dags(), PLANS, PICKS, PICKS)
def test_every_order_of_finishing_ends_in_the_same_statuses_and_state(
    dag: tuple[list[Vertex], Edges], plan: str, one: list[int], other: list[int]
):
    first, second = walk_of(*dag, LOG), walk_of(*dag, LOG)
    played(first, plan, one)
    played(second, plan, other)
    assert first.done
    assert second.done
    assert ended(first) == ended(second)


@settings(deadline=None, max_examples=150)
@given(dags(), st.text("lrsf", min_size=1, max_size=9), PICKS)
def test_every_node_settles_whatever_fails(dag: tuple[list[Vertex], Edges], plan: str, picks: list[int]):
    walk = walk_of(*dag, LOG)
    played(walk, plan, picks)
    assert walk.done


@settings(deadline=None, max_examples=150)
@given(dags(), PLANS, PICKS, st.integers(0, 9))
def test_a_walk_cut_anywhere_and_restored_ends_the_same(
    dag: tuple[list[Vertex], Edges], plan: str, picks: list[int], cut: int
):
    whole = walk_of(*dag, LOG)
    events = played(whole, plan, picks)
    restored = walk_of(*dag, LOG, restored=events[:cut])
    played(restored, plan, picks)
    assert restored.done
    assert ended(restored) == ended(whole)
