"""Which calls to external tools wait for a decision, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.core.records import EffectDecided, Notice, ToolCall
from flowengine.engine.restoring import Attempts
from flowengine.errors import EffectPendingError, JournalError, UndecidedCall
from flowengine.journal.effects import decided_effects, pending_calls

BEGUN = ToolCall("pay", {"to": "Ann"}, None, effect="external", key="k", started=True)
ENDED = BEGUN._replace(result="paid", started=False)
SECOND = BEGUN._replace(occurrence=1)
AGAIN = EffectDecided("pay", {"to": "Ann"}, "k", 0, "retry")


@pytest.mark.parametrize(
    ("records", "pending"),
    [
        ([], []),
        ([Notice("nothing")], []),
        ([BEGUN], [BEGUN]),
        ([BEGUN, ENDED], []),
        ([BEGUN, SECOND, ENDED], [SECOND]),
        ([BEGUN, AGAIN], []),
        ([BEGUN, AGAIN._replace(decision="done")], []),
        ([BEGUN, AGAIN, BEGUN], [BEGUN]),
        ([BEGUN, AGAIN, BEGUN, ENDED], []),
        ([ENDED._replace(effect="none")], []),
    ],
)
def test_pending_is_what_began_and_neither_ended_nor_was_decided(records: list[Any], pending: list[ToolCall]) -> None:
    assert pending_calls(records) == pending


def attempts_of(**records: list[Any]) -> Attempts:
    attempts = Attempts()
    for node, each in records.items():
        for record in each:
            attempts.add(node, record)
    return attempts


def test_the_error_names_node_tool_arguments_and_both_ways_on() -> None:
    with pytest.raises(EffectPendingError) as caught:
        decided_effects("r1", attempts_of(send=[BEGUN], calm=[Notice("x")]))
    error = caught.value
    assert (error.node, error.tool, error.arguments) == ("send", "pay", {"to": "Ann"})
    for part in (
        "node 'send', tool 'pay', arguments {'to': 'Ann'}",
        "`flowengine resume r1 --retry-effect send`",
        "`flowengine resume r1 --assume-done send`",
    ):
        assert part in str(error)


MAIL = BEGUN._replace(name="mail", key="m")


def test_the_error_names_every_call_by_the_path_that_decides_about_it() -> None:
    with pytest.raises(
        EffectPendingError, match="--retry-effect a:pay --retry-effect a:pay:2 --retry-effect b`"
    ) as caught:
        decided_effects("r1", attempts_of(a=[BEGUN, SECOND], b=[MAIL]))
    assert [call[:2] for call in caught.value.calls] == [("a", "pay"), ("a", "pay"), ("b", "mail")]
    assert "a:pay:2: tool 'pay', arguments {'to': 'Ann'}" in str(caught.value)


def test_long_arguments_are_cut_in_the_message_only() -> None:
    error = EffectPendingError("r1", [UndecidedCall("send", "pay", {"text": "x" * 10_000}, "send")])
    assert len(str(error)) < 1000
    assert len(error.arguments["text"]) == 10_000


@pytest.mark.parametrize(
    ("retry", "done", "decisions"),
    [
        (["a:pay"], ["a:pay:2", "a:mail"], ["retry", "done", "done"]),
        (["a"], ["a:pay:2"], ["retry", "done", "retry"]),
        (["a:mail"], ["a"], ["done", "done", "retry"]),
    ],
)
def test_calls_of_one_node_are_decided_one_by_one(retry: list[str], done: list[str], decisions: list[str]) -> None:
    decided = decided_effects("r1", attempts_of(a=[BEGUN, SECOND, MAIL]), retry=retry, done=done)
    assert [(each.name, each.occurrence) for _, each in decided] == [("pay", 0), ("pay", 1), ("mail", 0)]
    assert [each.decision for _, each in decided] == decisions


def test_a_call_that_is_left_out_is_asked_about_again() -> None:
    with pytest.raises(EffectPendingError) as caught:
        decided_effects("r1", attempts_of(a=[BEGUN, MAIL]), retry=["a:pay"])
    assert [each.path for each in caught.value.calls] == ["a:mail"]


def test_a_decision_is_about_every_pending_call_of_its_node() -> None:
    attempts = attempts_of(a=[BEGUN, SECOND], b=[BEGUN])
    decided = decided_effects("r1", attempts, retry=["a"], done=["b"])
    assert decided == [
        ("a", AGAIN),
        ("a", AGAIN._replace(occurrence=1)),
        ("b", AGAIN._replace(decision="done")),
    ]


def test_one_undecided_node_stops_all() -> None:
    with pytest.raises(EffectPendingError) as caught:
        decided_effects("r1", attempts_of(a=[BEGUN], b=[BEGUN]), retry=["a"])
    assert [call[0] for call in caught.value.calls] == ["b"]


@pytest.mark.parametrize(
    ("retry", "done", "problem"),
    [
        (["sent"], [], "'sent' has no call to an external tool that waits.*did you mean 'send'"),
        ([], ["other"], "'other' has no call"),
        (["send"], ["send"], "'send': either"),
    ],
)
def test_a_decision_has_to_be_about_a_pending_call(retry: list[str], done: list[str], problem: str) -> None:
    with pytest.raises(JournalError, match=problem):
        decided_effects("r1", attempts_of(send=[BEGUN]), retry=retry, done=done)
