"""Through the real litellm to the local model server."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import sniffio
from model_server import Completion, Failure, Hang, ModelServer, ToolCall, Truncated

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import run_sync
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Model, Reply, Request, TokenUsage
from flowengine.models.open import get_llm
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel

QUESTION = (Message("system", "Be brief."), Message("user", "hi"))
USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 600},
}
SCHEMA = {"type": "object", "properties": {"route": {"enum": ["a", "b"]}}, "required": ["route"]}


@pytest.fixture(scope="session", autouse=True)
def litellm_is_loaded() -> None:
    """Importing it takes seconds: once, before a test's clock runs."""
    with ModelServer() as server:
        anyio.run(model_of(server).complete, asking())


def model_of(server: ModelServer, name: str = "gpt-4o-mini", **settings: Any) -> LiteLLMModel:
    return LiteLLMModel(name, "openai", settings={"api_base": server.url, "api_key": "secret", **settings})


def asking(**more: Any) -> Request:
    return Request("gpt-4o-mini", QUESTION, **{"timeout": 10.0, **more})


async def error_of(model: Model, request: Request | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request or asking())
    return caught.value


# --- what is sent and what comes back


async def test_a_request_arrives_as_it_was_asked_and_nothing_is_added(server: ModelServer) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    request = asking(temperature=0.3, max_tokens=7, tools=(tool,), extra={"top_p": 0.9, "seed": 5})
    await model_of(server).complete(request)
    assert server.requests[0].body == {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "temperature": 0.3,
        "max_tokens": 7,
        "tools": [tool],
        "top_p": 0.9,
        "seed": 5,
    }
    assert server.requests[0].headers["authorization"] == "Bearer secret"


async def test_a_reply_has_usage_cached_tokens_and_cost(server: ModelServer) -> None:
    server.respond_with([Completion("hello", usage=USAGE, finish_reason="length")])
    reply = await model_of(server).complete(asking())
    assert reply.content == "hello"
    assert reply.usage == TokenUsage(1000, 100, 600)
    assert reply.cost_usd == pytest.approx(400 * 0.15e-6 + 600 * 0.075e-6 + 100 * 0.6e-6)
    assert (reply.finish_reason, reply.model, reply.provider, reply.attempts) == ("length", "gpt-4o-mini", "openai", 1)
    assert 0 < reply.seconds < 10


async def test_an_unknown_price_and_untold_usage_stay_unknown(server: ModelServer) -> None:
    server.respond_with([Completion("a", usage=USAGE), Completion("b", usage={})])
    assert (await model_of(server, "a-model-of-my-own").complete(asking())).cost_usd is None
    untold = await model_of(server).complete(asking())
    assert (untold.usage, untold.cost_usd) == (TokenUsage(), None)


async def test_tool_calls_come_as_the_model_wrote_them(server: ModelServer) -> None:
    server.respond_with([ToolCall("look", '{"at": brok', id="c9")])
    reply = await model_of(server).complete(asking())
    assert (reply.tool_calls, reply.content) == ((ToolRequest("c9", "look", '{"at": brok'),), "")
    assert reply.finish_reason == "tool_calls"


async def test_a_schema_is_sent_only_where_the_vendor_follows_it(server: ModelServer) -> None:
    request = asking(response_schema=SCHEMA, response_name="routing")
    known, unknown = model_of(server), model_of(server, "a-model-of-my-own")
    assert (await known.complete(request)).content == '{"route": "a"}'
    await unknown.complete(request)
    sent = [each.body.get("response_format") for each in server.requests]
    assert sent == [{"type": "json_schema", "json_schema": {"name": "routing", "schema": SCHEMA}}, None]
    assert [await known.supports_schema(), await unknown.supports_schema()] == [True, False]


async def test_no_schema_is_sent_beside_tools(server: ModelServer) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    await model_of(server).complete(asking(response_schema=SCHEMA, tools=(tool,)))
    assert "response_format" not in server.requests[0].body
    assert "tools" in server.requests[0].body


