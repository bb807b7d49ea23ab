"""What a node that is entered again is given of what it recorded before, as tables: these events, these records."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import (
    ACCEPT,
    REFUSE,
    Answered,
    ApprovalRequested,
    EffectDecided,
    ModelCall,
    Notice,
    Notified,
    Retry,
    RoundEnded,
    ToolCall,
)
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
from flowengine.engine.graph import Graph, Vertex
from flowengine.engine.restoring import Attempts, History
from flowengine.engine.state import StateStore
from flowengine.engine.walk import Walk

CALL = ModelCall("m", "p", "generation", (), "one", key="k1")
OTHER = ModelCall("m", "p", "generation", (), "two", key="k2")
RETRY = Retry(1, "no JSON", 1.0)
BEGUN = ToolCall("pay", {}, None, effect="external", key="t", started=True)
PAID = BEGUN._replace(result="done", started=False)
LOOKED = ToolCall("look", {}, "seen", key="l")
DECIDED = EffectDecided("pay", {}, "t", 0, "done")
BROKEN = NodeFailed("a", 0.0, ErrorInfo("E", "no"))
FILTERED = OTHER._replace(key="k3", finish_reason="content_filter")
ASKED = ApprovalRequested("Pay?", (ACCEPT, REFUSE), name="pay", tool="pay", arguments={}, key="t")
SECOND = ASKED._replace(name="pay:2", occurrence=1)
YES, NO = Answered(ACCEPT, name="pay"), Answered(REFUSE, name="pay")
STARTED = NodeStarted("a", 0.0)
DONE = NodeFinished("a", 0.0, NodeResult())


def broken(kind: str) -> NodeFailed:
    return NodeFailed("a", 0.0, ErrorInfo(kind, "no"))


def told(*records: Any) -> list[Event]:
    return [NodeRecorded("a", 0.0, record) for record in records]


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([STARTED, *told(CALL, OTHER)], [CALL, OTHER]),
        ([STARTED, *told(CALL), RunResumed(0.0), STARTED, *told(OTHER)], [CALL, OTHER]),
        ([STARTED, *told(CALL), NodeCancelled("a", 0.0)], [CALL]),
        ([STARTED, *told(CALL), NodeCancelled("a", 0.0), RunResumed(0.0), NodeSkipped("a", 0.0, "cancelled")], [CALL]),
        ([STARTED, *told(CALL, RETRY)], [RETRY]),
        ([STARTED, *told(CALL, LOOKED, RETRY, OTHER)], [RETRY, OTHER]),
        ([STARTED, *told(CALL, RETRY, CALL, Retry(2, "again", 1.0))], [RETRY, Retry(2, "again", 1.0)]),
        ([STARTED, *told(CALL, RETRY, OTHER), BROKEN], [OTHER]),
        ([STARTED, *told(CALL), BROKEN, RunResumed(0.0), STARTED, *told(OTHER)], [CALL, OTHER]),
        ([STARTED, *told(CALL, BEGUN, PAID, LOOKED), BROKEN], [CALL, BEGUN, PAID, LOOKED]),
        ([STARTED, *told(CALL, BEGUN, DECIDED), BROKEN], [CALL, BEGUN, DECIDED]),
        ([STARTED, *told(CALL, LOOKED, OTHER), broken("OutputError")], [CALL, LOOKED]),
        ([STARTED, *told(CALL, OTHER._replace(error="away")), broken("OutputError")], [OTHER._replace(error="away")]),
        ([STARTED, *told(CALL, FILTERED), BROKEN], [CALL]),
        ([STARTED, *told(CALL, FILTERED, OTHER), BROKEN], [CALL, FILTERED, OTHER]),
        ([STARTED, *told(ASKED, YES, SECOND, Notified("mail", "a@b", 0.0, "pay:2")), BROKEN], [ASKED, YES]),
        ([STARTED, *told(ASKED, NO, CALL), BROKEN], [ASKED, NO, CALL]),
        ([STARTED, *told(ASKED, NO), broken("CallRefusedError")], []),
        ([STARTED, *told(CALL, RoundEnded(0, {}, False)), BROKEN], [CALL]),
        ([STARTED, *told(BEGUN, PAID, RETRY)], [BEGUN, PAID, RETRY]),
        ([STARTED, *told(CALL, BEGUN, PAID), DONE], []),
    ],
    ids=[
        "an interrupted attempt's records are the next one's",
        "also those of two interrupted ones",
        "a cancelled node keeps them",
        "also when it is called off afterwards",
        "a retry starts anew",
        "and only what the latest attempt recorded counts",
        "failures are counted",
        "a node that failed keeps its last attempt, and has all attempts again",
        "and what it records then",
        "what its tools gave outlives the failure",
        "and what was decided about it",
        "an answer that could not be used is asked for anew",
        "a call that failed is asked anew in any case",
        "so is one that the vendor's filter took",
        "but none that an answer came after",
        "a question that nobody answered is put again",
        "a refusal that the model was told stays",
        "one that the node failed by is asked about again",
        "a loop judges its rounds again",
        "and a retry",
        "a node that finished needs nothing",
    ],
)
def test_what_a_node_is_given_when_it_is_entered_again(events: list[Event], left: list[Any]) -> None:
    walk = Walk(Graph([Vertex("a")], []), StateStore({}), history=History(events))
    assert list(walk.attempts.of("a")) == left


def test_a_failure_that_was_handled_leaves_nothing_to_decide() -> None:
    events: list[Event] = [STARTED, *told(BEGUN), BROKEN]
    walk = Walk(Graph([Vertex("a", on_error="skip")], []), StateStore({}), history=History(events))
    assert list(walk.attempts) == []


def test_nodes_do_not_see_each_others_records() -> None:
    attempts = Attempts()
    attempts.add("a", Notice("of a"))
    attempts.add("b", Notice("of b"))
    attempts.finish("a")
    attempts.fail("nobody", ErrorInfo("E", "no"))
    assert (attempts.of("a"), attempts.of("b"), list(attempts)) == ((), [Notice("of b")], ["b"])
