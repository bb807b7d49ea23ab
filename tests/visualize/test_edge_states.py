"""The way that a run took through its containers."""

from __future__ import annotations

from flowengine.core.context import NodeResult
from flowengine.core.records import Answered
from flowengine.engine.events import Event, NodeFinished, NodeSkipped, NodeStarted, RunResumed, RunStarted
from tests.support.sample_run import START, research_run
from visualize.edge_states import critical_path
from visualize.picture import Picture, PictureNode, close_containers, picture_of_run
from visualize.progress import fold_events
from visualize.style import lines_of


def nodes_of(picture: Picture) -> dict[str, PictureNode]:
    return {node.id: node for node in picture.nodes}


def states_of(picture: Picture) -> dict[tuple[str, str], str]:
    return {(edge.source, edge.target): edge.state for edge in picture.edges}


def test_the_critical_path_goes_through_each_round_and_the_item_that_ended_last():
    events = [event for event in research_run() if not str(getattr(event, "node", "")).startswith("polish")]
    found = critical_path(fold_events(research_run())).rows
    assert {"draft", "polish", "polish.round[0].judge", "polish.round[1].improve", "triage"} <= found
    assert not {each for each in found if each.startswith("investigate")}
    without_the_loop = critical_path(fold_events(events)).rows
    assert {each for each in without_the_loop if each.startswith("investigate")} == {
        "investigate",
        "investigate[2].search",
        "investigate[2].summarise",
    }


def test_the_critical_path_of_a_map_goes_through_the_items_whose_place_the_last_one_took():
    """Two at once of four items: 0 and 1 begin together, 2 takes the place of 1, and 3 that of 0."""
    body = {"nodes": [["leaf", "function"]], "edges": []}
    events: list[Event] = [
        RunStarted("r", "f", 0.0, {}, {}, {}, graph={"nodes": [["each", "map", body]], "edges": []}),
        NodeStarted("each", 0.0),
    ]
    for number, (begin, end) in enumerate([(0.0, 2.0), (0.0, 1.0), (1.0, 2.5), (2.0, 5.0)]):
        events += [
            NodeStarted(f"each[{number}].leaf", begin),
            NodeFinished(f"each[{number}].leaf", end, NodeResult(1)),
        ]
    events.append(NodeFinished("each", 5.0, NodeResult([])))
    assert critical_path(fold_events(events)).rows == {"each", "each[0].leaf", "each[3].leaf"}


def test_only_the_steps_from_one_to_the_next_are_critical():
    """The first node leads to the last one directly, too, and both are on the way."""
    nodes = [["a", "agent"], ["b", "agent"], ["c", "agent"]]
    graph = {"nodes": nodes, "edges": [["a", "b", []], ["b", "c", []], ["a", "c", []]]}
    events: list[Event] = [RunStarted("r1", "f", 1.0, {}, {}, {}, graph=graph)]
    for at, node in enumerate("abc", 1):
        events += [NodeStarted(node, at), NodeFinished(node, at + 1, NodeResult("x"))]
    edges = picture_of_run(events).edges
    assert {(edge.source, edge.target) for edge in edges if edge.critical} == {("a", "b"), ("b", "c")}


def test_a_node_that_is_still_at_work_ends_last():
    events: list[Event] = [
        RunStarted("r", "f", 0.0, {}, {}, {}, graph={"nodes": [["a", "function"], ["b", "agent"]], "edges": []}),
        NodeStarted("b", 0.0),
        NodeStarted("a", 0.0),
        NodeFinished("a", 9.0, NodeResult(1)),
    ]
    assert critical_path(fold_events(events)).rows == {"b"}


def test_a_node_that_was_skipped_is_on_no_critical_path():
    graph = {"nodes": [["answer", "agent"], ["callback", "agent"]], "edges": [["answer", "callback", []]]}
    events: list[Event] = [
        RunStarted("r1", "f", 1.0, {}, {}, {}, graph=graph),
        NodeStarted("answer", 1.0),
        NodeFinished("answer", 3.0, NodeResult("x")),
        NodeStarted("callback", 3.0),
        NodeSkipped("callback", 3.1, "condition_false"),
    ]
    assert critical_path(fold_events(events)).rows == {"answer"}


def test_an_edge_in_a_body_is_taken_once_it_was_taken_in_one_round():
    states = states_of(picture_of_run(research_run()))
    assert states["polish.judge", "polish.improve"] == "taken"
    assert states["investigate.search", "investigate.summarise"] == "taken"
    assert states["triage", "widen"] == "not_taken"
    assert states["triage", "ask"] == "taken"
    assert states["ask", "publish"] == "undecided"