async def test_after_its_last_round_of_tools_the_vendor_is_sent_the_schema(server: ModelServer) -> None:
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    server.respond_with([ToolCall("add", '{"a": 1, "b": 2}'), '{"sum": 3}'])
    shape = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    agent = Agent("a", "", model=model_of(server), tools=[add], max_tool_rounds=1, output_model=shape)
    assert (await agent.run_async("x")).result.content == {"sum": 3}
    sent = [("tools" in each.body, "response_format" in each.body) for each in server.requests]
    assert sent == [(True, False), (False, True)]


# --- what goes wrong


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
async def test_what_may_work_later_is_transient(server: ModelServer, status: int) -> None:
    server.respond_with(lambda body: Failure(status, "try later"))
    error = await error_of(model_of(server))
    assert isinstance(error, TransientModelError)
    assert str(error) == "openai/gpt-4o-mini: try later"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_will_never_work_is_permanent(server: ModelServer, status: int) -> None:
    server.respond_with(lambda body: Failure(status, "no such luck"))
    error = await error_of(model_of(server))
    assert isinstance(error, PermanentModelError)
    assert str(error) == "openai/gpt-4o-mini: no such luck"
    assert len(server.requests) == 1


async def test_a_spent_quota_is_permanent_although_it_is_a_429(server: ModelServer) -> None:
    server.respond_with([Failure(429, "You exceeded your current quota", code="insufficient_quota")])
    assert isinstance(await error_of(model_of(server)), PermanentModelError)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(2, 2.0), (0.5, 0.5), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0), ("soon", None), ("-3", None), ("nan", None)],
)
async def test_retry_after_is_read(server: ModelServer, header: Any, seconds: float | None) -> None:
    server.respond_with([Failure(429, retry_after=header)])
    error = await error_of(model_of(server))
    assert isinstance(error, TransientModelError)
    assert error.retry_after == seconds


async def test_a_refusal_is_a_permanent_error(server: ModelServer) -> None:
    server.respond_with(
        [Completion(None, refusal="I would rather not"), Completion("", finish_reason="content_filter")]
    )
    assert str(await error_of(model_of(server))) == "openai/gpt-4o-mini refused to answer: I would rather not"
    second = await error_of(model_of(server))
    assert isinstance(second, PermanentModelError)
    assert second.reply.usage.prompt_tokens > 0  # It is on the bill.


async def test_an_answer_that_is_cut_off_is_transient(server: ModelServer) -> None:
    server.respond_with([Truncated()])
    assert isinstance(await error_of(model_of(server)), TransientModelError)


async def test_nobody_listening_is_transient() -> None:
    model = LiteLLMModel("gpt-4o-mini", "openai", settings={"api_base": "http://127.0.0.1:9/v1", "api_key": "x"})
    assert isinstance(await error_of(model), TransientModelError)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama", "groq", "google", "hosted_vllm", "lmstudio"])
