"""OpenAI's Responses API: when it is asked, the body of a request, and answers read from the recording server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import run_sync
from flowengine.agents.tools.function_tool import tool
from flowengine.core.file_values import FileValue, binding_files, hash_of
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.native_model import NativeModel
from flowengine.models.http.openai_chat import OPENAI_CHAT
from flowengine.models.http.openai_responses import OPENAI_RESPONSES
from flowengine.models.http.responses_answers import read_response
from flowengine.models.http.vendor_traits import traits_of
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import PromptCache, Reply, Request, TokenUsage
from tests.support.model_answers import Completion, Failure, Raw, StreamFailure, Thinking, ToolCall, Truncated
from tests.support.model_server import ModelServer

QUESTION = (Message("system", "Be brief."), Message("user", "hi"))
LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}
SCHEMA = {"type": "object", "properties": {"tea": {"enum": ["green", "black"]}}, "required": ["tea"]}
KEY = "sk-secret-0123456789"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def model(server: ModelServer, name: str = "gpt-5.5", provider: str = "openai", **more: Any) -> NativeModel:
    base = server.root if provider == "azure" else server.url
    return NativeModel(name, provider, settings={"api_base": base, "api_key": KEY}, **more)


def asking(**more: Any) -> Request:
    return Request("gpt-5.5", QUESTION, **{"timeout": 10.0, "tools": (LOOK,), **more})


def body(*messages: Message, name: str = "gpt-5.5", **more: Any) -> dict[str, Any]:
    return OPENAI_RESPONSES.body(Request(name, messages, **more), traits_of("openai", name), stream=False)


async def ask(asked: NativeModel, request: Request, *, stream: bool) -> tuple[str, Reply]:
    """(what was streamed, the reply)"""
    if not stream:
        reply = await asked.complete(request)
        return reply.content, reply
    shown, found = "", Reply("")
    async with asked.stream(request) as pieces:
        async for piece in pieces:
            if isinstance(piece, str):
                shown += piece
            else:
                found = piece
    return shown, found


# --- when it is asked


@pytest.mark.parametrize(
    ("provider", "name", "request_", "is_asked"),
    [
        ("openai", "gpt-4o", asking(), False),
        ("openai", "gpt-5", asking(extra={"reasoning_effort": "high"}), False),
        ("openai", "gpt-5.4", asking(), False),
        ("openai", "gpt-5.4", asking(extra={"reasoning_effort": "low"}), True),
        ("openai", "gpt-5.5", asking(), True),
        ("openai", "gpt-5.5", asking(extra={"reasoning_effort": "none"}), False),
        ("openai", "gpt-5.5", asking(tools=()), False),
        ("openai", "gpt-6-astra", asking(), True),
        ("openai", "gpt-6-astra", asking(tools=(), extra={"reasoning_effort": "max"}), True),
        ("openai", "gpt-9-astra", asking(), True),
        ("openai", "gpt-5-pro", asking(tools=()), True),
        ("openai", "o3-pro", asking(tools=()), True),
        ("openai", "gpt-5.3-codex", asking(tools=()), True),
        ("openai", "gpt-5", asking(tools=(), extra={"reasoning": {"summary": "auto"}}), True),
        ("azure", "gpt-5.5", asking(), True),
        ("azure", "prod", asking(), False),
        ("hosted_vllm", "gpt-oss", asking(), False),
    ],
)
async def test_it_is_asked_where_a_model_needs_it(
    server: ModelServer, provider: str, name: str, request_: Request, is_asked: bool
) -> None:
    reply = await model(server, name, provider).complete(request_)
    assert reply.content == "Answer to: hi"
    (sent,) = server.requests
    paths = {
        ("azure", True): "/openai/v1/responses",
        ("azure", False): f"/openai/deployments/{name}/chat/completions?api-version=2024-10-21",
    }
    usual = "/v1/responses" if is_asked else "/v1/chat/completions"
    assert sent.path == paths.get((provider, is_asked), usual)
    assert sent.headers.get("api-key" if provider == "azure" else "authorization", "").endswith(KEY)


async def test_a_chat_with_calls_goes_on_there_where_no_tool_may_be_called_any_more(server: ModelServer) -> None:
    call = Message("assistant", "", (ToolRequest("c1", "look", "{}"),))
    await model(server).complete(
        Request("gpt-5.5", (*QUESTION, call, Message("tool", "nothing", tool_call_id="c1")), timeout=10)
    )
    assert server.requests[0].path == "/v1/responses"


async def test_a_project_says_which_interface_a_model_has(server: ModelServer) -> None:
    await model(server, "mine", "hosted_vllm", overrides={"api": "responses"}).complete(asking())
    await model(server, "gpt-5-pro", overrides={"api": "chat"}).complete(asking(tools=()))
    await model(server, "prod", "azure", overrides={"same_as": "openai/gpt-5.5"}).complete(asking())
    assert [each.path for each in server.requests] == [
        "/v1/responses",
        "/v1/chat/completions",
        "/openai/v1/responses",
    ]


async def test_a_model_that_knows_no_streams_is_asked_for_the_whole(server: ModelServer) -> None:
    assert (await ask(model(server, "gpt-5-pro"), asking(tools=()), stream=True))[0] == "Answer to: hi"
    assert "stream" not in server.requests[0].body


# --- what is sent


def test_nothing_is_kept_there_and_the_first_system_messages_are_instructions() -> None:
    found = body(*QUESTION, Message("system", "Now in rhyme."), max_tokens=100)
    assert found == {
        "model": "gpt-5.5",
        "store": False,
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "hi"}, {"role": "developer", "content": "Now in rhyme."}],
        "max_output_tokens": 100,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    ("name", "request_", "sent"),
    [
        ("gpt-5.5", {"temperature": 0.7}, {}),
        (
            "gpt-5.5",
            {"temperature": 0.7, "extra": {"reasoning_effort": "none", "top_p": 0.5}},
            {"temperature": 0.7, "top_p": 0.5, "reasoning": {"effort": "none"}},
        ),
        ("gpt-5.5", {"extra": {"reasoning_effort": "high"}}, {"reasoning": {"effort": "high"}}),
        (
            "gpt-5.5",
            {"extra": {"reasoning_effort": "low", "reasoning": {"summary": "auto"}}},
            {"reasoning": {"summary": "auto", "effort": "low"}},
        ),
        (
            "gpt-5.5",
            {"extra": {"verbosity": "low", "service_tier": "flex"}},
            {"text": {"verbosity": "low"}, "service_tier": "flex"},
        ),
        ("gpt-5.5", {"extra": {"parallel_tool_calls": False}}, {}),
        (
            "gpt-5.5",
            {"extra": {"verbosity": "low"}, "response_schema": {"type": "object"}, "response_name": "tea"},
            {
                "text": {
                    "verbosity": "low",
                    "format": {"type": "json_schema", "name": "tea", "schema": {"type": "object"}},
                }
            },
        ),
    ],
)
def test_options_have_the_apis_form(name: str, request_: dict[str, Any], sent: dict[str, Any]) -> None:
    found = body(*QUESTION, name=name, **request_)
    usual = body(*QUESTION, name=name)
    assert {key: value for key, value in found.items() if key not in usual or usual[key] != value} == sent


def test_thoughts_are_not_asked_for_of_a_model_that_has_none() -> None:
    assert "include" not in body(*QUESTION, name="gpt-4.1")


def test_functions_have_the_apis_form_and_are_strict_only_where_that_changes_nothing() -> None:
    closed = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    strict = {"type": "function", "function": {"name": "go", "description": "Go.", "parameters": closed}}
    found = body(
        *QUESTION, tools=(LOOK, strict), extra={"tool_choice": {"type": "function", "function": {"name": "go"}}}
    )
    assert found["tools"] == [
        {"type": "function", "strict": False, **LOOK["function"]},
        {
            "type": "function",
            "strict": True,
            "name": "go",
            "description": "Go.",
            "parameters": {**closed, "additionalProperties": False},
        },
    ]
    assert found["tool_choice"] == {"type": "function", "name": "go"}


def test_files_that_are_attached_are_parts_before_the_text() -> None:
    files = {"image/png": b"\x89PNG", "application/pdf": b"%PDF", "text/plain": b"words"}
    values = [FileValue(hash_of(data), kind, "a.pdf", len(data)) for kind, data in files.items()]
    with binding_files({each.blob: data for each, data in zip(values, files.values(), strict=True)}.__getitem__):
        (item,) = body(Message("user", "Look.", attachments=tuple(values)))["input"]
        sound = FileValue(values[0].blob, "audio/wav", "a.wav", 4)
        with pytest.raises(PermanentModelError, match="takes no audio/wav"):
            body(Message("user", "Listen.", attachments=(sound,)))
    assert [each["type"] for each in item["content"]] == ["input_image", "input_file", "input_text", "input_text"]
    assert item["content"][0]["image_url"] == "data:image/png;base64,iVBORw=="
    assert item["content"][1] == {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": "data:application/pdf;base64,JVBERg==",
    }
    assert item["content"][-1]["text"] == "Look."


@pytest.mark.parametrize(
    ("name", "cache", "is_elsewhere", "sent"),
    [
        ("gpt-5.6-sol", PromptCache("k"), False, {"prompt_cache_key": "k"}),
        ("gpt-5.6-sol", PromptCache("k", is_asked_again=False), False, {"prompt_cache_options": {"mode": "explicit"}}),
        ("gpt-5.6-sol", PromptCache.of("off", "k"), False, {"prompt_cache_options": {"mode": "explicit"}}),
        ("gpt-5.6-sol", PromptCache("k", True, False), False, {"prompt_cache_key": "k"}),
        ("gpt-5.6-sol", PromptCache.of("off", "k"), True, {}),
        ("gpt-5.5", PromptCache("k", is_asked_again=False), False, {"prompt_cache_key": "k"}),
        ("gpt-5.5", PromptCache.of("off", "k"), False, {}),
        ("gpt-5.6-sol", None, False, {}),
    ],
)
def test_a_prompt_is_not_written_to_a_cache_that_costs_where_it_is_asked_once(
    name: str, cache: PromptCache | None, is_elsewhere: bool, sent: dict[str, Any]
) -> None:
    traits = traits_of("openai", name, is_elsewhere=is_elsewhere)
    for protocol in (OPENAI_RESPONSES, OPENAI_CHAT):
        found = protocol.body(Request(name, QUESTION, cache=cache), traits, stream=False)
        assert {key: value for key, value in found.items() if "cache" in key} == sent


# --- what comes back


@pytest.mark.parametrize("stream", [False, True])
async def test_text_tools_thoughts_and_tokens_are_read(server: ModelServer, stream: bool) -> None:
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 200},
        "output_tokens": 100,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 1100,
    }
    calls = (ToolCall("look", {"at": "a"}, "call_a"), ToolCall("look", {"at": "b"}, "call_b"))
    server.respond_with([Completion("I look.", calls, usage=usage, thinking=(Thinking(signature="gAAA"),))])
    shown, reply = await ask(model(server), asking(), stream=stream)
    assert (shown, reply.content, reply.finish_reason) == ("I look.", "I look.", "tool_calls")
    assert reply.tool_calls == (
        ToolRequest("call_a", "look", '{"at": "a"}'),
        ToolRequest("call_b", "look", '{"at": "b"}'),
    )
    assert reply.usage == TokenUsage(1000, 100, 600, 200, 40)
    assert (reply.model, reply.provider) == ("gpt-5.5", "openai")
    assert reply.vendor_parts == (
        {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "gAAA", "vendor": "openai"},
    )


async def test_thoughts_go_back_encrypted_from_round_to_round_before_what_they_led_to(server: ModelServer) -> None:
    @tool
    def look(at: str) -> str:
        """Look somewhere."""
        if at == "nowhere":
            raise ValueError("there is no such place")
        return f"{at}: all quiet"

    calls = (ToolCall("look", {"at": "a"}, "call_a"), ToolCall("look", {"at": "nowhere"}, "call_b"))
    server.respond_with(
        [
            Completion(None, calls, thinking=(Thinking(signature="one"),)),
            Completion("once more", (ToolCall("look", {"at": "c"}, "call_c"),), thinking=(Thinking(signature="two"),)),
            "All is quiet.",
        ]
    )
    agent = Agent("watch", "Look round.", model=model(server), tools=[look], max_retries=0)
    context = await agent.run_async("All of it.")
    assert context.result.content == "All is quiet."
    items = [each for each in server.requests[-1].body["input"] if each.get("role") != "user"]
    assert [each.get("encrypted_content") or each.get("call_id") or each["content"] for each in items] == [
        *("one", "call_a", "call_b", "call_a", "call_b"),
        *("two", "once more", "call_c", "call_c"),
    ]
    outputs = [each["output"] for each in items if each.get("type") == "function_call_output"]
    assert outputs[0] == "a: all quiet"
    assert "no such place" in outputs[1]
    assert all(each.body["store"] is False for each in server.requests)


def test_a_thought_goes_only_to_the_vendor_that_can_read_it() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    said = {
        vendor: Message(
            "assistant", "so", (ToolRequest("c", "look", ""),), vendor_parts=({**thought, "vendor": vendor},)
        )
        for vendor in ("openai", "azure")
    }
    assert [each["type"] for each in body(said["azure"])["input"] if "type" in each] == ["function_call"]
    assert body(said["openai"])["input"][0] == thought


def test_a_thought_between_two_calls_stays_there_and_remarks_keep_their_mark() -> None:
    def call(id: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"}

    def thought(id: str) -> dict[str, Any]:
        return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": id, "status": None}

    remark = {"type": "message", "phase": "commentary", "content": [{"type": "output_text", "text": "I look."}]}
    items = [thought("r1"), remark, thought("r2"), call("c1"), thought("r3"), call("c2")]
    traits = traits_of("openai", "gpt-5.5")
    reply = read_response({"status": "completed", "output": items}, traits).reply
    sent = body(Message("assistant", reply.content, reply.tool_calls, vendor_parts=reply.vendor_parts))["input"]
    assert [each.get("id") or each.get("call_id") or each["phase"] for each in sent] == [
        *("r1", "commentary", "r2", "c1", "r3", "c2")
    ]


@pytest.mark.parametrize("with_answer", [True, False])
async def test_a_remark_is_the_answer_only_where_it_is_all_that_was_said(
    with_answer: bool, server: ModelServer
) -> None:
    def message(text: str, **more: Any) -> dict[str, Any]:
        return {"type": "message", "content": [{"type": "output_text", "text": text}], **more}

    items = [message("Let me see.", phase="commentary")]
    items += [message("Tea.", phase="final_answer")] if with_answer else []
    events: list[dict[str, Any]] = []
    for at, each in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": at, "item": {**each, "content": []}})
        text = each["content"][0]["text"]
        events.append({"type": "response.output_text.delta", "output_index": at, "delta": text})
        events.append({"type": "response.output_item.done", "output_index": at, "item": each})
    events.append({"type": "response.completed", "response": {"status": "completed", "output": []}})
    stream = "".join(f"data: {json.dumps(each)}\n\n" for each in events).encode()
    server.respond_with([Raw(stream, "text/event-stream")])
    shown, reply = await ask(model(server), asking(), stream=True)
    assert shown == reply.content == ("Tea." if with_answer else "Let me see.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("ended", "reason"), [("length", "length"), ("content_filter", "content_filter"), (None, "stop")]
)
async def test_why_an_answer_ends_is_read(server: ModelServer, ended: str | None, reason: str, stream: bool) -> None:
    server.respond_with([Completion("half", finish_reason=ended)])
    assert (await ask(model(server), asking(), stream=stream))[1].finish_reason == reason


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_an_error_with_its_tokens(server: ModelServer, stream: bool) -> None:
    server.respond_with([Completion(None, refusal="I will not.")])
    with pytest.raises(PermanentModelError, match=r"openai/gpt-5\.5 refused to answer: I will not\.") as caught:
        await ask(model(server), asking(), stream=stream)
    assert caught.value.reply is not None
    assert caught.value.reply.usage.completion_tokens == 1


async def test_a_summary_that_was_asked_for_is_kept_with_the_answer(server: ModelServer) -> None:
    server.respond_with([Completion("Tea.", thinking=(Thinking("**Weighing teas**"),))])
    request = asking(tools=(), extra={"reasoning": {"summary": "auto"}})
    (part,) = (await model(server).complete(request)).vendor_parts
    assert part["summary"] == [{"type": "summary_text", "text": "**Weighing teas**"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "kind", "told"),
    [
        (Failure(429, "slow down", retry_after=2), TransientModelError, "slow down"),
        (Failure(400, "bad"), PermanentModelError, "bad"),
        (Failure(401, f"wrong key {KEY}"), PermanentModelError, "wrong key"),
    ],
)
async def test_failures_are_told_with_the_servers_words_and_without_the_key(
    server: ModelServer, failure: Failure, kind: type[ModelError], told: str, stream: bool
) -> None:
    server.respond_with([failure])
    with pytest.raises(kind, match=told) as caught:
        await ask(model(server), asking(), stream=stream)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", TransientModelError),
        ("rate_limit_exceeded", TransientModelError),
        ("invalid_prompt", PermanentModelError),
        ("image_too_large", PermanentModelError),
    ],
)
async def test_an_answer_that_failed_is_an_error(server: ModelServer, code: str, kind: type[ModelError]) -> None:
    failed = {"status": "failed", "output": [], "error": {"code": code, "message": "It went wrong."}}
    event = {"type": "response.failed", "response": failed}
    server.respond_with(
        [Raw(json.dumps(failed).encode()), Raw(f"data: {json.dumps(event)}\n\n".encode(), "text/event-stream")]
    )
    for stream in (False, True):
        with pytest.raises(kind, match="It went wrong"):
            await ask(model(server), asking(), stream=stream)


@pytest.mark.parametrize("answer", [StreamFailure(kind="server_error"), Truncated("a long answer that breaks off")])
async def test_a_stream_that_fails_in_the_middle_may_be_tried_again(server: ModelServer, answer: Any) -> None:
    server.respond_with([answer])
    with pytest.raises(TransientModelError):
        await ask(model(server), asking(), stream=True)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({}, PermanentModelError),  # No model's: it would be the same again.
        ({"output": 5}, TransientModelError),
        ({"status": "queued", "output": []}, TransientModelError),
    ],
)
async def test_what_is_no_whole_answer_may_be_tried_again_where_a_model_gave_it(
    server: ModelServer, answer: dict[str, Any], kind: type[ModelError]
) -> None:
    server.respond_with([Raw(json.dumps(answer).encode())])
    with pytest.raises(kind):
        await model(server).complete(asking())


async def test_a_shape_is_asked_for_in_its_form(server: ModelServer) -> None:
    request = replace(asking(), response_schema=SCHEMA, response_name="tea")
    assert json.loads((await model(server).complete(request)).content) == {"tea": "green"}
    assert server.requests[0].body["text"]["format"]["name"] == "tea"


def test_a_run_looks_the_same_whichever_interface_is_asked(server: ModelServer) -> None:
    """The request's key, its answer and its record do not tell."""
    requests = [replace(asking(tools=()), extra={"reasoning_effort": each}) for each in ("low", "none")]
    asked = model(server, overrides={"api": "responses"}), model(server, overrides={"api": "chat"})
    replies = [run_sync(lambda each=each: each.complete(requests[0])) for each in asked]
    first, second = (each._replace(usage=TokenUsage(), seconds=0.0, cost_usd=None) for each in replies)
    assert first == second
    assert [each.path for each in server.requests] == ["/v1/responses", "/v1/chat/completions"]
