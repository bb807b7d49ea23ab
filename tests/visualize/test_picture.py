"""A run's events, folded into what a picture shows."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.context import NodeResult
from flowengine.engine.events import Event, NodeFinished, NodeStarted, RunResumed, RunStarted
from flowengine.engine.graph import Edge, Graph, Vertex
from visualize.picture import Picture, picture_of_flow, picture_of_run


def states(picture: Picture) -> dict[tuple[str, str], str]:
    return {(edge.source, edge.target): edge.state for edge in picture.edges}


def test_a_flow_is_drawn_without_statuses():
    picture = picture_of_flow(
        "f", Graph([Vertex("a", "agent"), Vertex("b")], [Edge("a", "b", "x"), Edge("a", "b", "y")])
    )
    assert [node.status for node in picture.nodes] == [None, None]
    assert picture.edges[0].labels == ("x", "y")


def test_the_path_that_was_taken_is_told_from_the_one_that_was_not(events: list[Event]):
    assert states(picture_of_run(events)) == {
        ("write", "pick"): "taken",
        ("pick", "left"): "taken",
        ("pick", "right"): "not_taken",
        ("left", "end"): "taken",
        ("right", "end"): "not_taken",
    }


def test_each_node_has_its_status_time_tokens_cost_and_attempts(events: list[Event]):
    nodes = {node.id: node for node in picture_of_run(events).nodes}
    assert (nodes["write"].seconds, nodes["write"].tokens, nodes["write"].cost_usd) == (1.0, 20, 0.01)
    assert (nodes["left"].attempts, nodes["left"].cost_usd, nodes["left"].unpriced) == (2, None, 1)
    assert (nodes["right"].status, nodes["right"].cause) == ("skipped", "not_selected")
    assert (nodes["end"].status, nodes["pick"].route) == ("failed", "l")


def test_the_run_has_totals_and_says_what_is_of_unknown_price(events: list[Event]):
    run = picture_of_run(events).run
    assert run is not None
    assert (run.status, run.seconds, run.tokens, run.cost_usd, run.unpriced) == ("failed", 5.0, 30, 0.01, 1)


def test_the_critical_path_goes_back_along_what_ended_last(events: list[Event]):
    picture = picture_of_run(events)
    assert [node.id for node in picture.nodes if node.critical] == ["write", "pick", "left", "end"]
    assert [(edge.source, edge.target) for edge in picture.edges if edge.critical] == [
        ("write", "pick"),
        ("pick", "left"),
        ("left", "end"),
    ]


def test_an_unfinished_run_is_drawn_as_far_as_it_came(events: list[Event]):
    picture = picture_of_run(events[:5])
    assert picture.run is not None
    assert picture.run.status == "running"
    assert states(picture)["pick", "left"] == "undecided"
    assert {node.id: node.status for node in picture.nodes}["pick"] == "running"


def test_after_a_resume_the_last_word_counts(events: list[Event]):
    again = [RunResumed(200.0), NodeStarted("end", 200.0), NodeFinished("end", 201.0, NodeResult("ok"))]
    picture = picture_of_run([*events, *again])
    end = picture.nodes[-1]
    assert (end.status, end.error) == ("succeeded", None)
    assert picture.run is not None
    assert picture.run.status == "running"


def test_no_events_make_an_empty_picture():
    assert picture_of_run([]).nodes == ()


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.integers(0, 14))
def test_events_that_make_no_sense_never_break_a_picture(seed: int, kept: int):
    shuffled: list[Event] = [
        RunStarted("r", "f", 1.0, {}, {}, {}, graph={"nodes": [["a", "agent"]], "edges": [["a", "gone", []]]}),
        NodeStarted("a", 5.0),
        NodeFinished("a", 2.0, NodeResult()),
        NodeStarted("gone", 1.0),
        NodeFinished("gone", 3.0, NodeResult()),
        RunResumed(2.0),
    ]
    shuffled *= 2
    random.Random(seed).shuffle(shuffled)
    picture = picture_of_run(shuffled[:kept])
    assert all(node.seconds is None or node.seconds >= 0 for node in picture.nodes)