async def test_an_error_of_a_connection_says_where_and_holds_no_words_of_the_library(provider: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    model = get_llm(f"{provider}/m", environ={}, api_key="sk-1234567", api_base=base, max_retries=0)
    told = str(await error_of(model))
    assert told.startswith(f"{provider}/m: no connection to {base}")
    assert not re.search(r"0x|object at|litellm|Exception|ssl:", told)


@pytest.mark.parametrize("provider", ["openai", "groq", "hosted_vllm", "lmstudio"])
async def test_an_error_of_a_server_is_its_message_alone(server: ModelServer, provider: str) -> None:
    server.respond_with([Failure(500, "model overloaded")])
    model = get_llm(f"{provider}/m", environ={}, api_key="sk-1234567", api_base=server.url, max_retries=0)
    assert str(await error_of(model)) == f"{provider}/m: model overloaded"


async def test_models_that_all_fail_are_each_named_once() -> None:
    names, nowhere = ("ollama/a", "ollama/b"), "http://127.0.0.1:9"
    models = [get_llm(name, environ={}, api_base=nowhere, max_retries=0) for name in names]
    told = str(await error_of(FallbackModel(models)))
    assert told.count("ollama/a") == told.count("ollama/b") == 1


async def test_a_timeout_cancels_the_call(server: ModelServer) -> None:
    server.respond_with([Hang()])
    started = time.monotonic()
    error = await error_of(model_of(server), asking(timeout=1))
    assert isinstance(error, TransientModelError)
    assert str(error) == "openai/gpt-4o-mini did not answer within 1 s"
    assert time.monotonic() - started < 10
    await _abandoned(server)


async def test_being_cancelled_closes_the_connection(server: ModelServer) -> None:
    server.respond_with([Hang()])
    with anyio.move_on_after(1) as scope:
        await model_of(server).complete(asking())
    assert scope.cancelled_caught
    await _abandoned(server)


async def _abandoned(server: ModelServer) -> None:
    with anyio.fail_after(20):
        while not server.requests[0].abandoned:  # noqa: ASYNC110  # the server lives in another thread
            await anyio.sleep(0.01)


class LateThread(ThreadPoolExecutor):
    """Calls `begun` when its first work is done, and hands the result out after `close`."""

    def __init__(self, begun: Callable[[], object]) -> None:
        super().__init__(1)
        self._begun, self._closed = begun, threading.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def work() -> Any:
            result = fn(*args, **kwargs)
            self._begun()
            self._closed.wait(60)
            return result

        return super().submit(work)

    def close(self) -> None:
        self._closed.set()
        self.shutdown()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_that_is_cancelled_before_it_is_sent_is_no_coroutine_to_be_warned_of(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    loop, scope = asyncio.get_running_loop(), anyio.CancelScope()
    thread = LateThread(partial(loop.call_soon_threadsafe, scope.cancel))
    loop.set_default_executor(thread)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with scope:
            await model_of(server).complete(asking())
        thread.close()
        await anyio.lowlevel.checkpoint()
        gc.collect()
    assert (scope.cancelled_caught, server.requests, failures) == (True, [], [])


async def test_with_retries_a_busy_server_is_answered_in_the_end(server: ModelServer) -> None:
    server.respond_with([Failure(429, retry_after=0.3), Failure(503), "at last"])
    reply = await RetryingModel(model_of(server), first_wait=0.001).complete(asking())
    assert (reply.content, reply.attempts) == ("at last", 3)
    first, second, _ = server.requests
    assert second.arrived - first.arrived >= 0.29


# --- streams


async def test_a_stream_comes_in_pieces_and_ends_in_the_reply(server: ModelServer) -> None:
    server.respond_with(
        ["the first stream loads more of litellm", Completion("a text of some length", usage=USAGE, piece_delay=0.2)]
    )
    async with model_of(server).stream(asking()) as stream:
        assert [piece async for piece in stream]
    async with model_of(server).stream(asking()) as stream:
        pieces = [(time.time(), piece) async for piece in stream]
    *texts, reply = [piece for _, piece in pieces]
    assert len(texts) > 1
    assert "".join(texts) == reply.content == "a text of some length"
    assert reply.usage == TokenUsage(1000, 100, 600)
    assert reply.cost_usd == pytest.approx(400 * 0.15e-6 + 600 * 0.075e-6 + 100 * 0.6e-6)
    assert server.requests[1].answered is not None
    assert pieces[0][0] < server.requests[1].answered


async def test_a_streamed_tool_call_is_put_together(server: ModelServer) -> None:
    server.respond_with([Completion("", tool_calls=(ToolCall("look", {"at": 1}), ToolCall("hear", {}, id="call_2")))])
    async with model_of(server).stream(asking()) as stream:
        (reply,) = [piece async for piece in stream]
    assert isinstance(reply, Reply)
    assert reply.tool_calls == (ToolRequest("call_1", "look", '{"at": 1}'), ToolRequest("call_2", "hear", "{}"))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Failure(429, retry_after=3), TransientModelError),
        (Failure(401), PermanentModelError),
        (Truncated("a long text that breaks off " * 5), TransientModelError),
        (Hang(), TransientModelError),
    ],
)
async def test_a_stream_fails_like_a_call(server: ModelServer, answer: Any, kind: type[Exception]) -> None:
    server.respond_with([answer])

    async def read() -> None:
        async with model_of(server).stream(asking(timeout=2)) as stream:
            while True:
                await anext(stream)

    with pytest.raises(kind):
        await read()


