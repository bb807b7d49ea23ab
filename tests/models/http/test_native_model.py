"""Models asked over HTTP, from the local model server: what is sent, what comes back, what goes wrong, what stays."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from http_script import ScriptedHttp
from model_server import Completion, Failure, ModelServer, Raw, ToolCall, Truncated

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import run_sync
from flowengine.errors import ModelConfigError, ModelError, PermanentModelError, TransientModelError
from flowengine.models.http import connection_pool, streamed_answer, vendor_batches, vendor_endpoint
from flowengine.models.http.loop_client import HttpCall
from flowengine.models.http.native_model import NativeModel
from flowengine.models.http.vendor_batches import BatchableCall, batches_of
from flowengine.models.messages import Message
from flowengine.models.model import Model, Reply, Request, TokenUsage
from flowengine.models.open import get_llm
from flowengine.models.outbound import VARIABLE
from flowengine.models.wrappers import priced
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel
from flowengine.models.wrappers.streaming_tap import tap_model

QUESTION = (Message("system", "Be brief."), Message("user", "hi"))
USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 600},
    "completion_tokens_details": {"reasoning_tokens": 40},
}
SCHEMA = {"type": "object", "properties": {"route": {"enum": ["a", "b"]}}, "required": ["route"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
KEY = "sk-secret-0123456789"


def model_of(server: ModelServer, name: str = "gpt-4o-mini", provider: str = "openai", **more: Any) -> NativeModel:
    settings = {"api_base": server.url, "api_key": KEY, **more.pop("settings", {})}
    return NativeModel(name, provider, settings=settings, **more)


def model_at(address: str, provider: str = "hosted_vllm") -> NativeModel:
    return NativeModel("m", provider, settings={"api_base": address, "api_key": KEY})


def asking(**more: Any) -> Request:
    return Request("gpt-4o-mini", QUESTION, **{"timeout": 10.0, **more})


async def error_of(model: Model, request: Request | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request or asking())
    return caught.value


# --- what is sent and what comes back


async def test_a_reply_has_its_tokens_and_its_cost(server: ModelServer) -> None:
    server.respond_with([Completion("hello", usage=USAGE, finish_reason="length")])
    reply = await model_of(server).complete(asking())
    assert reply.content == "hello"
    assert reply.usage == TokenUsage(1000, 100, 600, None, 40)
    assert reply.cost_usd == pytest.approx(400 * 0.15e-6 + 600 * 0.075e-6 + 100 * 0.6e-6)
    assert (reply.finish_reason, reply.model, reply.provider, reply.attempts) == ("length", "gpt-4o-mini", "openai", 1)
    assert 0 < reply.seconds < 10


async def test_a_cost_that_the_vendor_tells_counts_before_the_table(server: ModelServer) -> None:
    written = {"prompt_tokens_details": {"cache_write_tokens": 800}}
    told = [Completion("a", usage={**USAGE, "cost": 0.25}), Completion("b", usage={**USAGE, **written})]
    server.respond_with(told)
    assert (await model_of(server, "a/model-of-no-table", "openrouter").complete(asking())).cost_usd == 0.25
    reply = await model_of(server, "gpt-5.6-sol").complete(asking())
    assert reply.usage.cache_write_tokens == 800
    assert reply.cost_usd == pytest.approx(200 * 4e-6 + 800 * 5e-6 + 100 * 2e-5)


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
async def test_an_answer_that_the_vendor_broke_off_is_none(server: ModelServer, reason: str) -> None:
    server.respond_with([Completion("The first half of the ans", usage=USAGE, finish_reason=reason)])
    error = await error_of(model_of(server))
    assert isinstance(error, TransientModelError)
    assert error.reply.usage.prompt_tokens == 1000


async def test_a_word_of_the_price_table_that_nobody_knows_loses_no_answer(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {
        "input_cost_per_token": 4e-6,
        "output_cost_per_token": 2e-5,
        "cache_creation_input_token_cost_above_12hr_above_272k_tokens": 1e-5,
        "input_cost_per_token_above_a_word_tokens": 1e-5,
        "output_cost_per_token_above_12hr_above_272k_tokens": "dear",
    }
    monkeypatch.setattr(priced, "listed_entry", lambda *_: entry)
    server.respond_with([Completion("hello", usage=USAGE)])
    assert (await model_of(server).complete(asking())).cost_usd == pytest.approx(0.006)


async def test_what_a_request_says_of_its_connection_is_no_part_of_it(server: ModelServer) -> None:
    model = NativeModel("gpt-4o-mini", "openai", settings={"api_base": "http://127.0.0.1:9", "api_key": KEY, "seed": 3})
    reply = await model.complete(asking(extra={"api_base": server.url, "extra_headers": {"X-Team": "a"}, "top_p": 0.5}))
    assert reply.content
    (sent,) = server.requests
    assert (sent.body["seed"], sent.body["top_p"], sent.headers["x-team"]) == (3, 0.5, "a")
    assert {"api_base", "extra_headers", "api_key"}.isdisjoint(sent.body)


async def test_an_option_that_a_server_would_leave_unread_is_an_error(server: ModelServer) -> None:
    with pytest.raises(ModelConfigError, match="does not read `num_ctx`: set it at the server, or `adapter"):
        await model_of(server, "qwen3", "ollama").complete(asking(extra={"num_ctx": 32000}))
    assert server.requests == []


@pytest.mark.parametrize("end", ["", "/", "/chat/completions"])
@pytest.mark.parametrize("path", ["", "/v1"])
async def test_an_address_may_be_written_in_each_usual_way(server: ModelServer, path: str, end: str) -> None:
    address = f"http://127.0.0.1:{server.port}{path}{end}"
    await NativeModel("gpt-4o-mini", "openai", settings={"api_base": address, "api_key": KEY}).complete(asking())
    assert server.requests[0].path == "/v1/chat/completions"


async def test_azure_has_its_deployment_in_the_path_and_its_key_in_a_header(server: ModelServer) -> None:
    base = f"http://127.0.0.1:{server.port}/"
    for address in (base, f"{base}openai/deployments/other/chat/completions?api-version=1"):
        model = NativeModel(
            "my dep", "azure", settings={"api_base": address, "api_key": KEY, "api_version": "2024-10-21"}
        )
        await model.complete(asking())
    for sent in server.requests:
        assert sent.path == "/openai/deployments/my%20dep/chat/completions?api-version=2024-10-21"
        assert (sent.headers["api-key"], "authorization" in sent.headers) == (KEY, False)


# --- the shape of an answer


@pytest.mark.parametrize("provider", ["ollama", "lmstudio", "hosted_vllm", "llamacpp"])
async def test_servers_of_ones_own_get_the_schema(server: ModelServer, provider: str) -> None:
    model = model_of(server, "qwen3:4b", provider)
    assert (await model.complete(asking(response_schema=SCHEMA, response_name="routing"))).content == '{"route": "a"}'
    sent = server.requests[0].body["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "routing", "schema": SCHEMA}}
    assert await model.supports_schema()


async def test_the_user_says_how_a_shape_is_asked_for(server: ModelServer) -> None:
    server.respond_with(["{}", "{}", ToolCall("give_answer", {"route": "b"}), "{}"])
    found: dict[str, Reply] = {}
    for way in ("json_schema", "json_object", "tool", "prompt"):
        model = model_of(server, "a-model-of-my-own", structured_output=way)
        found[way] = await model.complete(asking(response_schema=SCHEMA))
        assert await model.supports_schema() == (way in ("json_schema", "tool"))
    sent = [each.body for each in server.requests]
    assert [each.get("response_format", {}).get("type") for each in sent] == ["json_schema", "json_object", None, None]
    assert sent[2]["tool_choice"] == {"type": "function", "function": {"name": "give_answer"}}
    assert found["tool"].content == '{"route": "b"}'
    assert (found["tool"].tool_calls, found["tool"].finish_reason) == ((), "stop")


async def test_a_schema_goes_beside_tools_where_the_vendor_takes_both(server: ModelServer) -> None:
    for provider in ("openai", "hosted_vllm"):
        await model_of(server, provider=provider).complete(asking(response_schema=SCHEMA, tools=(TOOL,)))
    assert ["response_format" in each.body for each in server.requests] == [True, False]


async def test_the_schema_goes_with_every_round_of_tools(server: ModelServer) -> None:
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    server.respond_with([ToolCall("add", '{"a": 1, "b": 2}'), '{"sum": 3}'])
    shape = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    agent = Agent("a", "", model=model_of(server), tools=[add], max_tool_rounds=1, output_model=shape)
    assert (await agent.run_async("x")).result.content == {"sum": 3}
    sent = [("tools" in each.body, "response_format" in each.body) for each in server.requests]
    assert sent == [(True, True), (False, True)]


# --- what goes wrong


@pytest.mark.parametrize("status", [529])
async def test_what_may_work_later_is_transient(server: ModelServer, status: int) -> None:
    server.respond_with(lambda body: Failure(status, "try later"))
    error = await error_of(model_of(server))
    assert isinstance(error, TransientModelError)
    assert error.is_rate_limit == (status == 429)
    assert str(error) == "openai/gpt-4o-mini: try later"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [413])
async def test_what_will_never_work_is_permanent(server: ModelServer, status: int) -> None:
    server.respond_with(lambda body: Failure(status, "no such luck"))
    error = await error_of(model_of(server))
    assert isinstance(error, PermanentModelError)
    assert str(error) == "openai/gpt-4o-mini: no such luck"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Truncated(), "the connection broke off before the answer's end"),
        (Raw(b"<html>Bad gateway</html>", "text/html", 502), "the server answers with status 502 and a web page"),
        (Raw(b"{}", "application/json", 500), "the server answers with status 500: {}"),
        (Raw(b""), "cannot be read as JSON: it is empty"),
        (Raw(b'{"choices": ['), "cannot be read as JSON"),
        (Raw(b'{"choices": []}'), "the server's answer is empty, it has no choices"),
        (Raw(b'{"choices": [{}]}'), "the server's answer has no message"),
        (Raw(b'{"error": {"message": "try again", "code": 503}}'), "openai/gpt-4o-mini: try again"),
    ],
)
async def test_an_answer_that_is_none_is_transient(server: ModelServer, answer: Any, told: str) -> None:
    server.respond_with([answer])
    error = await error_of(model_of(server))
    assert isinstance(error, TransientModelError)
    assert told in str(error)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Raw(b"<html><body>Welcome</body></html>", "text/html"), "cannot be read as JSON: it begins with '<html>"),
        (Raw(b"[1]"), "the server's answer is no JSON object"),
        (Raw(b"{}"), "the server's answer is empty, it has no choices"),
        (Raw(b"", status=204), "cannot be read as JSON: it is empty"),
        (Raw(b"\x1b{}", headers={"content-encoding": "br"}), "packs its answer as 'br', which was not asked for"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_what_would_be_the_same_again_is_asked_once(
    server: ModelServer, answer: Any, told: str, is_streamed: bool
) -> None:
    server.respond_with([answer, "never asked"])
    model: Model = RetryingModel(model_of(server))
    error = await error_of(tap_model(model, lambda *_: None) if is_streamed else model)
    assert isinstance(error, PermanentModelError)
    assert is_streamed or told in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize("provider", ["openai", "ollama", "groq", "google", "hosted_vllm", "lmstudio"])
async def test_an_error_of_a_connection_says_where(provider: str) -> None:
    model = get_llm(f"{provider}/m", environ={}, api_key=KEY, api_base="http://127.0.0.1:9", max_retries=0)
    error = await error_of(model)
    assert isinstance(error, TransientModelError)
    assert str(error).startswith(f"{provider}/m: no connection to http://127.0.0.1:9")
    assert "Connection refused" in str(error)


async def test_models_that_all_fail_are_each_named_once() -> None:
    names, nowhere = ("ollama/a", "ollama/b"), "http://127.0.0.1:9"
    models = [get_llm(name, environ={}, api_base=nowhere, max_retries=0) for name in names]
    told = str(await error_of(FallbackModel(models)))
    assert told.count("ollama/a") == told.count("ollama/b") == 1


async def test_no_key_is_told_whatever_a_server_says(server: ModelServer) -> None:
    server.respond_with([Failure(401, f"the key {KEY} is wrong"), f"your key is {KEY}", Raw(KEY.encode())])
    model = model_of(server)
    assert KEY not in str(await error_of(model))
    assert KEY not in (await model.complete(asking())).content
    failed = await error_of(model)
    assert KEY not in f"{failed!r} {failed.__cause__!r} {failed.__context__!r} {model!r}"
    server.respond_with([Raw(b"x" * 70 + KEY.encode())])
    assert KEY[:4] not in str(await error_of(model))  # Nor a part of it, where the text is cut.


@pytest.mark.parametrize("key", ["sk-with\nbreak-0123456789", "sk-schlüssel-0123456789ü€"])
async def test_a_key_that_no_header_can_hold_is_an_error_without_it(server: ModelServer, key: str) -> None:
    error = await error_of(model_of(server, settings={"api_key": key}))
    assert isinstance(error, PermanentModelError)
    assert "0123456789" not in f"{error} {error.__cause__!r}"
    assert server.requests == []


# --- timeouts and cancellation


# --- streams


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Raw(b'data: {"error": {"code": 503, "message": "x"}}\n\n', "text/event-stream"), TransientModelError),
        (Raw(b'data: {"error": {"type": "invalid_request_error"}}\n\n', "text/event-stream"), PermanentModelError),
        (Raw(b"data: {no json\n\n", "text/event-stream"), TransientModelError),
        (Raw(b"", "text/event-stream"), TransientModelError),
    ],
)
async def test_a_stream_fails_like_a_call(server: ModelServer, answer: Any, kind: type[Exception]) -> None:
    server.respond_with([answer])

    async def read() -> None:
        async with model_of(server).stream(asking(timeout=20)) as stream:
            async for _ in stream:
                pass

    with pytest.raises(kind):
        await read()


async def test_a_server_that_knows_no_streams_is_read_all_the_same(server: ModelServer) -> None:
    server.respond_with(
        [Raw(b'{"choices": [{"message": {"content": "all at once"}}]}'), Raw(b'{"error": {"code": 400}}')]
    )
    async with model_of(server).stream(asking()) as stream:
        text, reply = [piece async for piece in stream]
    assert isinstance(reply, Reply)
    assert text == reply.content == "all at once"
    with pytest.raises(PermanentModelError):
        async with model_of(server).stream(asking()) as stream:
            await anext(stream)


async def test_what_a_stream_is_is_seen_from_its_beginning(server: ModelServer) -> None:
    event = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    whole = Raw(b' {"choices": [{"message": {"content": "hi"}}]}', "text/plain")
    server.respond_with([Raw(event, "application/json"), whole, Raw(b"<html>Log in", "text/html")])
    for _ in range(2):
        async with model_of(server).stream(asking()) as stream:
            assert [getattr(piece, "content", piece) async for piece in stream] == ["hi", "hi"]
    with pytest.raises(PermanentModelError, match="no stream of events: it begins with '<html>Log in'"):
        async with model_of(server).stream(asking()) as stream:
            await anext(stream)


@pytest.mark.parametrize(("end", "is_whole"), [(b'"stop"', True), (b"null", False)])
async def test_an_answer_whose_end_has_come_is_one_although_the_connection_breaks_off(
    end: bytes, is_whole: bool
) -> None:
    event = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": %s}]}\n\n' % end
    lines = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    said: list[Any] = []
    answer = lines + b"%x\r\n%s\r\n" % (len(event), event) + ScriptedHttp.CLOSE
    with ScriptedHttp(answer) as address, suppress(TransientModelError):
        async with model_at(address).stream(asking()) as stream:
            said += [piece async for piece in stream]
    assert [each.content for each in said if isinstance(each, Reply)] == ["hi"] * is_whole


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS = {
    "openai": b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}\n\n',
    "anthropic": b'data: {"type": "message_start", "message": {"usage": {"input_tokens": 9}}}\n\n'
    b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}\n\n'
    b'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}\n\n',
}
LAST = {"openai": b"data: [DONE]\n\n", "anthropic": b'data: {"type": "message_stop"}\n\n'}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "end", ["closed", "closed after the last word", "open", "open after the last word", "garbage", "no chunk"]
)
async def test_a_complete_answer_is_kept_however_its_connection_ends_or_stays_open(
    provider: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_answer, "_TAIL", 0.02)
    said = EVENTS[provider] + (LAST[provider] if "last word" in end or end == "no chunk" else b"")
    said += b"data: {no json\n\n" if end == "garbage" else b""
    answer = HEAD % b"text/event-stream" + b"%x\r\n%s\r\n" % (len(said), said)
    answer += {"no chunk": b"zz\r\n"}.get(end, b"") + (ScriptedHttp.CLOSE if "closed" in end else b"")
    with ScriptedHttp(answer) as address:
        model = tap_model(model_at(address, provider), lambda *_: None)
        reply = await model.complete(asking())
        await anyio.lowlevel.checkpoint()  # What ended the wait has ended with it.
    assert (reply.content, reply.usage[:2], reply.attempts) == ("hi", (9, 3), 1)


@pytest.mark.parametrize("close", [b"", ScriptedHttp.CLOSE])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_whole_answer_is_kept_although_its_formal_end_is_missing(close: bytes, is_streamed: bool) -> None:
    said = b'{"choices": [{"message": {"content": "hi {}"}}]}'
    parts = [b"%x\r\n%s\r\n" % (len(each), each) for each in (said[:-5], said[-5:])]
    with ScriptedHttp([HEAD % b"application/json" + parts[0], b"+" + parts[1] + close]) as address:
        model = model_at(address)
        reply = await (tap_model(model, lambda *_: None) if is_streamed else model).complete(asking())
        await anyio.lowlevel.checkpoint()
    assert reply.content == "hi {}"


PIECE = b'data: {"choices": [{"delta": {"content": "h"}}]}\n\n'
FAILURE = b'data: {"error": {"type": "overloaded_error"}}\n\n'
FAILED = b"%x\r\n%s\r\n" % (len(FAILURE), FAILURE)
BEGUN = HEAD % b"text/event-stream" + b"%x\r\n%s\r\n" % (len(PIECE), PIECE)


@pytest.mark.parametrize(
    ("answer", "told", "unanswered"),
    [
        (BEGUN, "did not answer within 0.05 s", 1),
        (b"+", "did not answer within 0.05 s", 1),
        (b"+" + ScriptedHttp.CLOSE, "closed the connection without an answer", 1),
        (BEGUN + ScriptedHttp.CLOSE, "broke off before the answer's end", 1),
        (BEGUN + FAILED + b"0\r\n\r\n", "overloaded", 1),
        (HEAD % b"text/event-stream" + FAILED + b"0\r\n\r\n", "overloaded", 0),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "status 503", 0),
        (b'{"error": {"type": "overloaded_error"}}', "overloaded", 0),
    ],
)
async def test_what_was_sent_and_not_refused_may_be_billed(
    answer: bytes, told: str, unanswered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within" in told:
        monkeypatch.setattr(vendor_endpoint, "_SILENCE", 0.05)
    with ScriptedHttp(answer) as address:
        error = await error_of(tap_model(model_at(address), lambda *_: None), asking(timeout=None))
    assert told in str(error)
    assert error.unanswered == unanswered


@pytest.mark.parametrize(
    ("name", "before", "begun", "failure"),
    [
        (
            "anthropic/claude-haiku-4-5",
            {"type": "message_start", "message": {}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
            {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}},
        ),
        (
            "openai/gpt-5-codex",
            {"type": "response.created", "response": {}},
            {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "overloaded"}}},
        ),
        (
            "openai/gpt-4o-mini",
            {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a"}]}}]},
            {"error": {"type": "overloaded_error", "message": "overloaded"}},
        ),
    ],
)
async def test_an_answer_that_had_begun_when_the_vendor_told_a_failure_may_be_billed(
    name: str, before: Any, begun: Any, failure: Any
) -> None:
    provider, _, model = name.partition("/")
    for events, unanswered in (([before, failure], 0), ([before, begun, failure], 1)):
        said = b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in events)
        with ScriptedHttp(HEAD % b"text/event-stream" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(said), said)) as address:
            asked = NativeModel(model, provider, settings={"api_base": address, "api_key": KEY})
            error = await error_of(tap_model(asked, lambda *_: None), asking())
        assert "overloaded" in str(error)
        assert (error.unanswered, isinstance(error, TransientModelError)) == (unanswered, True)


async def test_what_was_not_sent_is_not_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await error_of(NativeModel("m", "ollama", settings={"api_base": "http://127.0.0.1:9"}))).unanswered == 0

    async def never(*_: Any, **__: Any) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(anyio, "connect_tcp", never)
    monkeypatch.setattr(connection_pool, "_LONGEST_CONNECT", 0.01)
    error = await error_of(model_at("http://127.0.0.1:9"), asking(timeout=None))
    assert "it was not reached within 0.01 s" in str(error)
    assert error.unanswered == 0
    error = await error_of(model_at("http://127.0.0.1:9"), asking(timeout=0.001))
    assert (error.unanswered, isinstance(error, TransientModelError)) == (0, True)


async def test_a_character_that_comes_in_two_halves_is_one() -> None:
    halves = b"".join(
        b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n' % each
        for each in (b"a\\ud83d", b"\\ude00b")
    )
    with ScriptedHttp(
        HEAD % b"text/event-stream"
        + b"%x\r\n%s\r\n" % (len(halves), halves)
        + b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENTS["openai"]), EVENTS["openai"])
    ) as address:
        async with model_at(address).stream(asking()) as stream:
            *pieces, reply = [piece async for piece in stream]
    assert "".join(map(str, pieces)) == getattr(reply, "content", "") == "a\U0001f600bhi"


def post_of(model: NativeModel, request: Request) -> HttpCall:
    return model._post(request, model._protocol_for(request), stream=False)


def test_the_newest_version_of_the_api_is_asked_for_where_nothing_in_a_call_needs_an_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "1")  # Nothing is sent.

    def version(**more: Any) -> str:
        model = NativeModel("claude-haiku-4-5", "anthropic", settings={"api_key": KEY, **more.pop("settings", {})})
        return dict(post_of(model, asking(**more)).headers)["anthropic-version"]

    assert version() == "2026-10-21"
    assert version(temperature=0.7) == version(extra={"top_k": 5}) == "2023-06-01"
    assert version(settings={"api_base": "http://127.0.0.1:9"}) == "2023-06-01"


async def test_an_error_of_the_reader_is_its_own(server: ModelServer) -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with model_of(server).stream(asking()):
            raise TimeoutError("mine")


# --- how it lives with its surroundings


async def test_a_failed_call_keeps_its_connection(server: ModelServer) -> None:
    server.respond_with([Failure(500), "fine"])
    await error_of(model_of(server))
    await model_of(server).complete(asking())
    assert {each.connection for each in server.requests} == {1}


async def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    script = ScriptedHttp(*[b'{"choices": [{"message": {"content": "x"}}]}' + ScriptedHttp.CLOSE] * 2)
    address = script.start()
    try:
        for _ in range(2):
            assert (await model_at(address).complete(asking())).content == "x"
            with anyio.fail_after(20):
                await anyio.to_thread.run_sync(script.closed.wait)
        assert script.connections == 2
    finally:
        script.stop()


def test_synchronous_code_and_both_kinds_of_loop_ask_alike(server: ModelServer) -> None:
    assert run_sync(lambda: model_of(server).complete(asking())).content
    for backend in ("asyncio", "trio"):
        assert anyio.run(model_of(server).complete, asking(), backend=backend).content


PROGRAM = """
import anyio, asyncio, os, sys
from flowengine.models.open import get_llm
from flowengine.models.messages import Message
from flowengine.models.model import Request
model = get_llm("openai/gpt-4o-mini", environ={{"OPENAI_API_KEY": "x"}}, api_base={url!r}, max_retries=0)
request = Request("m", (Message("user", "hi"),))
async def complete():
    return (await model.complete(request)).content
