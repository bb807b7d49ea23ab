"""Models asked over HTTP by our own client and through litellm do alike, from the local model server."""

from __future__ import annotations

import time
from typing import Any, Protocol

import anyio
import pytest
from model_server import Completion, Failure, Hang, ModelServer, StreamFailure, ToolCall, Truncated

from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.native_model import NativeModel
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Model, Reply, Request, TokenUsage
from flowengine.models.wrappers.retrying import RetryingModel
from flowengine.models.wrappers.streaming_tap import tap_model
from tests.support.pace import done_within

QUESTION = (Message("system", "Be brief."), Message("user", "hi"))
USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 600},
}
COST = 400 * 0.15e-6 + 600 * 0.075e-6 + 100 * 0.6e-6
SCHEMA = {"type": "object", "properties": {"route": {"enum": ["a", "b"]}}, "required": ["route"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


class MakeModel(Protocol):
    def __call__(self, name: str = "gpt-4o-mini", /) -> NativeModel | LiteLLMModel: ...


@pytest.fixture(params=[NativeModel, LiteLLMModel])
def model_of(request: pytest.FixtureRequest, server: ModelServer) -> MakeModel:
    if request.param is LiteLLMModel:
        request.getfixturevalue("litellm_is_loaded")
    settings = {"api_base": server.url, "api_key": "secret"}
    return lambda name="gpt-4o-mini": request.param(name, "openai", settings=settings)


def asking(**more: Any) -> Request:
    return Request("gpt-4o-mini", QUESTION, **{"timeout": 10.0, **more})


async def error_of(model: Model, request: Request | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request or asking())
    return caught.value


# --- what is sent and what comes back


async def test_a_request_arrives_as_it_was_asked_and_nothing_is_added(server: ModelServer, model_of: MakeModel) -> None:
    request = asking(temperature=0.3, max_tokens=7, tools=(TOOL,), extra={"top_p": 0.9, "seed": 5})
    await model_of().complete(request)
    assert server.requests[0].body == {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "temperature": 0.3,
        "max_tokens": 7,
        "tools": [TOOL],
        "top_p": 0.9,
        "seed": 5,
    }
    assert server.requests[0].headers["authorization"] == "Bearer secret"


async def test_a_reply_has_its_tokens_and_its_cost(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Completion("hello", usage=USAGE, finish_reason="length")])
    reply = await model_of().complete(asking())
    assert reply.content == "hello"
    assert reply.usage == TokenUsage(1000, 100, 600)
    assert reply.cost_usd == pytest.approx(COST)
    assert (reply.finish_reason, reply.model, reply.provider, reply.attempts) == ("length", "gpt-4o-mini", "openai", 1)
    assert 0 < reply.seconds < 10


async def test_an_unknown_price_and_untold_usage_stay_unknown(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Completion("a", usage=USAGE), Completion("b", usage={})])
    assert (await model_of("a-model-of-my-own").complete(asking())).cost_usd is None
    untold = await model_of().complete(asking())
    assert (untold.usage, untold.cost_usd) == (TokenUsage(), None)


async def test_tool_calls_come_as_the_model_wrote_them(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([ToolCall("look", '{"at": brok', id="c9")])
    reply = await model_of().complete(asking())
    assert (reply.tool_calls, reply.content) == ((ToolRequest("c9", "look", '{"at": brok'),), "")
    assert reply.finish_reason == "tool_calls"


async def test_a_schema_is_sent_only_where_the_model_is_known_to_follow_it(
    server: ModelServer, model_of: MakeModel
) -> None:
    request = asking(response_schema=SCHEMA, response_name="routing")
    known, unknown = model_of(), model_of("a-model-of-my-own")
    assert (await known.complete(request)).content == '{"route": "a"}'
    await unknown.complete(request)
    sent = [each.body.get("response_format") for each in server.requests]
    assert sent == [{"type": "json_schema", "json_schema": {"name": "routing", "schema": SCHEMA}}, None]
    assert [await known.supports_schema(), await unknown.supports_schema()] == [True, False]


# --- what goes wrong


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
async def test_what_may_work_later_is_transient(server: ModelServer, model_of: MakeModel, status: int) -> None:
    server.respond_with(lambda body: Failure(status, "try later"))
    error = await error_of(model_of())
    assert isinstance(error, TransientModelError)
    assert error.is_rate_limit == (status == 429)
    assert str(error) == "openai/gpt-4o-mini: try later"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_will_never_work_is_permanent(server: ModelServer, model_of: MakeModel, status: int) -> None:
    server.respond_with(lambda body: Failure(status, "no such luck"))
    error = await error_of(model_of())
    assert isinstance(error, PermanentModelError)
    assert str(error) == "openai/gpt-4o-mini: no such luck"
    assert len(server.requests) == 1


async def test_a_spent_quota_is_permanent_although_it_is_a_429(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Failure(429, "You exceeded your current quota", code="insufficient_quota")])
    assert isinstance(await error_of(model_of()), PermanentModelError)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(2, 2.0), (0.5, 0.5), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0), ("soon", None), ("-3", None), ("nan", None)],
)
async def test_retry_after_is_read(
    server: ModelServer, model_of: MakeModel, header: Any, seconds: float | None
) -> None:
    server.respond_with([Failure(429, retry_after=header)])
    error = await error_of(model_of())
    assert isinstance(error, TransientModelError)
    assert error.retry_after == seconds