def test_a_body_is_drawn_once_with_the_counts_of_its_times():
    nodes = nodes_of(picture_of_run(research_run()))
    assert (nodes["polish"].unit_count, nodes["polish"].total, nodes["polish"].parent) == (3, 4, None)
    assert (nodes["investigate"].unit_count, nodes["investigate"].total) == (4, 4)
    assert dict(nodes["polish.improve"].tally) == {"succeeded": 2, "skipped": 1}
    assert dict(nodes["investigate.search"].tally) == {"succeeded": 3, "failed": 1}
    assert nodes["polish.judge"].parent == "polish"
    assert lines_of(nodes["investigate"])[0] == "investigate ×4 of 4"
    assert lines_of(nodes["polish.improve"])[2] == "✓ 2 of 3, 1 skipped · 1.0 s"


def test_what_a_body_costs_counts_for_its_container_and_once_for_the_run():
    progress = fold_events(research_run())
    nodes = nodes_of(picture_of_run(research_run()))
    assert nodes["polish"].calls == nodes["polish.judge"].calls + nodes["polish.improve"].calls == 5
    top = [row.usage.calls for row in progress.nodes.values() if row.spot.container is None]
    assert sum(top) == progress.usage.calls == 12


def test_the_body_of_a_container_that_was_skipped_is_skipped_with_it():
    nodes = nodes_of(picture_of_run(research_run()))
    assert [nodes[each].status for each in ("widen", "widen.plan", "widen.each", "widen.each.leaf")] == ["skipped"] * 4


def test_a_container_waits_when_somebody_inside_waits_and_nobody_runs():
    body = {"nodes": [["ask", "approval"], ["work", "agent"]], "edges": []}
    graph = {"nodes": [["outer", "subflow", {"nodes": [["each", "map", body]], "edges": []}]], "edges": []}
    asked = next(event for event in research_run() if getattr(event, "node", "") == "ask" and hasattr(event, "record"))
    inside = "outer.each[0]."
    events: list[Event] = [
        RunStarted("r", "f", 1.0, {}, {}, {}, graph=graph),
        NodeStarted("outer", 1.0),
        NodeStarted("outer.each", 1.0),
        NodeStarted(f"{inside}ask", 1.0),
        NodeStarted(f"{inside}work", 1.0),
        asked._replace(node=f"{inside}ask"),
    ]

    def status() -> list[str]:
        return [fold_events(events).nodes[each].status for each in ("outer", "outer.each")]

    assert status() == ["running", "running"]
    events.append(NodeFinished(f"{inside}work", 2.0, NodeResult()))
    assert status() == ["waiting", "waiting"]
    events += [RunResumed(9.0), NodeStarted("outer", 9.0), NodeStarted("outer.each", 9.0)]
    assert status() == ["waiting", "waiting"]
    events += [NodeStarted(f"{inside}ask", 9.0)]
    assert fold_events(events).nodes[f"{inside}ask"].status == "waiting"  # It is asked already, and not again.
    events += [asked._replace(node=f"{inside}ask", record=Answered("yes"))]
    assert status() == ["running", "running"]
    events += [NodeFinished(f"{inside}ask", 9.5, NodeResult("yes"))]
    assert fold_events(events).nodes[f"{inside}ask"].status == "succeeded"


def test_a_large_body_is_drawn_closed_and_says_what_it_hides():
    body = {"nodes": [[f"b{number}", "agent"] for number in range(41)], "edges": [["b0", "b1", []]]}
    around = {"nodes": [["inner", "map", body]], "edges": []}
    graph = {"nodes": [["a", "agent"], ["outer", "subflow", around]], "edges": [["a", "outer", []]]}
    picture = close_containers(picture_of_run([RunStarted("r", "f", START, {}, {}, {}, graph=graph)]), 1500)
    assert [node.id for node in picture.nodes] == ["a", "outer"]
    assert [(edge.source, edge.target) for edge in picture.edges] == [("a", "outer")]
    assert lines_of(picture.nodes[1])[1] == "subflow · 42 nodes inside"
    small = close_containers(picture_of_run(research_run()), 1500)
    assert small == picture_of_run(research_run())
    assert [node.id for node in close_containers(small, 3).nodes if node.parent] == []