async def stream():
    async with model.stream(request) as pieces:
        async for _ in pieces:
            pass
async def leave():
    async with model.stream(request) as pieces:
        async for _ in pieces:
            return
{then}
assert "litellm" not in sys.modules
"""


def run_python(server: ModelServer, then: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(url=server.url, then=then)
    return subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the program wrote to stderr, without asyncio's notes on slow steps: a busy machine is slow."""
    return [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]


@pytest.mark.parametrize("run", ["asyncio.run({}())", "anyio.run({}, backend='trio')"])
def test_many_loops_one_after_the_other_leave_no_connection_and_no_word(server: ModelServer, run: str) -> None:
    then = f"""
def held():
    return len(os.listdir("/proc/self/fd"))
{run.format("complete")}
before = held()
for _ in range(10):
    for work in (complete, stream, leave):
        {run.format("work")}
print(held() - before)
"""
    done = run_python(server, then)
    assert complaints(done) == []
    assert int(done.stdout) <= 1


def test_loops_that_are_closed_without_an_end_leave_nothing_behind(server: ModelServer) -> None:
    then = """
import gc, warnings
warnings.simplefilter("ignore")
def held():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
def run():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(complete())
    loop.close()
run()
before = held()
for _ in range(10):
    run()
print(held() - before)
"""
    done = run_python(server, then)
    assert complaints(done) == []
    assert int(done.stdout) <= 1