async def test_leaving_a_stream_early_closes_the_connection(server: ModelServer) -> None:
    server.respond_with([Completion("word " * 100, piece_delay=0.05)])
    async with model_of(server).stream(asking()) as stream:
        assert await anext(stream)
    await _abandoned(server)


async def test_pieces_that_come_after_the_reader_has_left_are_dropped(server: ModelServer) -> None:
    """Raised in a callback of the reader's loop, an error would be nobody's; a loop of trio would end."""
    server.respond_with([Completion("word " * 2000)] * 3)
    failures: list[Any] = []
    if sniffio.current_async_library() == "asyncio":
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    for _ in range(3):
        async with model_of(server).stream(asking()) as stream:
            assert await anext(stream)
        await anyio.sleep(0.1)
    assert failures == []


# --- how it lives with its surroundings


async def test_calls_of_one_event_loop_share_a_connection(server: ModelServer) -> None:
    for _ in range(3):
        await model_of(server).complete(asking())
    async with model_of(server).stream(asking()) as stream:
        assert [piece async for piece in stream]
    assert {each.connection for each in server.requests} == {1}


def test_calls_of_synchronous_code_and_of_trio_share_a_connection(server: ModelServer) -> None:
    for _ in range(3):
        run_sync(lambda: model_of(server).complete(asking()))
        anyio.run(model_of(server).complete, asking(), backend="trio")
    assert {each.connection for each in server.requests} == {1}


@pytest.mark.long
def test_many_loops_one_after_the_other_leave_no_connection_and_no_word(server: ModelServer) -> None:
    then = """
import asyncio, os
request = Request("m", (Message("user", "hi"),))
async def complete():
    await model.complete(request)
async def stream():
    async with model.stream(request) as pieces:
        async for _ in pieces:
            pass
def held():
    return len(os.listdir("/proc/self/fd"))
asyncio.run(complete())
before = held()
for _ in range(30):
    asyncio.run(complete())
    asyncio.run(stream())
print(held() - before)
"""
    done = run_python(CALL.format(url=server.url, then=then))
    assert done.stderr == ""
    assert int(done.stdout) <= 1
    assert len({each.connection for each in server.requests}) == 61


async def test_hundreds_of_calls_wait_at_once(server: ModelServer) -> None:
    server.latency = 0.3
    started = time.monotonic()
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(model_of(server).complete, asking(timeout=60))
    assert len(server.requests) == 100
    assert time.monotonic() - started < 20  # one after the other they would take 30 s


async def test_warnings_as_errors_do_not_break_a_call(server: ModelServer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await model_of(server).complete(asking())


CALL = """
import anyio, sys
from flowengine.models.open import get_llm
from flowengine.models.wrappers.retrying import FallbackModel
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message
from flowengine.models.model import Request
model = LiteLLMModel("gpt-4o-mini", "openai", settings={{"api_base": {url!r}, "api_key": "x"}})
model.preload()
model.preload()
{then}
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.long
def test_a_program_with_warnings_as_errors_says_nothing_but_its_own_words(server: ModelServer) -> None:
    server.respond_with(["hello", Failure(500)])
    then = """
request = Request("m", (Message("user", "hi"),))
print(anyio.run(model.complete, request).content)
try:
    anyio.run(model.complete, request, backend="trio")
except Exception as error:
    print(error)
"""
    done = run_python(CALL.format(url=server.url, then=then))
    assert (done.stdout, done.stderr) == ("hello\nopenai/gpt-4o-mini: the server was told to fail\n", "")


def test_a_program_may_end_while_the_import_is_under_way() -> None:
    then = """
import atexit
from flowengine.models.litellm.loading import litellm_ready
atexit.register(lambda: print("still importing" if litellm_ready() is None else "waited for the import"))
"""
    done = run_python(CALL.format(url="", then=then))
    assert (done.returncode, done.stdout, done.stderr) == (0, "still importing\n", "")