async def test_a_refusal_is_a_permanent_error_that_is_paid_for(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with(
        [Completion(None, refusal="I would rather not"), Completion("", finish_reason="content_filter")]
    )
    assert str(await error_of(model_of())) == "openai/gpt-4o-mini refused to answer: I would rather not"
    second = await error_of(model_of())
    assert isinstance(second, PermanentModelError)
    assert second.reply.usage.prompt_tokens > 0


async def test_an_answer_that_is_cut_off_is_transient(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Truncated()])
    assert isinstance(await error_of(model_of()), TransientModelError)


# --- timeouts and cancellation


async def test_a_timeout_is_for_the_whole_call(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with(["the first call loads more of litellm", Hang()])
    assert (await model_of().complete(asking())).content
    error = await error_of(model_of(), asking(timeout=0.5))
    assert isinstance(error, TransientModelError)
    assert str(error) == "openai/gpt-4o-mini did not answer within 0.5 s"
    await _abandoned(server, 1)


async def test_being_cancelled_closes_the_connection(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Hang()])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model_of().complete, asking())
        with anyio.fail_after(20):
            while not server.requests:  # noqa: ASYNC110  # the server lives in another thread
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    await _abandoned(server)


async def _abandoned(server: ModelServer, number: int = 0) -> None:
    with anyio.fail_after(20):
        while not server.requests[number].abandoned:  # noqa: ASYNC110  # the server lives in another thread
            await anyio.sleep(0.01)


async def test_with_retries_a_busy_server_is_answered_in_the_end(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Failure(429, retry_after=0.3), Failure(503), "at last"])
    reply = await RetryingModel(model_of(), first_wait=0.001).complete(asking())
    assert (reply.content, reply.attempts) == ("at last", 3)
    first, second, _ = server.requests
    assert second.arrived - first.arrived >= 0.29


@pytest.mark.long
async def test_hundreds_of_calls_wait_at_once(server: ModelServer, model_of: MakeModel) -> None:
    server.latency = 0.3
    with done_within(20):  # One after the other they would take 30 s.
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(model_of().complete, asking(timeout=300))
    assert len(server.requests) == 100


# --- streams


async def test_a_stream_comes_in_pieces_and_ends_in_the_reply(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with(
        ["the first stream loads more of litellm", Completion("a text of some length", usage=USAGE, piece_delay=0.1)]
    )
    async with model_of().stream(asking()) as stream:
        assert [piece async for piece in stream]
    async with model_of().stream(asking()) as stream:
        pieces = [(time.time(), piece) async for piece in stream]
    *texts, reply = [piece for _, piece in pieces]
    assert isinstance(reply, Reply)
    assert len(texts) > 1
    assert "".join(map(str, texts)) == reply.content == "a text of some length"
    assert reply.usage == TokenUsage(1000, 100, 600)
    assert reply.cost_usd == pytest.approx(COST)
    assert server.requests[1].answered is not None
    assert pieces[0][0] < server.requests[1].answered


async def test_a_streamed_tool_call_is_put_together(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Completion("", tool_calls=(ToolCall("look", {"at": 1}), ToolCall("hear", {}, id="call_2")))])
    async with model_of().stream(asking()) as stream:
        (reply,) = [piece async for piece in stream]
    assert isinstance(reply, Reply)
    assert reply.tool_calls == (ToolRequest("call_1", "look", '{"at": 1}'), ToolRequest("call_2", "hear", "{}"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Failure(429, retry_after=3), TransientModelError),
        (Failure(401), PermanentModelError),
        (Truncated("a long text that breaks off " * 5), TransientModelError),
        (Hang(), TransientModelError),
    ],
)
async def test_a_stream_fails_like_a_call(
    server: ModelServer, model_of: MakeModel, answer: Any, kind: type[Exception]
) -> None:
    server.respond_with([answer])

    async def read() -> None:
        async with model_of().stream(asking(timeout=2 if isinstance(answer, Hang) else 60)) as stream:
            async for _ in stream:
                pass

    with pytest.raises(kind):
        await read()


async def test_leaving_a_stream_early_closes_the_connection(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([Completion("word " * 100, piece_delay=0.05)])
    async with model_of().stream(asking()) as stream:
        assert await anext(stream)
    await _abandoned(server)


async def test_a_stream_without_an_end_is_given_up_at_a_size(
    server: ModelServer, model_of: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("http.loop_client", "litellm.reply"):
        monkeypatch.setattr(f"flowengine.models.{module}._LARGEST", 3_000)
    server.respond_with([Completion("word " * 100, piece_delay=0.05)])
    async with model_of().stream(asking()) as stream:
        assert await anext(stream)
        with pytest.raises(PermanentModelError, match="the server's answer has more than 3,000 "):
            _ = [piece async for piece in stream]
    await _abandoned(server)


async def test_calls_of_one_event_loop_share_a_connection(server: ModelServer, model_of: MakeModel) -> None:
    for _ in range(3):
        await model_of().complete(asking())
    async with model_of().stream(asking()) as stream:
        assert [piece async for piece in stream]
    assert {each.connection for each in server.requests} == {1}


async def test_a_stream_that_fails_after_its_beginning_may_be_billed(server: ModelServer, model_of: MakeModel) -> None:
    server.respond_with([StreamFailure("a long answer that ends in an error"), Failure(500)])
    told = [(await error_of(tap_model(model_of(), lambda *_: None))).unanswered for _ in range(2)]
    assert told == [1, 0]