def test_a_program_says_nothing_but_its_own_words(server: ModelServer) -> None:
    server.respond_with(["hello", Failure(500)])
    then = """
print(anyio.run(complete))
try:
    anyio.run(complete, backend="trio")
except Exception as error:
    print(error)
"""
    done = run_python(server, then)
    assert (done.stdout, complaints(done)) == ("hello\nopenai/gpt-4o-mini: the server was told to fail\n", [])


# --- bodies and redirects


ANSWER = b'{"choices": [{"message": {"content": "packed"}, "finish_reason": "stop"}]}'


def head(body: bytes, *lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    "answer",
    [
        head(gzip.compress(ANSWER, mtime=0), "content-encoding: gzip"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(ANSWER), ANSWER),
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + head(ANSWER),
        b"HTTP/1.0 200 OK\r\n\r\n" + ANSWER + ScriptedHttp.CLOSE,
    ],
    ids=["packed", "in pieces", "after hints", "until the end"],
)
async def test_a_body_is_read_however_it_is_sent(answer: bytes) -> None:
    with ScriptedHttp(answer) as address:
        assert (await model_at(address).complete(asking())).content == "packed"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (head(b"abc", "content-encoding: gzip"), "cannot be unpacked"),
        (head(b"abc", "content-encoding: br"), "which was not asked for"),
        (b"+SSH-2.0-OpenSSH_9.6\r\n\r\n" + ScriptedHttp.CLOSE, "no HTTP"),
        (b"+" + ScriptedHttp.CLOSE, "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{" + ScriptedHttp.CLOSE, "broke off before the answer's end"),
    ],
    ids=["no gzip", "unasked", "no HTTP", "nothing", "cut"],
)
async def test_a_body_that_cannot_be_read_is_a_clear_error(answer: bytes, told: str) -> None:
    with ScriptedHttp(answer) as address:
        error = await error_of(model_at(address))
        assert told in str(error)


