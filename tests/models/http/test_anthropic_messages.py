"""Anthropic's protocol: the body of a request, and answers read from the recording server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from flowengine.core.file_values import FileValue, binding_files, hash_of
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.anthropic_answers import read_message
from flowengine.models.http.anthropic_messages import ANTHROPIC_MESSAGES
from flowengine.models.http.chat_protocol import StreamedEvent
from flowengine.models.http.native_model import NativeModel
from flowengine.models.http.vendor_traits import traits_of
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import PromptCache, Reply, Request, TokenUsage
from flowengine.models.wrappers.priced import cost_of
from tests.support.model_answers import Completion, Failure, Raw, StreamFailure, Thinking, ToolCall, Truncated
from tests.support.model_server import ModelServer

SCHEMA = {
    "type": "object",
    "properties": {"tea": {"enum": ["green", "black"]}, "cups": {"type": "integer", "minimum": 1}},
    "required": ["tea", "cups"],
}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look somewhere.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
KEY = "sk-ant-api03-Zx81Qq07LmPv55KdTr93"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def model(server: ModelServer, name: str = "claude-haiku-4-5") -> NativeModel:
    return NativeModel(name, "anthropic", settings={"api_key": KEY, "api_base": server.root})


def body(*messages: Message, name: str = "claude-haiku-4-5", stream: bool = False, **more: Any) -> dict[str, Any]:
    request = Request(name, messages, **more)
    return ANTHROPIC_MESSAGES.body(request, traits_of("anthropic", name), stream=stream)


USER = Message("user", "Why?")


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


# --- the chat


def test_system_messages_stand_apart_and_the_bound_is_the_models_longest_answer() -> None:
    made = body(Message("system", "Be brief."), USER, Message("system", "And kind."))
    assert made == {
        "model": "claude-haiku-4-5",
        "max_tokens": 64000,
        "system": [text("Be brief."), text("And kind.")],
        "messages": [{"role": "user", "content": [text("Why?")]}],
    }
    assert body(USER, name="claude-3-haiku-20240307")["max_tokens"] == 4096
    assert body(USER, max_tokens=7)["max_tokens"] == 7


def test_one_sides_messages_in_a_row_are_one_turn_and_parallel_results_go_together() -> None:
    calls = (ToolRequest("a.1", "look", '{"at": "sky"}'), ToolRequest("b", "look", "{broken"))
    made = body(
        USER,
        Message(
            "assistant", "Looking.", calls, vendor_parts=({"type": "thinking", "thinking": "t", "signature": "s"},)
        ),
        Message("tool", "blue", tool_call_id="a.1"),
        Message("tool", "", tool_call_id="b", is_error=True),
        Message("user", "Go on."),
        tools=(LOOK,),
    )
    assert [each["role"] for each in made["messages"]] == ["user", "assistant", "user"]
    _, asked, answered = (each["content"] for each in made["messages"])
    assert asked == [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        text("Looking."),
        {"type": "tool_use", "id": "a_1", "name": "look", "input": {"at": "sky"}},
        {"type": "tool_use", "id": "b", "name": "look", "input": {}},
    ]
    assert answered == [
        {"type": "tool_result", "tool_use_id": "a_1", "content": "blue"},
        {"type": "tool_result", "tool_use_id": "b", "content": "", "is_error": True},
        text("Go on."),
    ]


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ((), [("user", ["."])]),
        ((Message("user", " \n"),), [("user", ["."])]),
        ((Message("assistant", "Hm. "),), [("user", ["."]), ("assistant", ["Hm."])]),
        (
            (USER, Message("assistant", ""), Message("user", "So?")),
            [("user", ["Why?"]), ("assistant", ["."]), ("user", ["So?"])],
        ),
    ],
)
def test_texts_that_the_api_refuses_are_not_sent(messages: tuple[Message, ...], turns: list[Any]) -> None:
    made = body(*messages)["messages"]
    assert [(each["role"], [block["text"] for block in each["content"]]) for each in made] == turns


def test_files_that_are_attached_are_blocks_before_the_text() -> None:
    with binding_files(lambda _: b"\x89PNG"):
        picture = FileValue(hash_of(b"\x89PNG"), "image/png", "x.png", 4)
        made = body(Message("user", "What is it?", attachments=(picture,)), USER)
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert made["messages"][0]["content"] == [{"type": "image", "source": source}, text("What is it?"), text("Why?")]


# --- tools and schemas


def test_tools_have_the_apis_form_and_their_choice_its_words() -> None:
    made = body(USER, tools=(LOOK,), extra={"tool_choice": "required", "parallel_tool_calls": False})
    schema = {"type": "object", "properties": {"at": {"type": "string"}}, "additionalProperties": False}
    tool = {"name": "look", "description": "Look somewhere.", "input_schema": schema, "strict": True}
    assert made["tools"] == [tool]
    assert made["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    named = {"type": "function", "function": {"name": "look"}}
    assert body(USER, tools=(LOOK,), extra={"tool_choice": named})["tool_choice"] == {"type": "tool", "name": "look"}


def tool_of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, **more}
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


ROWS = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
OPTIONAL = {f"p{number}": {"type": ["integer", "null"]} for number in range(9)}


@pytest.mark.parametrize(
    ("tools", "strict"),
    [
        ([tool_of({"a": {"type": "array", "items": {"type": "string"}}, "b": {"enum": [1], "type": "integer"}})], "y"),
        ([tool_of({"a": {"type": "integer", "minimum": 1, "default": 2}}, required=["a"])], "y"),
        ([tool_of({"a": ROWS})], "n"),
        ([tool_of({})], "n"),
        ([tool_of({"a": {}})], "n"),
        ([tool_of({"a": {"type": "integer"}}, additionalProperties=True)], "n"),
        ([tool_of({"a": {"$ref": "#/$defs/A"}}, **{"$defs": {"A": {"type": "string"}}})], "n"),
        ([tool_of({"a": {"type": "integer"}})] * 22, "y" * 20 + "nn"),
        ([tool_of(OPTIONAL), tool_of(OPTIONAL), tool_of({"a": {"type": "integer"}})], "yny"),
    ],
)
def test_tools_are_strict_as_far_as_the_apis_grammar_goes(tools: list[dict[str, Any]], strict: str) -> None:
    made = body(USER, tools=tuple(tools))["tools"]
    assert "".join("y" if each.get("strict") else "n" for each in made) == strict
    assert all(("additionalProperties" in each["input_schema"]) >= each.get("strict", False) for each in made)
    elsewhere = traits_of("anthropic", "claude-haiku-4-5", is_elsewhere=True)
    older = traits_of("anthropic", "claude-sonnet-4-0")
    for traits in (elsewhere, older):
        request = Request("m", (USER,), tools=tuple(tools))
        assert not any("strict" in each for each in ANTHROPIC_MESSAGES.body(request, traits, stream=False)["tools"])


def test_all_marks_of_a_prompt_keep_it_as_long_as_its_author_asks_for() -> None:
    system, question = Message("system", "x" * 9000), Message("user", "y" * 9000 + "Why?", stable=9000)
    for given in ({}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}):
        made = body(system, question, cache=PromptCache("k"), extra=given)
        marked = [made["system"][-1], made["messages"][0]["content"][0]]
        mark = given.get("cache_control", {"type": "ephemeral"})
        assert [each["cache_control"] for each in marked] == [mark] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_cache_keeps_for_an_hour_costs_twice_as_much_as_the_prompt(stream: bool) -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 0,
        "cache_creation_input_tokens": 1000,
        "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600},
    }
    whole = {"content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn", "model": "m", "usage": usage}
    answer = read_message(whole)
    if stream:
        collector = ANTHROPIC_MESSAGES.collector(traits_of("anthropic", "claude-haiku-4-5"))
        for event in (
            {"type": "message_start", "message": {"model": "m", "usage": usage}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 0}},
        ):
            collector.add(StreamedEvent(json.dumps(event)))
        answer = collector.answer()
    cost = cost_of("anthropic", "claude-haiku-4-5", answer.reply.usage, hour_writes=answer.hour_writes)
    assert cost == pytest.approx((100 + 400 * 1.25 + 600 * 2) * 1e-6)


def test_a_chat_with_calls_names_its_tools_where_none_may_be_called_any_more() -> None:
    call = ToolRequest("1", "look", "{}")
    made = body(USER, Message("assistant", "", (call,)), Message("tool", "x", tool_call_id="1"))
    assert (made["tools"], made["tool_choice"]) == (
        [{"name": "look", "input_schema": {"type": "object"}}],
        {"type": "none"},
    )


def test_a_schema_is_the_answers_format_where_the_model_has_that() -> None:
    format = body(USER, response_schema=SCHEMA)["output_config"]["format"]
    assert format["schema"]["additionalProperties"] is False
    assert format["schema"]["properties"]["cups"] == {"type": "integer", "description": "minimum: 1"}
    assert body(USER, tools=(LOOK,), response_schema=SCHEMA)["output_config"]["format"] == format


def test_elsewhere_a_schema_is_a_tool_that_has_to_be_called_unless_the_model_thinks() -> None:
    older = "claude-sonnet-4-20250514"
    made = body(USER, name=older, response_schema=SCHEMA)
    assert (made["tools"][0]["input_schema"], made["tool_choice"]["type"]) == (SCHEMA, "tool")
    thinking = {"thinking": {"budget_tokens": 2000}}
    assert body(USER, name=older, response_schema=SCHEMA, extra=thinking)["tool_choice"] == {"type": "auto"}
    still = {"reasoning_effort": "none"}
    assert body(USER, name="claude-sonnet-5", tools=(LOOK,), extra={"tool_choice": "required", **still})[
        "tool_choice"
    ] == {"type": "any"}
    assert "tool_choice" not in body(USER, name=older, response_schema=SCHEMA, tools=(LOOK,))
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    assert body(USER, response_schema=free)["tools"][0]["input_schema"] == free


# --- options


def test_options_have_the_apis_names_and_those_that_it_refuses_are_not_sent() -> None:
    extra = {"stop": "END", "top_p": 0.5, "seed": 7, "service_tier": "auto", "presence_penalty": 1.0}
    made = body(USER, temperature=0.2, extra=extra)
    assert (made["stop_sequences"], made["top_p"], made["service_tier"], made["temperature"]) == (
        ["END"],
        0.5,
        "auto",
        0.2,
    )
    assert not {"seed", "stop", "presence_penalty"} & made.keys()
    assert "temperature" not in body(USER, name="claude-opus-4-7", temperature=0.2)


@pytest.mark.parametrize(
    ("name", "extra", "sent"),
    [
        (
            "claude-haiku-4-5",
            {"thinking": {"budget_tokens": 2000}},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        ),
        ("claude-haiku-4-5", {"reasoning_effort": "high"}, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("claude-opus-4-5", {"reasoning_effort": "low"}, {"output_config": {"effort": "low"}}),
        (
            "claude-opus-4-7",
            {"reasoning_effort": "minimal"},
            {"output_config": {"effort": "low"}, "thinking": {"type": "adaptive"}},
        ),
        (
            "claude-opus-4-7",
            {"thinking": {"budget_tokens": 5000}},
            {"output_config": {"effort": "medium"}, "thinking": {"type": "adaptive"}},
        ),
        ("claude-haiku-4-5", {"reasoning_effort": "none"}, {}),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(name: str, extra: dict[str, Any], sent: dict[str, Any]) -> None:
    made = body(USER, name=name, extra=extra, temperature=0.3)
    assert {each: made[each] for each in ("thinking", "output_config") if each in made} == sent
    assert ("temperature" in made) == ("thinking" not in sent)


def test_a_bound_leaves_room_for_what_is_thought() -> None:
    made = body(USER, name="claude-3-haiku-20240307", extra={"thinking": {"budget_tokens": 10_000}})
    assert made["max_tokens"] > 10_000


# --- answers


async def ask(asked: NativeModel, request: Request, *, stream: bool) -> tuple[str, Reply]:
    if not stream:
        reply = await asked.complete(request)
        return reply.content, reply
    async with asked.stream(request) as pieces:
        got = [each async for each in pieces]
    *said, last = got
    assert isinstance(last, Reply)
    return "".join(each for each in said if isinstance(each, str)), last


@pytest.mark.parametrize("stream", [False, True])
async def test_text_tools_thinking_and_tokens_are_read(server: ModelServer, stream: bool) -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 30,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    calls = (ToolCall("look", {"at": "空"}, "toolu_1"), ToolCall("look", {}, "toolu_2"))
    thinking = (Thinking("Look — up.", "c2ln"), Thinking(redacted="eA=="))
    server.respond_with([Completion("Schön: 空", calls, thinking=thinking, usage=usage)])
    said, reply = await ask(model(server), Request("claude-haiku-4-5", (USER,), tools=(LOOK,)), stream=stream)
    assert (said, reply.content, reply.finish_reason) == ("Schön: 空", "Schön: 空", "tool_calls")
    assert reply.tool_calls == (ToolRequest("toolu_1", "look", '{"at": "空"}'), ToolRequest("toolu_2", "look", "{}"))
    assert reply.vendor_parts == (
        {"type": "thinking", "thinking": "Look — up.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eA=="},
    )
    read = TokenUsage(240, 9, 200, 30, 4)
    assert reply.usage == (read if not stream else read._replace(reasoning_tokens=reply.usage.reasoning_tokens))
    assert (reply.model, reply.provider) == ("claude-haiku-4-5", "anthropic")
    assert reply.cost_usd == pytest.approx((10 * 1.0 + 200 * 0.1 + 30 * 1.25 + 9 * 5.0) / 1e6)
    (received,) = server.requests
    assert received.path == "/v1/messages"
    assert (received.headers["x-api-key"], received.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in received.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-sonnet-4-20250514"])
async def test_an_answer_of_a_schema_is_its_json_however_it_was_asked_for(
    server: ModelServer, name: str, stream: bool
) -> None:
    server.respond_with(['{"tea": "grün", "cups": 2}'.replace("grün", "green")])
    said, reply = await ask(model(server, name), Request(name, (USER,), response_schema=SCHEMA), stream=stream)
    assert (said, reply.content) == (reply.content, '{"tea": "green", "cups": 2}')
    assert (reply.tool_calls, reply.finish_reason) == ((), "stop")


async def test_a_value_that_is_no_object_is_put_into_one_and_taken_out(server: ModelServer) -> None:
    server.respond_with(['{"value": ["a", "b"]}'])
    request = Request("claude-haiku-4-5", (USER,), response_schema={"type": "array", "items": {"type": "string"}})
    assert (await model(server).complete(request)).content == '["a", "b"]'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("new_word", "new_word")],
)
async def test_why_an_answer_ends_is_read(server: ModelServer, stop_reason: str, reason: str, stream: bool) -> None:
    server.respond_with([Completion("So.", finish_reason=stop_reason)])
    assert (await ask(model(server), Request("m", (USER,)), stream=stream))[1].finish_reason == reason


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_was_paused_is_no_success(server: ModelServer, stream: bool) -> None:
    server.respond_with([Completion("Half of", finish_reason="pause_turn")])
    with pytest.raises(PermanentModelError, match=r"broke its answer off \(pause_turn\)") as caught:
        await ask(model(server), Request("m", (USER,)), stream=stream)
    assert caught.value.reply is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_with_nothing_said_is_an_error_with_its_tokens(server: ModelServer, stream: bool) -> None:
    server.respond_with([Completion("", finish_reason="refusal")])
    with pytest.raises(PermanentModelError, match="refused to answer") as caught:
        await ask(model(server), Request("m", (USER,)), stream=stream)
    assert caught.value.reply is not None
    assert caught.value.reply.usage.prompt_tokens


# --- failures


FAILURES: list[tuple[Any, type[ModelError], str]] = [
    (Failure(401, "invalid x-api-key"), PermanentModelError, "invalid x-api-key"),
    (Failure(400, "max_tokens: too large"), PermanentModelError, "max_tokens: too large"),
    (Failure(429, "slow down", retry_after=7), TransientModelError, "slow down"),
    (Failure(500, "oops"), TransientModelError, "oops"),
    (Failure(529, "Overloaded"), TransientModelError, "Overloaded"),
    (Raw(b'{"content": ['), TransientModelError, "cannot be read"),
    (Raw(b'{"type": "message"}'), TransientModelError, "empty"),
    (Raw(b'{"type": "error", "error": {"type": "overloaded_error", "message": "full"}}'), TransientModelError, "full"),
    (Truncated(), TransientModelError, "broke off"),
]


@pytest.mark.parametrize(("answer", "kind", "told"), FAILURES)
async def test_failures_are_told_with_the_servers_words_and_without_the_key(
    server: ModelServer, answer: Any, kind: type[ModelError], told: str
) -> None:
    server.respond_with([answer])
    with pytest.raises(kind, match=told) as caught:
        await model(server).complete(Request("m", (USER,)))
    assert KEY not in str(caught.value)
    if isinstance(caught.value, TransientModelError):
        assert (caught.value.retry_after == 7) == (told == "slow down")


@pytest.mark.parametrize(
    ("answer", "told"), [(StreamFailure(), "Overloaded"), (Truncated("one two three four"), "broke off")]
)
async def test_a_stream_that_fails_in_the_middle_may_be_tried_again(
    server: ModelServer, answer: Any, told: str
) -> None:
    server.respond_with([answer])
    with pytest.raises(TransientModelError, match=told), anyio.fail_after(60):
        await ask(model(server), Request("m", (USER,)), stream=True)


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/proxy/", "/proxy/v1/messages"),
        ("/v1/messages", "/v1/messages"),
    ],
)
async def test_an_address_may_or_may_not_have_the_apis_path(server: ModelServer, address: str, path: str) -> None:
    asked = NativeModel("m", "anthropic", settings={"api_key": KEY, "api_base": server.root + address})
    await asked.complete(Request("m", (USER,)))
    assert server.requests[0].path == path


async def test_a_stream_that_is_left_leaves_nothing_behind_and_one_that_ended_its_connection(
    server: ModelServer,
) -> None:
    server.respond_with(["one", "two", Completion("a long answer, " * 50, piece_delay=0.01)])
    for _ in range(2):
        await ask(model(server), Request("m", (USER,)), stream=True)
    assert [each.connection for each in server.requests] == [1, 1]
    async with model(server).stream(Request("m", (USER,))) as pieces:
        assert await anext(pieces)


def test_arguments_that_are_nested_too_deep_are_sent_as_none() -> None:
    deep = ToolRequest("a", "look", "[" * 100_000)
    made = body(USER, Message("assistant", "", (deep,)), Message("tool", "no", tool_call_id="a"))
    assert made["messages"][1]["content"] == [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]


@pytest.mark.parametrize("kind", [["text"], {}, None, 1])
def test_a_block_whose_type_is_no_text_is_left_out(kind: Any) -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    reply = read_message({"content": [{"type": kind, "text": "?"}, call], "stop_reason": "tool_use"}).reply
    assert (reply.content, reply.tool_calls, reply.vendor_parts) == ("", (ToolRequest("a", "f", "{}"),), ())
