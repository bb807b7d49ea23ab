"""The fold of events that the live tree and `runs show` are drawn from."""

from __future__ import annotations

import io

from rich.console import Console

from flowengine.cli.live import draw
from flowengine.core.context import NodeResult
from flowengine.core.records import Answered, ApprovalRequested, ModelCall, Notice, Retry
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from visualize.progress import Progress, fold_events
from visualize.usual_times import point_of, time_left


def started(*nodes: str) -> RunStarted:
    graph = {"nodes": [[node, "agent"] for node in nodes], "edges": []}
    return RunStarted("r1", "a flow", 100.0, {}, {}, {}, graph=graph)


def call(tokens: int | None, cost: float | None, error: str | None = None) -> ModelCall:
    return ModelCall("m", "p", "generation", [], "text", prompt_tokens=tokens, cost_usd=cost, error=error)


def fold(*events: Event) -> Progress:
    progress = Progress()
    for event in events:
        progress.apply(event)
    return progress


def picture(progress: Progress, rows: int = 50, now: float = 110.0) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(draw(progress, now, rows))
    return console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above


def test_nodes_stand_in_the_flows_order_whatever_ran_first() -> None:
    progress = fold(started("a", "b"), NodeStarted("b", 101), NodeStarted("a", 102))
    assert list(progress.nodes) == ["a", "b"]
    assert list(progress.running) == ["b", "a"]


def test_a_node_that_only_events_know_is_added() -> None:
    assert list(fold(started("a"), NodeStarted("a/0/x", 101)).nodes) == ["a", "a/0/x"]


def test_every_end_of_a_node_is_told() -> None:
    progress = fold(
        started("a", "b", "c", "d", "e"),
        NodeStarted("a", 101),
        NodeFinished("a", 103, NodeResult("out", route="left")),
        NodeStarted("b", 101),
        NodeFailed("b", 102, ErrorInfo("ValueError", "no")),
        NodeSkipped("c", 102, "not_selected"),
        NodeStarted("d", 101),
        NodeCancelled("d", 105),
    )
    assert [row.status for row in progress.nodes.values()] == ["succeeded", "failed", "skipped", "cancelled", "pending"]
    assert progress.nodes["a"].seconds() == 2
    assert progress.settled == 4
    assert not progress.running


def test_tokens_and_costs_add_up_and_unknown_is_not_zero() -> None:
    progress = fold(
        started("a", "b", "c"),
        NodeRecorded("a", 101, call(10, 0.5)),
        NodeRecorded("a", 102, call(20, None)),
        NodeRecorded("b", 103, call(None, None)),
        NodeRecorded("c", 103, call(None, None, error="refused")),
    )
    a, b, c = (progress.nodes[name].usage for name in "abc")
    assert (a.tokens, a.cost_usd, a.is_whole) == (30, 0.5, False)
    assert (b.tokens, b.cost_usd) == (None, None)
    assert (c.tokens, c.cost_usd, c.is_whole) == (0, 0.0, True)
    assert (progress.usage.calls, progress.usage.tokens) == (4, 30)


def test_a_notice_counts_once() -> None:
    progress = fold(started("a"), NodeRecorded("a", 1, Notice("x")), NodeRecorded("a", 2, Notice("x")))
    assert list(progress.notices) == ["x"]


def test_a_resumed_run_keeps_what_was_done_and_starts_the_rest_again() -> None:
    progress = fold(
        started("a", "b"),
        NodeStarted("a", 101),
        NodeFinished("a", 102, NodeResult(1)),
        NodeStarted("b", 102),
        NodeCancelled("b", 103),
        RunFinished(103, "cancelled"),
        RunResumed(200),
        NodeStarted("b", 201),
    )
    assert progress.status == "running"
    assert [row.status for row in progress.nodes.values()] == ["succeeded", "running"]
    assert progress.settled == 1
    assert progress.nodes["b"].seconds(now=205) == 4


def test_the_picture_shows_state_time_tokens_cost_and_why() -> None:
    progress = fold(
        started("a", "b", "c", "d"),
        NodeStarted("a", 101),
        NodeRecorded("a", 102, call(1234, 0.0123)),
        NodeFinished("a", 103, NodeResult("out", route="left")),
        NodeSkipped("b", 103, "not_selected"),
        NodeStarted("c", 101),
        NodeFailed("c", 102, ErrorInfo("ValueError", "first line\nsecond")),
        NodeStarted("d", 105),
        NodeRecorded("d", 106, Retry(1, "no", 1)),
    )
    lines = picture(progress).splitlines()
    assert lines[0].split() == ["a", "flow", "running", "10.0", "s", "1,234", "tokens", "$0.0123", "r1"]
    assert lines[1].split() == ["├─", "✓", "a", "2.0", "s", "1,234", "tokens", "$0.0123", "→", "left"]
    assert lines[2].split() == ["├─", "–", "b", "not", "selected"]
    assert lines[3].split() == ["├─", "✗", "c", "1.0", "s", "first", "line"]
    assert lines[4].split() == ["└─", "●", "d", "5.0", "s", "retry", "1"]