async def test_a_body_that_is_huge_when_it_is_unpacked_is_given_up() -> None:
    with ScriptedHttp(head(gzip.compress(b" " * (80 << 20), 1, mtime=0), "content-encoding: gzip")) as address:
        assert "more than 67,108,864 bytes" in str(await error_of(model_at(address)))


async def test_a_redirect_of_the_same_server_is_followed_and_one_to_another_is_refused() -> None:
    script = ScriptedHttp(head(b"", "location: /other", status="307 Temporary Redirect"), head(ANSWER))
    with script as address, ScriptedHttp(head(ANSWER)) as elsewhere:
        assert (await model_at(address).complete(asking())).content == "packed"
        assert script.requests[1].startswith(b"POST /other ")
        away = head(b"", f"location: {elsewhere}/v1/chat/completions", status="307 Temporary Redirect")
        with ScriptedHttp(away) as redirecting:
            error = await error_of(model_at(redirecting))
    assert isinstance(error, PermanentModelError)
    assert f"redirects to {elsewhere}" in str(error)


async def test_a_redirect_to_what_is_no_address_is_told() -> None:
    with ScriptedHttp(head(b"", "location: http://[x", status="307 Temporary Redirect")) as address:
        error = await error_of(model_at(address))
    assert isinstance(error, PermanentModelError)
    assert str(error) == "hosted_vllm/m: the server redirects to what is no address"


