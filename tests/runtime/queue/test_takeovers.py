"""How often a run's writers have died, read from its events."""

from __future__ import annotations

from flowengine.core.context import NodeResult
from flowengine.core.records import ModelCall, Notice
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from flowengine.runtime.queue.crash_count import deaths_of

SUBMITTED = RunStarted("r", "f", 1.0, {}, {}, {})
RESUMED = RunResumed(1.0)
PUT_BACK = RunFinished(1.0, "cancelled")


def begun(node: str) -> Event:
    return NodeStarted(node, 1.0)


def done(node: str) -> Event:
    return NodeFinished(node, 1.0, NodeResult(1))


def told(*events: Event) -> tuple[int, list[str]]:
    count, nodes = deaths_of([SUBMITTED, *events])
    return count, list(nodes)


def test_a_run_that_nobody_had_yet_has_lost_nobody() -> None:
    assert told() == (0, [])


def test_a_writer_that_said_nothing_more_has_died() -> None:
    assert told(RESUMED, begun("a")) == (1, ["a"])
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), RESUMED, begun("a")) == (3, ["a"])


def test_one_that_died_before_it_began_anything_counts_only_as_the_first() -> None:
    assert told(RESUMED) == (1, [])
    assert told(RESUMED, begun("a"), RESUMED) == (1, ["a"])
    assert told(RESUMED, RESUMED, RESUMED) == (1, [])
    assert told(RESUMED, RESUMED, begun("a")) == (2, ["a"])


def test_what_was_put_back_is_no_death_and_hides_none() -> None:
    assert told(RESUMED, begun("a"), PUT_BACK) == (0, [])
    assert told(RESUMED, begun("a"), PUT_BACK, RESUMED, PUT_BACK, RESUMED, begun("a")) == (1, ["a"])
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), PUT_BACK) == (1, ["a"])


def test_whatever_finished_meanwhile_begins_the_count_anew() -> None:
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), done("a"), begun("b")) == (1, ["b"])
    failed = NodeFailed("a", 1.0, ErrorInfo("E", "x"))
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), failed, begun("b")) == (1, ["b"])


def test_an_answer_that_was_paid_for_is_something_new_and_a_notice_is_not() -> None:
    answer = NodeRecorded("a", 1.0, ModelCall("m", "p", "generation", (), "text", key="k"))
    notice = NodeRecorded("a", 1.0, Notice("x"))
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), answer) == (1, ["a"])
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), notice) == (2, ["a"])


def test_a_person_who_puts_a_failed_run_back_begins_the_count_anew() -> None:
    given_up = RunFinished(1.0, "failed", None, ErrorInfo("RunError", "given up"))
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), given_up) == (0, ["a"])
    assert told(RESUMED, begun("a"), RESUMED, begun("a"), given_up, RESUMED, begun("a")) == (1, ["a"])


def test_of_nodes_inside_each_other_the_innermost_is_named() -> None:
    assert told(RESUMED, begun("loop"), begun("loop.round[0].a"), begun("map"), begun("map[1].b")) == (
        1,
        ["loop.round[0].a", "map[1].b"],
    )