def test_markup_and_escapes_in_a_flow_are_shown_not_obeyed() -> None:
    progress = fold(
        started("[red]a[/red]"), NodeFailed("[red]a[/red]", 102, ErrorInfo("E", "\x1b]0;owned\x07[bold]x[/nosuch]"))
    )
    shown = picture(progress)
    assert "[red]a[/red]" in shown
    assert r"\x1b]0;owned\x07[bold]x[/nosuch]" in shown
    assert "\x1b" not in shown


def test_a_large_flow_shows_what_matters_now() -> None:
    nodes = [f"n{number}" for number in range(1000)]
    events: list[Event] = [started(*nodes)]
    for number in range(500):
        events += [NodeStarted(f"n{number}", 101), NodeFinished(f"n{number}", 101 + number, NodeResult())]
    events += [NodeStarted("n500", 700), NodeFailed("n499", 700, ErrorInfo("E", "no"))]
    lines = picture(fold(*events), rows=5).splitlines()
    assert [line.split()[2] for line in lines[1:5]] == ["n497", "n498", "n499", "n500"]
    assert lines[5:] == lines[-1:]
    assert lines[5].split() == ["└─", "996", "more;", "500", "of", "1,000", "done"]


def test_a_narrow_terminal_shortens_the_remark_first() -> None:
    progress = fold(started("a_name"), NodeFailed("a_name", 102, ErrorInfo("E", "a long explanation " * 9)))
    console = Console(file=io.StringIO(), width=50, force_terminal=False)
    console.print(draw(progress, 110.0, 50))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the StringIO from above
    assert len(lines) == 2
    assert "a_name" in lines[1]
    assert lines[1].rstrip().endswith("…")


# --- time


def approved_later() -> list[Event]:
    """A node works for 2 s, an approval is answered after ten minutes, and 1 s of work follows."""
    return [
        started("a", "ask", "b"),
        NodeStarted("a", 100),
        NodeFinished("a", 102, NodeResult("out")),
        NodeStarted("ask", 102),
        NodeRecorded("ask", 102, ApprovalRequested("Publish?", ["yes", "no"])),
        RunFinished(102, "waiting"),
        NodeRecorded("ask", 702, Answered("yes")),
        RunResumed(703),
        NodeStarted("ask", 703),
        NodeFinished("ask", 703, NodeResult("yes", route="yes")),
        NodeStarted("b", 703),
        NodeFinished("b", 704, NodeResult("out")),
        RunFinished(704, "succeeded", {}),
    ]


def test_an_approval_took_as_long_as_it_waited_and_that_is_no_work_of_the_run() -> None:
    progress = fold(*approved_later())
    ask = progress.nodes["ask"]
    assert (ask.seconds(), ask.sum_waiting()) == (601, 600)
    assert progress.nodes["a"].sum_waiting() is None
    assert (progress.seconds(), progress.idle, progress.working_seconds()) == (604, 601, 3)
    assert point_of(progress).seconds == 3


def test_an_approval_that_waits_still_has_waited_until_now() -> None:
    progress = fold(*approved_later()[:6])
    assert progress.nodes["ask"].sum_waiting(110) == 8
    assert progress.idle == 0


def test_a_node_that_failed_and_ran_again_says_how_it_had_failed_and_only_then() -> None:
    failed = [started("a"), NodeStarted("a", 101), NodeFailed("a", 102, ErrorInfo("ValueError", "broken"))]
    again = [RunFinished(102, "failed"), RunResumed(200), NodeStarted("a", 200), NodeFinished("a", 201, NodeResult(1))]
    assert fold(*failed).nodes["a"].earlier_errors == []
    row = fold(*failed, *again).nodes["a"]
    assert (row.status, row.error, row.seconds()) == ("succeeded", None, 1)
    assert [error.message for error in row.earlier_errors] == ["broken"]
    assert fold(*failed, *again).working_seconds(201) == 3


def test_what_a_fork_copied_with_the_times_of_another_run_begins_with_the_fork() -> None:
    copied = [NodeStarted("a", 100), NodeFinished("a", 20, NodeResult("out")), NodeSkipped("b", 21, "condition_false")]
    progress = fold(started("a", "b"), *copied, RunFinished(105, "succeeded", {}))
    assert (progress.nodes["a"].ended, progress.nodes["a"].seconds(), progress.nodes["b"].ended) == (100, 0, 100)


def test_a_run_takes_as_long_as_its_longest_way_that_is_left():
    graph = {
        "nodes": [[name, "function"] for name in "abcd"],
        "edges": [["a", "b", []], ["a", "c", []], ["b", "d", []], ["c", "d", []]],
    }
    done = [
        NodeStarted("a", 0.0),
        NodeFinished("a", 5.0, NodeResult(1)),
        NodeStarted("b", 10.0),
        NodeStarted("c", 10.0),
    ]
    progress = fold_events([RunStarted("r", "f", 0.0, {}, {}, {}, graph=graph), *done])
    assert time_left(progress, {"a": 5, "b": 4, "c": 9, "d": 2}, 12) == 9
    assert time_left(progress, {"b": 4, "d": 2}, 60) == 2
    assert time_left(progress, {}, 12) is None
