"""Through the real litellm to the local model server."""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import sniffio
from model_server import Completion, Failure, ModelServer, ToolCall

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import run_sync
from flowengine.core.secret_values import Secrets
from flowengine.errors import ModelError, TransientModelError
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.litellm.reply import PieceCollector, as_model_error, read_reply
from flowengine.models.messages import Message
from flowengine.models.model import Model, Request
from flowengine.models.open import get_llm
from tests.support.quiet_ports import quiet_port

QUESTION = (Message("system", "Be brief."), Message("user", "hi"))
SCHEMA = {"type": "object", "properties": {"route": {"enum": ["a", "b"]}}, "required": ["route"]}


pytestmark = pytest.mark.usefixtures("litellm_is_loaded")


def model_of(server: ModelServer, name: str = "gpt-4o-mini", **settings: Any) -> LiteLLMModel:
    return LiteLLMModel(name, "openai", settings={"api_base": server.url, "api_key": "secret", **settings})


def asking(**more: Any) -> Request:
    return Request("gpt-4o-mini", QUESTION, **{"timeout": 10.0, **more})


async def error_of(model: Model, request: Request | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request or asking())
    return caught.value


# --- what is sent and what comes back


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


async def test_nobody_listening_is_transient() -> None:
    model = LiteLLMModel("gpt-4o-mini", "openai", settings={"api_base": "http://127.0.0.1:9/v1", "api_key": "x"})
    assert isinstance(await error_of(model), TransientModelError)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama", "groq", "google", "hosted_vllm", "lmstudio"])
async def test_an_error_of_a_connection_says_where_and_holds_no_words_of_the_library(provider: str) -> None:
    base = f"http://127.0.0.1:{quiet_port()}"
    model = get_llm(f"{provider}/m", environ={}, api_key="sk-1234567", api_base=base, max_retries=0)
    told = str(await error_of(model))
    assert told.startswith(f"{provider}/m: no connection to {base}")
    assert not re.search(r"0x|object at|litellm|Exception|ssl:", told)


@pytest.mark.parametrize("provider", ["openai", "groq", "hosted_vllm", "lmstudio"])
async def test_an_error_of_a_server_is_its_message_alone(server: ModelServer, provider: str) -> None:
    server.respond_with([Failure(500, "model overloaded")])
    model = get_llm(f"{provider}/m", environ={}, api_key="sk-1234567", api_base=server.url, max_retries=0)
    assert str(await error_of(model)) == f"{provider}/m: model overloaded"


async def test_a_key_that_a_request_names_is_told_nobody_either(server: ModelServer) -> None:
    key = "sk-own-0123456789"
    request = asking(extra={"api_key": key})
    server.respond_with([Failure(401, f"the key {key} is wrong"), f"your key is {key}"])
    assert key not in str(await error_of(model_of(server), request))
    assert key not in (await model_of(server).complete(request)).content
    assert [each.headers["authorization"] for each in server.requests] == [f"Bearer {key}"] * 2


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


# --- streams


async def test_pieces_that_come_after_the_reader_has_left_are_dropped(server: ModelServer) -> None:
    """Raised in a callback of the reader's loop, an error would be nobody's; a loop of trio would end."""
    server.respond_with([Completion("word " * 300)] * 3)
    failures: list[Any] = []
    if sniffio.current_async_library() == "asyncio":
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    for _ in range(3):
        async with model_of(server).stream(asking()) as stream:
            assert await anext(stream)
        await anyio.sleep(0.1)
    assert failures == []


# --- how it lives with its surroundings


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


# --- without litellm: what its answers and errors are read as


def test_a_key_in_what_a_vendor_wants_back_is_told_nobody() -> None:
    key = "sk-own-0123456789"
    block = {"type": "thinking", "thinking": f"the key is {key}", "signature": "s"}
    call = {"id": "1", "function": {"name": "add", "arguments": "{}"}}
    message = {"content": "", "tool_calls": [call], "thinking_blocks": [block]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "model": "m"}
    response = SimpleNamespace(model_dump=lambda: body, _hidden_params={})
    (kept,) = read_reply(response, "anthropic", "m", 0.1, Secrets([key])).vendor_parts
    assert (kept["thinking"], kept["signature"]) == ("the key is [hidden]", "s")


def test_thinking_that_comes_bit_by_bit_is_put_together() -> None:
    deltas: list[dict[str, Any]] = [
        {"thinking_blocks": [{"type": "thinking", "thinking": "Let me ", "signature": None, "index": 0}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "see.", "signature": ""}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "s1"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "More."}, {"type": "redacted_thinking", "data": "x"}]},
        {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "add", "arguments": "{}"}}]},
    ]
    collector = PieceCollector(None, "anthropic", "m", "anthropic/m", Secrets([]))
    for delta in deltas:
        body = {"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}
        collector.add(SimpleNamespace(model_dump=partial(dict, body)))
    assert collector.reply(0.1).vendor_parts == (
        {"type": "thinking", "thinking": "Let me see.", "signature": "s1"},
        {"type": "thinking", "thinking": "More.", "signature": ""},
        {"type": "redacted_thinking", "data": "x"},
    )


def test_an_address_whose_password_has_a_slash_is_not_told() -> None:
    error = as_model_error(OSError("Connection error."), "openai", "m", Secrets([]), "http://me:wo/rd@models.example")
    assert str(error) == "openai/m: no connection to the server"


def test_an_error_of_endless_json_is_told_as_it_is() -> None:
    told = str(as_model_error(ValueError('{"error":' * 100_000), "openai", "m", Secrets([])))
    assert told.startswith('openai/m: {"error":')