async def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ScriptedHttp(head(ANSWER))
    with script as proxy:
        monkeypatch.setenv("http_proxy", proxy.replace("http://", "http://me:word@"))
        monkeypatch.setenv("no_proxy", "inside.example")
        monkeypatch.setenv(VARIABLE, "1")
        assert (await model_at("http://models.example:8000/v1").complete(asking())).content == "packed"
        (sent,) = script.requests
        assert sent.startswith(b"POST http://models.example:8000/v1/chat/completions HTTP/1.1\r\n")
        assert b"proxy-authorization: Basic bWU6d29yZA==" in sent
        with ScriptedHttp(head(ANSWER)) as here:
            assert (await model_at(here).complete(asking())).content == "packed"
        error = await error_of(model_at("http://inside.example:9"))
        assert "no connection to http://inside.example:9" in str(error)
        assert len(script.requests) == 1


@pytest.mark.parametrize("kind", ["socks5", "socks5h", "socks4"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_of_a_kind_that_is_not_spoken_is_told_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, kind: str, scheme: str
) -> None:
    script = ScriptedHttp(head(ANSWER))
    with script as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy.replace("http://", f"{kind}://me:word@"))
        monkeypatch.setenv(VARIABLE, "1")
        model = RetryingModel(model_at(f"{scheme}://models.example/v1"), first_wait=0)
        error = await error_of(model)
    assert isinstance(error, PermanentModelError)
    assert f"a proxy of the kind {kind}:// is not known here; http:// and https:// are" in str(error)
    assert "word" not in str(error)
    assert (script.connections, script.requests, error.unanswered) == (0, [], 0)


