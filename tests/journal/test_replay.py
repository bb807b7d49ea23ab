"""What a record answers: the reply as it was, once, to the same question; and how another question differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.standalone import model_call
from flowengine.agents.tools.tool import ToolResult
from flowengine.core.records import EffectDecided, ModelCall, Notice, Retry, Round, ToolCall
from flowengine.engine.events import NodeRecorded
from flowengine.journal.codec import decode, encode
from flowengine.journal.replay import ASSUMED_DONE, Replay, reply_of
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request, TokenUsage, Unanswered
from flowengine.models.scripted import ScriptedModel

MODEL = ScriptedModel([], name="m", provider="acme")
ASKED = Request("m", (Message("system", "Be brief."), Message("user", "Why is the sky blue?")), temperature=0.2)

COUNTS = st.none() | st.integers(0, 10**9)
REPLIES = st.builds(
    Reply,
    content=st.text(),
    tool_calls=st.lists(st.builds(ToolRequest, st.text(), st.text(), st.text()), max_size=3).map(tuple),
    usage=st.builds(TokenUsage, COUNTS, COUNTS, COUNTS),
    cost_usd=st.none() | st.floats(0, 100),
    finish_reason=st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
    model=st.text(min_size=1),
    provider=st.text(min_size=1),
    attempts=st.integers(1, 9),
    seconds=st.floats(0, 1000),
    vendor_parts=st.lists(st.dictionaries(st.text(), st.text() | st.integers(-9, 9))).map(tuple),
    unanswered=st.just(Unanswered()),  # What a call left open is counted where it was made, and not served again.
)


def recorded(request: Request, answer: str, occurrence: int = 0, **more: Any) -> ModelCall:
    call = model_call(MODEL, request, Reply(answer), purpose="generation")
    return call._replace(key=request.key(), occurrence=occurrence, **more)


@pytest.mark.long
@settings(deadline=None)
@given(REPLIES)
def test_a_reply_comes_back_from_the_journal_as_it_was(reply: Reply) -> None:
    event = NodeRecorded("n", 1.0, model_call(MODEL, ASKED, reply, purpose="generation"))
    read = decode(encode(event))
    assert isinstance(read, NodeRecorded)
    assert reply_of(read.record) == reply
    assert all(type(each) is ToolRequest for each in reply_of(read.record).tool_calls)


def test_an_answer_is_served_once() -> None:
    replay = Replay([recorded(ASKED, "Light.")])
    served = replay.take_reply(ASKED.key(), 0)
    assert served is not None
    assert served.content == "Light."
    assert replay.take_reply(ASKED.key(), 0) is None


def test_equal_questions_have_answers_of_their_own_whatever_their_order_on_record() -> None:
    replay = Replay([recorded(ASKED, "second", 1), recorded(ASKED, "first", 0)])
    answers = [replay.take_reply(ASKED.key(), occurrence) for occurrence in range(3)]
    assert [None if each is None else each.content for each in answers] == ["first", "second", None]


def test_a_call_that_failed_answers_nothing_and_is_no_difference() -> None:
    replay = Replay([recorded(ASKED, "", error="no"), recorded(replace(ASKED, temperature=0.9), "hot")])
    assert replay.take_reply(ASKED.key(), 0) is None
    assert replay.difference(ASKED, ASKED.key(), "generation") is None


def test_tools_are_served_by_their_results_and_by_what_was_decided() -> None:
    begun = ToolCall("pay", {}, None, effect="external", key="k", started=True)
    replay = Replay(
        [
            begun,
            begun._replace(occurrence=1),
            begun._replace(started=False, result="no money", is_error=True),
            begun._replace(occurrence=2),
            EffectDecided("pay", {}, "k", 1, "done"),
            EffectDecided("pay", {}, "k", 2, "retry"),
        ]
    )
    assert [replay.take_tool_result("k", occurrence) for occurrence in range(3)] == [
        ToolResult("no money", None, True),
        ToolResult(ASSUMED_DONE, ASSUMED_DONE),
        None,
    ]


def test_what_was_told_is_known_once_and_by_its_class() -> None:
    replay = Replay([Notice("x"), Notice("x"), Round(1, {"a": [1]}, 0.5, False), Retry(1, "e", 0.0)])
    asked = (Notice("x"), Notice("x"), Notice("x"), Round(1, {"a": [1]}, 0.5, False), Retry(1, "e", 0.0), ("x",))
    assert [replay.take_told(record) for record in asked] == [True, True, False, True, False, False]


def saying(*texts: str) -> Request:
    return replace(ASKED, messages=tuple(Message("user", text) for text in texts))


@pytest.mark.parametrize(
    ("asked", "purpose", "difference"),
    [
        (
            replace(ASKED, messages=(ASKED.messages[0], Message("user", "Why is the sky red?"))),
            "generation",
            "message 2 (user) is 'Why is the sky red?' where 'Why is the sky blue?' was recorded",
        ),
        (
            replace(ASKED, messages=(*ASKED.messages, Message("assistant", "I do not know."))),
            "generation",
            "message 3 is new: 'I do not know.'",
        ),
        (replace(ASKED, messages=ASKED.messages[:1]), "generation", "message 2 is gone: 'Why is the sky blue?'"),
        (
            replace(ASKED, messages=(Message("user", "Be brief."), ASKED.messages[1])),
            "generation",
            "message 1 is the user's where the system's was recorded",
        ),
        (replace(ASKED, temperature=0.5), "generation", "its 'temperature' is '0.5' where '0.2' was recorded"),
        (replace(ASKED, model="n"), "generation", "its 'model' is 'n' where 'm' was recorded"),
        (replace(ASKED, max_tokens=5), "generation", "its 'max_tokens' is '5' where 'None' was recorded"),
        (
            replace(ASKED, extra={"user": "a"}),
            "generation",
            "its 'extra' is \"{'user': '***'}\" where 'None' was recorded",
        ),
        (ASKED, "evaluation", "the nearest recorded call is for generation"),
    ],
)
def test_a_difference_is_said_in_one_line(asked: Request, purpose: str, difference: str) -> None:
    assert Replay([recorded(ASKED, "Light.")]).difference(asked, "another key", purpose) == difference


def test_the_nearest_recorded_question_is_the_one_that_begins_most_alike() -> None:
    replay = Replay([recorded(saying("a", "b", text), text) for text in ("cats", "cows", "x")])
    difference = replay.difference(saying("a", "b", "cold"), "another key", "generation")
    assert difference == "message 3 (user) is 'cold' where 'cows' was recorded"


def test_of_a_long_text_the_place_of_the_difference_is_shown() -> None:
    before, now = "x" * 500 + "old" + "y" * 500, "x" * 500 + "new\n" + "y" * 500
    difference = Replay([recorded(saying(before), "")]).difference(saying(now), "another key", "generation")
    assert difference is not None
    assert "…'xxxxxxxxxxxxxxxxxxxxnew\\nyyyy" in difference
    assert len(difference) < 250
    assert "\n" not in difference


def test_there_is_no_difference_where_nothing_is_left_on_record() -> None:
    replay = Replay([recorded(ASKED, "Light.")])
    replay.take_reply(ASKED.key(), 0)
    assert replay.difference(saying("else"), "another key", "generation") is None
