"""Command lines and links of what can be done with a run, from its record alone."""

from __future__ import annotations

import shlex
from html import unescape

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import ApprovalRequested
from flowengine.engine.events import ErrorInfo, Event, NodeFinished, NodeRecorded, NodeStarted, RunFinished, RunStarted
from visualize.viewer.actions import ActionField, compose_command, list_node_actions, list_run_actions
from visualize.viewer.forms import Acting
from visualize.viewer.panel import node_panel
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page, run_page

ODD = "it's\u2028 $(rm -rf /) \ud800"


def a_run(status: str, error: ErrorInfo | None = None, queue: str | None = None) -> Reading:
    graph = {"nodes": [["look", "agent"], ["each", "map"]], "edges": [["look", "each", []]]}
    settings = {} if queue is None else {"queue": queue}
    events: list[Event] = [
        RunStarted("r1", "shop", 1.0, {"q": ODD, "n": 3}, {}, {}, "my shop.yaml", "", "0.2", settings, graph),
        NodeStarted("look", 1.0),
        NodeFinished("look", 2.0, NodeResult("x")),
    ]
    return Reading(events if status == "running" else [*events, RunFinished(3.0, status, None, error)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "acting", "names"),
    [
        (a_run("succeeded"), Acting(""), ["again", "test"]),
        (a_run("failed"), Acting(""), ["resume", "again", "test"]),
        (a_run("running"), Acting(""), ["resume", "again"]),
        (a_run("running"), Acting("", is_driven=True), ["again"]),
        (a_run("running"), None, ["again", "note", "compare"]),
        (a_run("running", queue="default"), Acting(""), ["resume", "again", "cancel"]),
        (a_run("waiting", queue="default"), Acting(""), ["again", "cancel"]),
        (a_run("waiting"), Acting(""), ["again"]),
    ],
)
def test_what_can_be_done_with_a_run_is_decided_by_how_it_stands(run: Reading, acting: Acting | None, names: list[str]):
    assert [each.name for each in list_run_actions(run, acting)] == names


def test_a_run_that_ended_at_a_limit_is_to_be_given_a_higher_one():
    limit = ErrorInfo("LimitError", "too dear", limit="cost_usd", needed=0.5)
    [first, *_] = list_run_actions(a_run("paused", limit))
    assert (first.title, first.command) == ("Raise the limit", "flowengine resume r1 --max-cost N")


def test_a_file_tells_the_command_that_answers_a_question():
    asked = NodeRecorded("pay", 2.0, ApprovalRequested("Pay?", ["yes, pay", "no"]))
    start = RunStarted(
        "r1", "desk", 1.0, {}, {}, {}, path="a.yaml", graph={"nodes": [["pay", "approval"]], "edges": []}
    )
    run = Reading([start, NodeStarted("pay", 1.0), asked, RunFinished(3.0, "waiting")])
    [answer, *_] = list_node_actions(run, "pay")
    assert answer.command == "flowengine approve r1 pay --choice 'yes, pay'"
    assert "flowengine approve r1 pay" in export_page(run)


def test_commands_take_any_value_as_one_word():
    again, _ = list_run_actions(a_run("succeeded"), Acting("", options=["--store", "x y.db"]))
    assert shlex.split(again.command) == [
        "flowengine",
        "run",
        "my shop.yaml",
        "-i",
        f"q={ODD}",
        "-i",
        "n=3",
        "--store",
        "x y.db",
    ]
    field = ActionField("a", "A", "@me", "-i a=")
    assert compose_command(["x"], [field, field._replace(option="-i a=@", value="a.pdf")]) == "x -i a=@@me -i a=@a.pdf"
    assert compose_command(["x"], [field._replace(value="y" * 3_000)]) == "x -i a=@a.txt"
    assert compose_command(["x"], [field._replace(is_change=True)]) == "x"


def test_a_page_has_links_where_its_server_does_it_and_a_file_the_commands():
    run = a_run("failed")
    live = run_page(run, Acting("secret", does={"resume"}))
    assert 'href="/runs/r1/act/resume"' in live
    assert "act/again" not in live
    for page in (export_page(run), run_page(run)):
        assert "data-act=" not in page
        assert "flowengine resume r1" in page
    for page in (export_page(run), node_panel(run, "look")):
        assert "flowengine resume r1 --from look" in page
    assert "flowengine run 'my shop.yaml'" in unescape(export_page(run))


def test_a_run_of_the_server_is_cancelled_by_a_button_or_over_http():
    page = unescape(run_page(a_run("running"), Acting("s", is_driven=True, address="http://127.0.0.1:1/")))
    assert '"Authorization: Bearer $FLOWENGINE_UI_TOKEN" http://127.0.0.1:1/api/runs/r1/cancel' in page
    assert "Cancel the run" in page
    assert "Cancel the run" not in run_page(a_run("running"), Acting("s"))


def test_nothing_begins_at_a_node_that_was_not_reached():
    run = a_run("failed")
    assert [each.name for each in list_node_actions(run, "look")] == ["retry", "fork"]
    assert [*list_node_actions(run, "each"), *list_node_actions(run, "each[0].x"), *list_node_actions(run, "no")] == []
