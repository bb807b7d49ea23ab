"""How a flow is called by chat, decided from its declaration; and how a person's words answer a question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Flow, FunctionNode
from flowengine.errors import DefinitionError
from flowengine.nodes.run_inputs import InputField
from flowengine.runs import Question
from flowengine.web.openai.openai_bodies import OpenAiError, read_chat_call, read_responses_call
from flowengine.web.service.chat_shape import TextOutput, find_message_input, find_text_output, to_text
from flowengine.web.service.question_texts import PersonsAnswer, format_questions, read_answer

FLOWS = Path(__file__).parents[3] / "flows"
TEXT, OPTIONAL = InputField("string"), InputField("string", default="")


def taking(inputs: dict[str, InputField] | None) -> Flow:
    return Flow("f", {"say": FunctionNode(lambda context: "hello")}, inputs=inputs)


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (None, ("message", None)),
        ({"topic": TEXT}, ("topic", None)),
        ({"topic": TEXT, "tone": OPTIONAL}, ("topic", None)),
        ({"topic": TEXT, "message": TEXT}, ("message", None)),
        ({"message": OPTIONAL, "tone": OPTIONAL}, ("message", None)),
        ({"message": OPTIONAL, "number": InputField("integer")}, ("message", None)),
        ({"tone": InputField("string", enum=["dry"]), "topic": OPTIONAL}, ("topic", None)),
        ({"messages": InputField("array")}, (None, "messages")),
        ({"messages": InputField("array"), "question": TEXT}, ("question", "messages")),
        ({"text": InputField(schema={"type": "string", "maxLength": 9})}, ("text", None)),
    ],
)
def test_the_message_goes_to_one_input(inputs: Any, found: tuple[str | None, str | None]) -> None:
    assert find_message_input(taking(inputs)) == found


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"n": InputField("integer")},
        {"a": TEXT, "b": TEXT},
        {"a": OPTIONAL, "b": OPTIONAL},
        {"message": TEXT, "question": TEXT},
        {"messages": TEXT, "other": TEXT},
        {"messages": InputField("array"), "a": TEXT, "b": TEXT},
    ],
)
def test_where_it_is_open_which_input_is_meant_the_flow_is_refused(inputs: Any) -> None:
    with pytest.raises(DefinitionError, match="which input gets the message is open"):
        find_message_input(taking(inputs))


@pytest.mark.parametrize(
    ("file", "message", "text"),
    [
        ("support_triage", "message", TextOutput("reply", "reply")),
        ("hello", "name", TextOutput("greeting", "greet")),
        ("parallel_research", "question", TextOutput("report", "write")),
        ("content_route", "topic", TextOutput("text", None)),
        ("multilingual_triage", "message", TextOutput("reply", None)),
    ],
)
def test_the_samples_are_called_by_chat(file: str, message: str, text: TextOutput) -> None:
    flow = Flow.from_yaml(FLOWS / f"{file}.yaml", model="offline")
    assert (find_message_input(flow), find_text_output(flow)) == ((message, None), text)


def test_where_it_is_open_which_output_is_the_text_the_flow_is_refused() -> None:
    flow = Flow(
        "f",
        {"say": FunctionNode(lambda context: "hello")},
        inputs={"message": "string"},
        outputs={"reply": lambda context: 1, "answer": lambda context: 2},
    )
    with pytest.raises(DefinitionError, match="its outputs are reply, answer; name one of them `reply`"):
        find_text_output(flow)


def test_an_output_that_is_no_text_is_told_as_json() -> None:
    assert to_text({"a": [1, None]}) == '{"a": [1, null]}'


# --- Answers


def question(node: str = "ask", form: Any = None, choices: tuple[str, ...] = ("approve", "reject it")) -> Question:
    return Question("r1", "f", node, "Ship it?", choices, form, 0.0, None, None, {})


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("approve", PersonsAnswer("ask", "approve")),
        ("  Approve \n", PersonsAnswer("ask", "approve")),
        ("approve, but tell ops", PersonsAnswer("ask", "approve", "but tell ops")),
        ("reject it: too early", PersonsAnswer("ask", "reject it", "too early")),
        ("Reject it — too early", PersonsAnswer("ask", "reject it", "too early")),
        ("approve.", PersonsAnswer("ask", "approve")),
        ("approve\nfor now", PersonsAnswer("ask", "approve", "for now")),
        ('{"choice": "approve", "comment": "fine"}', PersonsAnswer("ask", "approve", "fine")),
        ("approve nothing", None),
        ("do not approve", None),
        ("yes", None),
        ("", None),
        ('{"choice": 1}', None),
        ('{"choice": "approve"', None),
        ("{" * 50_000, None),
        (f"approve{' ' * 50_000}x", None),
        ("," * 100_000, None),
        (f"approve, {'why, ' * 5_000}", PersonsAnswer("ask", "approve", ("why, " * 5_000).strip())),
    ],
)
def test_an_answer_counts_only_where_the_choice_is_clear(message: str, answer: PersonsAnswer | None) -> None:
    assert read_answer([question()], message) == answer


def test_with_several_questions_the_one_that_is_meant_is_named() -> None:
    asked = [question("legal"), question("sales")]
    assert read_answer(asked, "approve") is None
    assert read_answer(asked, "sales: approve") == PersonsAnswer("sales", "approve")
    assert read_answer(asked, '{"question": "legal", "choice": "approve"}') == PersonsAnswer("legal", "approve")
    assert "`sales: approve`" in format_questions("r1", asked)


def test_a_form_is_a_json_object() -> None:
    asked = [question(form={"type": "object", "properties": {"ticket": {"type": "string"}}})]
    given = read_answer(asked, '{"choice": "approve", "form": {"ticket": "T-1"}}')
    assert given == PersonsAnswer("ask", "approve", "", {"ticket": "T-1"})
    told = format_questions("r1", asked)
    assert "ticket" in told
    assert '{"choice": "approve", "form": {}}' in told


# --- Bodies

HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "`messages` is a list"),
        ({"messages": HI}, "`model` is the name of a flow"),
        ({"messages": [], "model": "f"}, "`messages` is a list"),
        ({"messages": "Hi", "model": "f"}, "`messages` is a list"),
        ({"messages": [None], "model": "f"}, "messages\\[0\\]: a message has the role"),
        ({"messages": [{"role": "tool", "content": "x"}], "model": "f"}, "a message has the role"),
        ({"messages": [{"role": "assistant", "content": "x"}], "model": "f"}, "the last message is a user's"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "model": "f"},
            "is its content \\(data:TYPE;base64,…\\) or an address",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}], "model": "f"},
            "is text, and no 'input_audio'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}]}], "model": "f"},
            "and no id of one",
        ),
        ({"messages": HI, "model": "f", "background": True}, "ask /v1/responses"),
        (
            {"messages": [{"role": "user", "content": None}], "model": "f"},
            "messages\\[0\\].content is a text, or a list",
        ),
        ({"messages": [{"role": "user"}], "model": "f"}, "messages\\[0\\].content is a text, or a list"),
        ({"messages": [{"role": "user", "content": []}], "model": "f"}, "messages\\[0\\].content is a text, or a list"),
        ({"messages": [{"role": "system"}, *HI], "model": "f"}, "messages\\[0\\].content is a text, or a list"),
        ({"messages": HI, "model": "f", "stream": "yes"}, "`stream` is true or false"),
        ({"messages": HI, "model": "f", "progress": 1}, "`progress` is true or false"),
        ({"messages": HI, "model": "f", "stream_options": []}, "`stream_options` is an object"),
        ({"messages": HI, "model": "f", "stream_options": {"include_usage": "no"}}, "`include_usage` is true or false"),
        ({"messages": HI, "model": "f", "n": 2}, "`n` is 1"),
        ({"messages": HI, "model": "f", "tools": [{}]}, "leave `tools` out"),
        ({"messages": HI, "model": "f", "logprobs": True}, "leave `logprobs` out"),
        ({"messages": HI, "model": "f", "modalities": ["audio"], "audio": {"voice": "a"}}, "leave `audio` out"),
        ({"messages": HI, "model": "f", "inputs": []}, "`inputs` is an object"),
        ({"messages": HI, "model": "f", "metadata": {"session": " "}}, "named by 1 to 150 characters"),
        ({"messages": HI, "model": "f", "metadata": {"session": 5}}, "`metadata` is an object of texts"),
        ({"messages": HI * 2_001, "model": "f"}, "at most 2,000"),
    ],
)
def test_what_a_flow_cannot_be_asked_is_refused(body: dict[str, Any], told: str) -> None:
    with pytest.raises(OpenAiError, match=told) as refused:
        read_chat_call(body)
    assert refused.value.status == 400


def test_an_assistant_that_only_called_tools_or_refused_has_said_nothing() -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    refused = {"role": "assistant", "refusal": "No."}
    call = read_chat_call({"messages": [*HI, called, refused, *HI], "model": "f"})
    assert [each["content"] for each in call.messages] == ["Hi", "", "", "Hi"]


def test_settings_of_a_model_change_nothing() -> None:
    call = read_chat_call({"messages": HI, "model": "f", "temperature": 2, "max_tokens": None, "n": None, "tools": []})
    assert (call.message, call.stream, call.session) == ("Hi", False, None)


def test_parts_of_a_message_are_joined() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert read_chat_call({"messages": [{"role": "user", "content": parts}], "model": "f"}).message == "Hello"


@pytest.mark.parametrize(
    ("body", "session", "previous"),
    [
        ({"input": "Hi"}, None, None),
        ({"input": HI, "conversation": "c1"}, "c1", None),
        ({"input": HI, "conversation": {"id": "c1"}}, "c1", None),
        ({"input": HI, "previous_response_id": "resp_1"}, None, "resp_1"),
        ({"input": "Hi", "metadata": {"session": "s"}}, "s", None),
    ],
)
def test_a_response_belongs_to_a_conversation(body: dict[str, Any], session: str | None, previous: str | None) -> None:
    call = read_responses_call({"model": "f", **body})
    assert (call.session, call.previous, call.message) == (session, previous, "Hi")


def test_instructions_are_a_system_message() -> None:
    call = read_responses_call({"model": "f", "input": HI, "instructions": "Be brief."})
    assert call.messages == [{"role": "system", "content": "Be brief."}, *HI]
    assert call.history == []


@pytest.mark.parametrize("body", [{"input": []}, {"input": 3}, {"input": "x", "background": True, "store": False},
                                  {"input": "x", "previous_response_id": "r", "conversation": "c"},
                                  {"input": "x", "store": "no"}, {"input": "x", "reasoning": "a"},
                                  {"input": "x", "instructions": ["y"]}, {"input": "x", "tools": [{}]},
                                  {"input": [{"role": "user", "content": None}]},
                                  {"input": [{"type": "function_call_output"}]}])  # fmt: skip
def test_a_response_that_cannot_be_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(OpenAiError):
        read_responses_call({"model": "f", **body})