async def test_a_tunnel_that_a_proxy_refuses_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ScriptedHttp(head(b"", status="403 Forbidden"))
    with script as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv(VARIABLE, "1")
        error = await error_of(model_at("https://models.example/v1"))
    assert isinstance(error, TransientModelError)
    assert "the proxy 127.0.0.1 answers 403" in str(error)
    assert script.requests[0].startswith(b"CONNECT models.example:443 ")
    assert KEY.encode() not in script.requests[0]


# --- answers that have arrived


Read = Callable[[NativeModel], Any]


async def _complete(model: NativeModel) -> Reply:
    return await model.complete(asking())


async def _stream(model: NativeModel) -> Reply:
    async with model.stream(asking()) as pieces:
        found = [piece async for piece in pieces]
    assert isinstance(found[-1], Reply)
    return found[-1]


STREAMED = (
    b'data: {"choices": [{"delta": {"content": "packed"}}]}\n\n'
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize(("read", "body"), [(_complete, ANSWER), (_stream, STREAMED)])
async def test_an_answer_that_has_arrived_is_kept_although_its_reader_is_cancelled(read: Read, body: bytes) -> None:
    """The bytes lie in the socket when the reader is cancelled; it is cancelled at its next wait."""
    kept: list[str] = []
    script = ScriptedHttp(head(body))
    with script as address:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                kept.append((await read(model_at(address))).content)
                await anyio.lowlevel.checkpoint()
                kept.append("was not cancelled")

            tasks.start_soon(ask)
            with anyio.fail_after(20):
                while not script.sent.is_set():  # the server lives in another thread
                    await anyio.lowlevel.checkpoint() if not script.requests else time.sleep(0.01)  # noqa: ASYNC251
            tasks.cancel_scope.cancel()
    assert kept == ["packed"]


async def test_an_answer_of_which_a_part_has_arrived_is_given_up() -> None:
    script = ScriptedHttp(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
    with script as address, anyio.move_on_after(0.3) as scope:
        await model_at(address).complete(asking())
    assert scope.cancelled_caught


async def test_a_cancelled_reader_leaves_an_answer_that_does_not_end() -> None:
    """What has arrived may be read on; what a server sends and sends has not."""
    begun = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    piece = b'data: {"choices": [{"delta": {"content": "words "}}], "more": "' + b"words " * 1000 + b'"}\n\n'
    script = ScriptedHttp([begun, *[b"+" + piece * 80] * 120])
    with script as address, anyio.CancelScope() as scope:
        async with model_at(address).stream(asking(timeout=60.0)) as pieces:
            async for _ in pieces:
                scope.cancel()
        script.closed.wait(20)
    assert scope.cancelled_caught
    assert 0 < script.parts < 60, "of 120 that have half a million bytes each"


async def test_a_proxy_that_is_no_address_is_told_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:pa/ss@proxy:1")
    monkeypatch.setenv(VARIABLE, "1")
    error = await error_of(model_at("http://models.example:8000/v1"))
    assert str(error).endswith("the proxy that the environment names for http:// is no address")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_line_of_a_batch_s_answers_that_does_not_end_is_not_gathered(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor_batches, "_LONGEST_LINE", 100_000)
    lines = [head(b'{"status": "completed", "output_file_id": "f"}')] if provider == "openai" else []
    script = ScriptedHttp(*lines, [b"HTTP/1.1 200 OK\r\n\r\n", *[b"+" + b"x" * 50_000] * 200])
    with script as address:
        model = model_at(address, provider)
        call = BatchableCall(model._endpoint, post_of(model, asking()), provider, "m")
        with pytest.raises(TransientModelError, match="a line of the answers has more than 100,000 bytes"):
            await batches_of(call).read_answers("b", lambda name, answer: None)
        script.closed.wait(20)
    assert script.parts < 200


@pytest.mark.parametrize(
    ("kind", "expected"), [("authentication_error", PermanentModelError), ("?", TransientModelError)]
)
async def test_what_a_batch_is_refused_for_good_is_permanent(kind: str, expected: type[Exception]) -> None:
    refusal = {"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": "no"}}}
    with ScriptedHttp(head(json.dumps({"custom_id": "a", "result": refusal}).encode())) as address:
        model, found = model_at(address, "anthropic"), dict[str, Any]()
        call = BatchableCall(model._endpoint, post_of(model, asking()), "anthropic", "m")
        await batches_of(call).read_answers("b", found.__setitem__)
    assert type(found["a"].error) is expected


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_list_of_batches_that_is_none_has_none(provider: str) -> None:
    with ScriptedHttp(b'{"data": 5}') as address:
        model = model_at(address, provider)
        call = BatchableCall(model._endpoint, post_of(model, asking()), provider, "m")
        assert await batches_of(call).find("mark", ("a",), 0.0) is None
