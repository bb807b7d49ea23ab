"""What a chat shows of a run: parts of its events, and these as AG-UI and the AI SDK have them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine import Agent, Flow
from flowengine.core.context import NodeResult
from flowengine.core.records import ApprovalRequested, ModelCall, ToolCall
from flowengine.engine.events import (
    ErrorInfo,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    TokenStreamed,
)
from flowengine.errors import InputError
from flowengine.journal.memory import MemoryStore
from flowengine.runs import Question
from flowengine.web.openai.chat_calls import Conversation, begin_chat, follow_parts
from flowengine.web.service.chat_shape import TextOutput, find_text_output
from flowengine.web.service.flow_service import FlowService
from flowengine.web.service.stream_parts import (
    Part,
    PartReader,
    RunEnded,
    StepBegan,
    StepEnded,
    TextBegan,
    TextDelta,
    TextEnded,
    ToolBegan,
    ToolEnded,
)
from flowengine.web.streams.ag_ui import AgUiEncoder, read_resume_answers
from flowengine.web.streams.ai_sdk import AiSdkEncoder, read_tool_answers
from tests.support.model_server import ModelServer


def told(*events: Any, answer: str | None = "say", text: str | None = "reply") -> Sequence[Part]:
    reader = PartReader(None if text is None else TextOutput(text, answer))
    return [part for event in events for part in reader.read(event)]


def token(text: str, node: str = "say", *, begins: bool = False) -> TokenStreamed:
    return TokenStreamed(node, 0.0, text, begins)


def ended(reply: Any = None, status: Any = "succeeded", error: ErrorInfo | None = None) -> RunFinished:
    return RunFinished(0.0, status, None if reply is None else {"reply": reply}, error)


def answer_of(parts: Sequence[Part]) -> list[str]:
    """The texts that are answers, each as it was told."""
    found = {each.id: "" for each in parts if isinstance(each, TextBegan) and each.is_answer}
    for part in parts:
        if isinstance(part, TextDelta) and part.id in found:
            found[part.id] += part.text
    return list(found.values())


@pytest.mark.parametrize(
    ("events", "answer"),
    [
        ([token("Hel", begins=True), token("lo"), ended("Hello")], ["Hello"]),
        ([token("Hel", begins=True), ended("Hello")], ["Hello"]),
        ([ended("Hello")], ["Hello"]),
        ([ended({"a": 1})], ['{"a": 1}']),
        ([token("Wai", begins=True), token("Hello", begins=True), ended("Hello")], ["Wai", "Hello"]),
        ([token("Other", begins=True), ended("Hello")], ["Other", "Hello"]),
        ([token("llo"), ended("Hello")], ["Hello"]),
        ([token("Hel", begins=True), ended(None, "failed")], ["Hel"]),
        ([token("half", "other", begins=True), ended("Hello")], ["Hello"]),
        ([ended("")], []),
        ([ended(None, "partial")], []),
    ],
)
def test_the_answer_is_told_as_it_is_written_and_is_whole_at_the_end(events: list[Any], answer: list[str]) -> None:
    assert answer_of(told(*events)) == answer


def test_what_other_agents_write_is_no_answer() -> None:
    parts = told(token("plan", "plan", begins=True), NodeFinished("plan", 0.0, NodeResult("plan")), ended("Hello"))
    assert parts[:3] == [TextBegan("plan#1", "plan", False), TextDelta("plan#1", "plan"), TextEnded("plan#1")]


def test_a_tool_is_told_once_whether_its_start_is_on_record_or_not() -> None:
    began = ToolCall("pay", {"euros": 3}, None, started=True, key="k")
    done = ToolCall("pay", {"euros": 3}, "paid", key="k")
    read = ToolCall("look", {}, "no", is_error=True, key="l")
    parts = told(*(NodeRecorded("act", 0.0, each) for each in (began, done, read)))
    first, second = (each.id for each in parts if isinstance(each, ToolBegan))
    assert parts == [
        ToolBegan(first, "act", "pay", {"euros": 3}),
        ToolEnded(first, "paid", False),
        ToolBegan(second, "act", "look", {}),
        ToolEnded(second, "no", True),
    ]


def test_usage_counts_every_call() -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 1, "cache_write_tokens": 2}
    call = ModelCall("m", "p", "generation", (), "", **counts)
    unknown = ModelCall("m", "p", "generation", (), "")
    end = told(NodeRecorded("a", 0.0, call), NodeRecorded("b", 0.0, call), NodeRecorded("b", 0.0, unknown), ended("x"))[
        -1
    ]
    assert isinstance(end, RunEnded)
    assert (*end.tokens, end.tokens.total) == (6, 8, 2, 4, 0, 14)


NODES = st.sampled_from(["say", "plan", "fan[0].work"])
EVENTS = st.one_of(
    st.builds(token, st.text(max_size=3), NODES, begins=st.booleans()),
    NODES.map(lambda node: NodeStarted(node, 0.0)),
    NODES.map(lambda node: NodeFinished(node, 0.0, NodeResult("x"))),
    NODES.map(lambda node: NodeFailed(node, 0.0, ErrorInfo("E", "no"))),
    NODES.map(lambda node: NodeSkipped(node, 0.0, "not_selected")),
    NODES.map(lambda node: NodeCancelled(node, 0.0)),
    st.builds(
        lambda node, key, started: NodeRecorded(node, 0.0, ToolCall("t", {}, "r", key=key, started=started)),
        NODES,
        st.sampled_from("ab"),
        st.booleans(),
    ),
    NODES.map(lambda node: NodeRecorded(node, 0.0, ApprovalRequested("Go on?", ["yes"]))),
)
ENDS = st.sampled_from([ended("Hello"), ended(None, "failed"), ended(None, "waiting"), ended(None, "cancelled")])


@given(st.lists(EVENTS, max_size=30), ENDS)
def test_whatever_happens_what_began_is_ended_and_nothing_is_open_twice(events: list[Any], end: RunFinished) -> None:
    open_parts: set[str] = set()
    for part in told(*events, end):
        match part:
            case StepBegan(node=node):
                assert f"step {node}" not in open_parts
                open_parts.add(f"step {node}")
            case StepEnded(node=node):
                open_parts.discard(f"step {node}")
            case TextBegan(id=part_id) | ToolBegan(id=part_id):
                assert part_id not in open_parts
                open_parts.add(part_id)
            case TextDelta(id=part_id):
                assert part_id in open_parts
            case TextEnded(id=part_id) | ToolEnded(id=part_id):
                open_parts.remove(part_id)
            case _:
                pass
    assert not open_parts


# --- As the protocols have them

QUESTION = Question("r1", "f", "ask", "Ship it?", ("yes", "no"), {"type": "object"}, 0.0, 60.0, "no", {})
WAITING = RunEnded("waiting", {}, None, told(ended("x"))[-1].tokens)  # type: ignore[union-attr]


def test_a_question_is_an_interrupt_with_the_schema_of_its_answer() -> None:
    (end,) = AgUiEncoder("t", "r", "r1").encode(WAITING, [QUESTION])
    (interrupt,) = end["outcome"]["interrupts"]
    assert interrupt["id"] == "r1/ask"
    assert interrupt["expiresAt"] == "1970-01-01T00:01:00+00:00"
    assert interrupt["responseSchema"]["properties"]["choice"]["enum"] == ["yes", "no"]
    assert interrupt["responseSchema"]["properties"]["form"] == {"type": "object"}


@pytest.mark.parametrize("status", ["failed", "paused", "waiting"])
def test_a_run_without_an_answer_is_an_error_that_says_why(status: Any) -> None:
    end = RunEnded(status, {}, ErrorInfo("E", "no such thing"), WAITING.tokens)
    (ag_ui,) = AgUiEncoder("t", "r", "r1").encode(end)
    assert (ag_ui["type"], ag_ui["message"]) == ("RUN_ERROR", "no such thing")
    ai_sdk = AiSdkEncoder("r1").encode(end)
    assert ai_sdk[0] == {"type": "error", "errorText": "no such thing"}


def test_a_cancelled_run_is_told_as_such() -> None:
    end = RunEnded("cancelled", {}, None, WAITING.tokens)
    assert AgUiEncoder("t", "r", "r1").encode(end)[0]["outcome"] == {"type": "cancelled"}
    assert AiSdkEncoder("r1").encode(end)[-1]["type"] == "abort"


@pytest.mark.parametrize(
    "entry",
    [
        {"interruptId": "r1", "status": "resolved", "payload": {"choice": "yes"}},
        {"interruptId": "r1/ask", "status": "resolved"},
        {"interruptId": "r1/ask", "status": "resolved", "payload": {"choice": 3}},
        {"interruptId": "r1/ask", "status": "resolved", "payload": {"choice": "yes", "comment": [1]}},
    ],
)
def test_an_answer_to_an_interrupt_that_is_none_is_refused(entry: Any) -> None:
    with pytest.raises(InputError, match="an answer to an interrupt is"):
        read_resume_answers([entry])


def test_a_dismissed_interrupt_is_no_answer() -> None:
    assert read_resume_answers([{"interruptId": "r1/ask", "status": "cancelled"}]) == []


ANSWERED = {"type": "dynamic-tool", "toolName": "answer_question", "state": "output-available", "toolCallId": "r1/ask"}


@pytest.mark.parametrize(
    ("part", "choices"),
    [
        ({**ANSWERED, "output": {"choice": "yes"}}, ["yes"]),
        ({**ANSWERED, "type": "tool-answer_question", "toolName": None, "output": "no"}, ["no"]),
        ({**ANSWERED, "state": "input-available"}, []),
        ({**ANSWERED, "toolName": "look"}, []),
        (None, []),
        ("x", []),
    ],
)
def test_answers_are_read_from_the_newest_message(part: Any, choices: list[str]) -> None:
    answer = {"role": "assistant", "parts": [part]}
    assert [each.choice for _, each in read_tool_answers([answer])] == choices
    assert read_tool_answers([answer, {"role": "user", "parts": []}]) == ()


# --- From a model that streams to the parts of a chat


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_answer_is_told_while_a_model_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    is_followed = threading.Event()

    def answer(request: Any) -> str:
        assert is_followed.wait(30)
        return "Bees fly and hum."

    with ModelServer(responder=answer) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        agent = Agent("say", "Write.", model="openai/gpt-test")
        flow = Flow("poet", {"say": agent}, inputs={"message": "string"})
        async with FlowService(MemoryStore(), [flow]) as service:
            chat = await begin_chat(service, "poet", Conversation([{"role": "user", "content": "Bees"}], None), None)
            parts: list[Part] = []
            async for part in follow_parts(service, chat, find_text_output(flow), None):
                is_followed.set()
                parts.append(part)
    kinds = [type(each) for each in parts]
    assert kinds.count(TextDelta) > 1, "a piece at a time"
    assert kinds.index(TextDelta) < kinds.index(StepEnded), "while the node is at work"
    assert answer_of(parts) == ["Bees fly and hum."]
