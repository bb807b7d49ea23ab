"""Flows as models and as streams for pages, asked by the clients that people have: one server for all the tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import httpx2
import mcp_types as types
import openai
import openai.types.chat
import openai.types.responses
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from tests.support.chat_server import ChatServer, chat_server
from tests.support.node import run_node_script
from tests.support.plain_http import NO_TLS
from tests.support.small_png import small_png

ROOT = Path(__file__).parents[3]
OFFLINE = "Bees fly.\n(Offline stand-in, no language model: these are sentences of the prompt.)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    with chat_server(tmp_path_factory.mktemp("chat"), [ROOT / "flows/support_triage.yaml"]) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: ChatServer) -> Iterator[openai.OpenAI]:
    with httpx.Client(trust_env=False, verify=NO_TLS, timeout=30) as http:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.ann, http_client=http)


def said(*texts: str) -> list[ChatCompletionMessageParam]:
    """A conversation: a person's texts and the answers, in turn."""
    roles: list[Any] = ["user", "assistant"]
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


def ask(client: openai.OpenAI, model: str, *texts: str, **more: Any) -> str:
    answer = client.chat.completions.create(model=model, messages=said(*texts), **more)
    return answer.choices[0].message.content or ""


# --- The Python SDK


def test_the_models_are_the_flows_of_the_key(client: openai.OpenAI, server: ChatServer) -> None:
    assert {"echo", "poet", "ship"} <= {each.id for each in client.models.list()}
    assert client.models.retrieve("poet").id == "poet"
    ben = client.with_options(api_key=server.ben)
    assert [each.id for each in ben.models.list()] == ["echo"]
    with pytest.raises(openai.NotFoundError):
        ben.models.retrieve("poet")


def test_a_chat_is_answered_and_its_usage_is_the_runs(client: openai.OpenAI, server: ChatServer) -> None:
    answer = client.chat.completions.create(model="poet", messages=said("Bees fly."), temperature=0.3, max_tokens=9)
    assert answer.choices[0].message.content == OFFLINE
    assert answer.usage is not None
    run: Any = server.client.get(f"/runs/{answer.id.removeprefix('chatcmpl-')}").json()
    assert run["usage"]["model_calls"] == 2
    assert answer.usage.total_tokens == run["usage"]["tokens"] > 0
    assert not hasattr(answer.choices[0].message, "reasoning_content")


@pytest.mark.parametrize("progress", [False, True])
def test_a_chat_is_streamed_and_progress_is_told_where_it_is_asked_for(client: openai.OpenAI, progress: bool) -> None:
    text, thought, usage = "", "", None
    stream = client.chat.completions.create(
        model="poet",
        messages=said("Bees fly."),
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"progress": progress},
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            thought += getattr(choice.delta, "reasoning_content", "")
    assert text == OFFLINE
    assert usage is not None
    assert usage.total_tokens > 0
    assert ("plan: succeeded" in thought) is progress


def test_a_question_is_asked_in_words_and_answered_by_the_next_message(client: openai.OpenAI) -> None:
    asked = ask(client, "ship", "v1")
    assert asked.startswith("Ship v1?")
    assert "`ship it` or `hold`" in asked
    unclear = ask(client, "ship", "v1", asked, "ship it not")
    assert unclear.startswith("That was no clear answer")
    assert ask(client, "ship", "v1", asked, "ship it not", unclear, "Ship it, please") == "shipped v1"


def test_of_two_conversations_each_answers_its_own_question(client: openai.OpenAI) -> None:
    first, second = ask(client, "ship", "a"), ask(client, "ship", "b")
    assert ask(client, "ship", "b", second, "hold") == "held"
    assert ask(client, "ship", "a", first, "ship it") == "shipped a"


def test_a_named_conversation_needs_no_earlier_messages(client: openai.OpenAI) -> None:
    header = {"Flowengine-Session": "s1"}
    ask(client, "ship", "v2", extra_headers=header)
    assert ask(client, "ship", "hold", metadata={"session": "another"}).startswith("Ship hold?")
    assert ask(client, "ship", "ship it", extra_headers=header) == "shipped v2"


def test_what_was_said_before_is_the_runs_conversation(client: openai.OpenAI) -> None:
    assert "Kiwis are green." in ask(client, "poet", "Kiwis are green.", "Indeed.", "What did I tell you?")
    ask(client, "poet", "Plums are blue.", metadata={"session": "fruit"})
    assert "Plums are blue." in ask(client, "poet", "What did I tell you?", metadata={"session": "fruit"})
    assert ask(client, "history", "Hi", "Hello!", "And?") == "user:Hi assistant:Hello! user:And?"


def test_sessions_of_conversations_without_a_name_are_not_kept(client: openai.OpenAI, server: ChatServer) -> None:
    answer = client.chat.completions.create(model="poet", messages=said("One.", "Two.", "Three."))
    started: Any = server.service.store.events(answer.id.removeprefix("chatcmpl-"))[0]
    assert started.kept["conversation"][0]["user_input"] == "One."
    assert server.service.store.recall("session", started.settings["session"]) is None


def test_a_response_follows_another(client: openai.OpenAI) -> None:
    first = client.responses.create(model="poet", input="Pears are ripe.")
    second = client.responses.create(model="poet", input="What did I tell you?", previous_response_id=first.id)
    assert "Pears are ripe." in second.output_text
    assert first.usage is not None
    assert first.usage.total_tokens > 0
    alone = client.responses.create(model="poet", input="What did I tell you?", store=False)
    assert "Pears" not in alone.output_text
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="poet", input="x", previous_response_id=alone.id)


def test_a_response_that_asks_is_answered_by_the_one_that_follows_it(client: openai.OpenAI) -> None:
    asked = client.responses.create(model="ship", input="v3")
    unclear = client.responses.create(model="ship", input="hm", previous_response_id=asked.id)
    answered = client.responses.create(model="ship", input="ship it", previous_response_id=unclear.id)
    assert (answered.id, answered.output_text) == (asked.id, "shipped v3")


def test_a_response_is_streamed_with_what_was_thought(client: openai.OpenAI) -> None:
    with client.responses.stream(model="poet", input="Bees fly.", reasoning={"summary": "auto"}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == OFFLINE
    assert [each.type for each in final.output] == ["reasoning", "message"]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"


def finished(client: openai.OpenAI, response_id: str) -> openai.types.responses.Response:
    """The response, once it goes on no more."""
    deadline = time.monotonic() + 30
    while (found := client.responses.retrieve(response_id)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_a_response_in_the_background_is_retrieved(client: openai.OpenAI, server: ChatServer) -> None:
    begun = client.responses.create(model="poet", input="Bees fly.", background=True, metadata={"order": "7"})
    assert (begun.status, begun.background, begun.output_text) == ("in_progress", True, "")
    found = finished(client, begun.id)
    assert (found.id, found.status, found.output_text) == (begun.id, "completed", OFFLINE)
    assert found.usage is not None
    assert found.usage.total_tokens > 0
    assert (found.metadata or {})["order"] == "7"
    with pytest.raises(openai.NotFoundError):
        client.with_options(api_key=server.ben).responses.retrieve(begun.id)
    with pytest.raises(openai.BadRequestError, match="is stored"):
        client.responses.create(model="poet", input="x", background=True, store=False)


def test_responses_that_ask_fail_or_were_not_stored_are_retrieved_as_they_stand(client: openai.OpenAI) -> None:
    asked = client.responses.create(model="ship", input="v4")
    assert client.responses.retrieve(asked.id).output_text == asked.output_text
    client.responses.create(model="ship", input="ship it", previous_response_id=asked.id)
    assert client.responses.retrieve(asked.id).output_text == "shipped v4"
    failed = finished(client, client.responses.create(model="fail", input="x", background=True).id)
    assert failed.error is not None
    assert (failed.status, "no such thing" in failed.error.message) == ("failed", True)
    for missing in (client.responses.create(model="echo", input="x", store=False).id, "resp_nobody"):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(missing)


def test_a_response_in_the_background_is_cancelled_once(client: openai.OpenAI) -> None:
    begun = client.responses.create(model="slow", input="x", background=True)
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.cancel(begun.id).status == "cancelled"
    done = client.responses.create(model="echo", input="x")
    assert client.responses.cancel(done.id).status == "completed"


def test_who_streams_a_response_in_the_background_may_leave_it(client: openai.OpenAI) -> None:
    with client.responses.create(model="slow", input="x", background=True, stream=True) as stream:
        first = next(iter(stream))
    assert first.type == "response.created"
    assert client.responses.retrieve(first.response.id).status == "in_progress"
    client.responses.cancel(first.response.id)


PNG = f"data:image/png;base64,{b64encode(small_png()).decode()}"


def test_an_image_goes_to_the_flows_input_for_files(client: openai.OpenAI) -> None:
    told = f"What is it? image/png {len(small_png())}"
    parts: Any = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PNG}]
    assert client.responses.create(model="look", input=[{"role": "user", "content": parts}]).output_text == told
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PNG}}]
    answer = client.chat.completions.create(model="look", messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == told
    parts = [{"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,SGk="}]
    for model, refusal in (("look", "image/png"), ("echo", "takes no files")):
        with pytest.raises(openai.APIStatusError, match=refusal):
            client.responses.create(model=model, input=[{"role": "user", "content": parts}])


VENDORS_TYPES: dict[str, tuple[str, dict[str, Any], Any, Any]] = {
    "chat": (
        "/v1/chat/completions",
        {"model": "poet", "messages": said("Bees fly."), "stream_options": {"include_usage": True}, "progress": True},
        openai.types.chat.ChatCompletion,
        openai.types.chat.ChatCompletionChunk,
    ),
    "response": (
        "/v1/responses",
        {"model": "poet", "input": "Bees fly.", "reasoning": {"summary": "auto"}},
        openai.types.responses.Response,
        openai.types.responses.ResponseStreamEvent,
    ),
}


@pytest.mark.parametrize("name", VENDORS_TYPES)
def test_bodies_and_pieces_are_of_the_vendors_types(server: ChatServer, name: str) -> None:
    """The client itself checks nothing: a field that is missing is None to it, whatever its type says."""
    path, asked, whole, piece = VENDORS_TYPES[name]
    TypeAdapter(whole).validate_json(server.client.post(path, json=asked).text, strict=True)
    lines = server.client.post(path, json={**asked, "stream": True}).text.splitlines()
    pieces = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    assert len(pieces) > 5
    for each in pieces:
        TypeAdapter(piece).validate_json(each, strict=True)


@pytest.mark.parametrize(
    ("model", "more", "error", "code"),
    [
        ("nothing", {}, openai.NotFoundError, "model_not_found"),
        ("fail", {}, openai.UnprocessableEntityError, "run_failed"),
        ("vague", {}, openai.BadRequestError, None),
        ("echo", {"extra_body": {"inputs": {"mark": "x"}}}, openai.BadRequestError, None),
        ("echo", {"extra_body": {"inputs": {"message": "x"}}}, openai.BadRequestError, None),
        ("echo", {"n": 2}, openai.BadRequestError, None),
    ],
)
def test_errors_have_openais_shape_and_are_not_repeated(
    client: openai.OpenAI, server: ChatServer, model: str, more: Any, error: type[openai.APIStatusError], code: Any
) -> None:
    before = len(server.client.get("/runs?flow=fail").json()["runs"])
    with pytest.raises(error) as refused:
        ask(client, model, "hello", **more)
    assert refused.value.code == code
    assert refused.value.type
    runs = len(server.client.get("/runs?flow=fail").json()["runs"])
    assert runs - before == (model == "fail"), "a run that fails is paid for once"


def test_a_stream_that_fails_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="no such thing"):
        list(client.chat.completions.create(model="fail", messages=said("x"), stream=True))


def test_other_inputs_go_beside_the_messages(client: openai.OpenAI) -> None:
    assert ask(client, "echo", "really", extra_body={"inputs": {"mark": "?"}}) == "really?"


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_breaks_no_answer(server: ChatServer, stream: bool) -> None:
    for path, body in (
        ("/v1/chat/completions", {"model": "odd", "messages": said("x"), "stream": stream}),
        ("/v1/responses", {"model": "odd", "input": "x", "stream": stream}),
        ("/ag-ui/odd", {"threadId": "o", "runId": "o", "messages": said("x")}),
        ("/ai-sdk/odd", {"id": "o", "messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]}),
    ):
        answer = server.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert "a\\ud83db" in answer.text or "a\ufffdb" in answer.text, answer.text


def test_what_is_no_list_of_parts_is_the_callers_mistake(server: ChatServer) -> None:
    for role in ("user", "assistant"):
        answer = server.client.post("/ai-sdk/echo", json={"id": "o", "messages": [{"role": role, "parts": 5}]})
        assert (answer.status_code, "is not of type 'array'" in answer.json()["detail"]) == (422, True)


def test_an_answer_that_fits_no_question_of_the_run_decides_nothing(server: ChatServer) -> None:
    asked = {"threadId": "fit", "runId": "1", "messages": said("v1")}
    run_id = server.client.post("/ag-ui/ship", json=asked).headers["flowengine-run"]

    def answer(flow: str, *questions: str) -> tuple[int, str]:
        resume = [
            {"interruptId": f"{run_id}/{each}", "status": "resolved", "payload": {"choice": "ship it"}}
            for each in questions
        ]
        refused = server.client.post(f"/ag-ui/{flow}", json={**asked, "resume": resume})
        return refused.status_code, refused.json()["detail"]

    question = server.client.get(f"/runs/{run_id}").json()["questions"][0]["node"]
    unknown = f"run '{run_id}' has no question '{question}s'; did you mean '{question}'?"
    assert answer("ship", f"{question}s") == (422, unknown)
    assert answer("ship", question, question) == (422, "a question has one answer")
    assert answer("echo", question) == (422, f"run '{run_id}' is of the flow 'ship', not of 'echo'")
    assert server.client.get(f"/runs/{run_id}").json()["status"] == "waiting"


def test_a_repeated_call_with_a_key_finds_the_run(client: openai.OpenAI) -> None:
    header = {"Idempotency-Key": "chat-1"}
    first = client.chat.completions.create(model="poet", messages=said("A.", "B.", "C."), extra_headers=header)
    again = client.chat.completions.create(model="poet", messages=said("A.", "B.", "C."), extra_headers=header)
    assert first.id == again.id
    assert first.choices == again.choices
    with pytest.raises(openai.UnprocessableEntityError):
        ask(client, "poet", "D.", extra_headers=header)


def test_an_answer_that_is_repeated_with_its_key_finds_its_run(client: openai.OpenAI) -> None:
    asked = ask(client, "ship", "v9")
    header = {"Idempotency-Key": "answer-1"}
    first = client.chat.completions.create(model="ship", messages=said("v9", asked, "ship it"), extra_headers=header)
    again = client.chat.completions.create(model="ship", messages=said("v9", asked, "ship it"), extra_headers=header)
    assert (first.id, first.choices[0].message.content) == (again.id, again.choices[0].message.content)
    assert first.choices[0].message.content == "shipped v9"
    with pytest.raises(openai.UnprocessableEntityError):
        ask(client, "ship", "v9", asked, "hold", extra_headers=header)


def test_a_client_that_goes_away_cancels_its_run_unless_it_has_a_key(server: ChatServer) -> None:
    body = {"model": "slow", "messages": said("x"), "stream": True}
    runs: list[str] = []
    for headers in ({"Idempotency-Key": "gone"}, {}):
        with server.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            runs.append(answer.headers["flowengine-run"])
            next(answer.iter_lines())
    kept, heard = runs
    assert "event: error" in server.client.get(f"/runs/{heard}/events").text, "the events end with the run"
    assert server.client.get(f"/runs/{heard}").json()["status"] == "cancelled"
    assert server.client.get(f"/runs/{kept}").json()["status"] == "running"
    server.client.post(f"/runs/{kept}/cancel")


def test_one_that_waits_for_the_whole_answer_and_goes_away_cancels_its_run(server: ChatServer) -> None:
    body = {"model": "slow", "messages": said("x"), "metadata": {"session": "whole"}}
    with pytest.raises(httpx.ReadTimeout):
        server.client.post("/v1/chat/completions", json=body, timeout=httpx.Timeout(30, read=0.3))
    newest = server.client.get("/runs?flow=slow").json()["runs"][0]["run_id"]
    assert "event: error" in server.client.get(f"/runs/{newest}/events").text
    assert server.client.get(f"/runs/{newest}").json()["status"] == "cancelled"


def test_the_page_runs_as_it_stands(server: ChatServer) -> None:
    page = (ROOT / "flowengine/docs/openai.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(
        compile(block.replace("http://127.0.0.1:8000", server.url).replace("fe_…", server.ann), "openai.md", "exec"),
        names,
    )
    assert "harged twice" in names["answer"].choices[0].message.content
    names["flows"].close()


# --- litellm, MCP over HTTP, and what npm has


LITELLM = """
import json, os, litellm
asked = {"model": "openai/poet", "api_base": os.environ["URL"] + "/v1", "api_key": os.environ["KEY"],
         "messages": [{"role": "user", "content": "Bees fly."}]}
whole = litellm.completion(**asked)
pieces = [each.choices[0].delta.content or "" for each in litellm.completion(**asked, stream=True)]
try:
    litellm.completion(**{**asked, "model": "openai/fail"})
except Exception as error:
    refused = getattr(error, "status_code", None)
print(json.dumps([whole.choices[0].message.content, whole.usage.total_tokens, "".join(pieces), refused]))
"""


@pytest.mark.long
def test_litellm_asks_a_flow_as_a_model(server: ChatServer) -> None:
    environ = {**os.environ, "URL": server.url, "KEY": server.ann, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    before = len(server.client.get("/runs?flow=fail").json()["runs"])
    done = subprocess.run(  # A process of its own: the library leaves an event loop behind.
        [sys.executable, "-W", "ignore", "-c", LITELLM],
        capture_output=True, text=True, timeout=120, check=False, env=environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text, tokens, streamed, refused = json.loads(done.stdout.splitlines()[-1])
    assert (text, streamed, refused) == (OFFLINE, OFFLINE, 422)
    assert tokens > 0
    assert len(server.client.get("/runs?flow=fail").json()["runs"]) - before == 1, "it does not repeat what failed"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_mcp_over_http_has_the_tools_of_the_key(server: ChatServer, mode: str) -> None:
    headers = {"Authorization": f"Bearer {server.ben}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, verify=NO_TLS) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client,
    ):
        names = [each.name for each in (await client.list_tools()).tools]
        assert names[0] == "echo"
        assert "poet" not in names
        result = await client.call_tool("echo", {"message": "hello"})
        assert result.structured_content is not None
        assert result.structured_content["outputs"] == {"reply": "hello!"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_mcp_over_http_puts_questions_to_the_clients_user(server: ChatServer, mode: str) -> None:
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"choice": "ship it"})

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.ann}"}, trust_env=False, verify=NO_TLS) as http,
        Client(
            streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode, elicitation_callback=elicit
        ) as client,
    ):
        result = await client.call_tool("ship", {"message": "v4"})
    assert result.structured_content is not None
    assert result.structured_content["outputs"] == {"reply": "shipped v4"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_over_http_that_is_cancelled_cancels_its_run(server: ChatServer, mode: str) -> None:
    began = anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        began.set()

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.ann}"}, trust_env=False, verify=NO_TLS) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.call_tool("slow", {"message": "x"}, progress_callback=hear))
            await began.wait()
            tasks.cancel_scope.cancel()
        newest = server.client.get("/runs?flow=slow").json()["runs"][0]["run_id"]
        events = await anyio.to_thread.run_sync(server.client.get, f"/runs/{newest}/events")
        assert "event: error" in events.text, "the events end with the run"
    assert server.client.get(f"/runs/{newest}").json()["status"] == "cancelled"


@pytest.fixture(scope="module")
def told(server: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the clients of npm were told, in one process."""
    script = (Path(__file__).parents[2] / "support" / "chat_clients.mjs").read_text()
    packages = ["openai", "ai", "@ai-sdk/openai-compatible", "@ag-ui/client"]
    return run_node_script(script, packages, {"URL": server.url, "KEY": server.ann}, tmp_path_factory.mktemp("node"))


def test_the_node_sdk_asks_a_flow_as_a_model(told: Any) -> None:
    found = told["openai"]
    assert "poet" in found["models"]
    assert (found["whole"], found["response"], found["final"]) == ("hello!", "hello!", "hello!")
    assert found["streamed"] == OFFLINE
    assert found["usage"]["total_tokens"] > 0
    assert found["refused"] == [422, "run_failed"]


def test_the_ai_sdk_asks_a_flow_as_a_model(told: Any) -> None:
    assert (told["compatible"]["text"], told["compatible"]["streamed"]) == ("hello!", "hello!")


def test_the_ai_sdk_shows_steps_text_tools_and_outputs(told: Any) -> None:
    poet, clerk = (told["aisdk"][name]["parts"] for name in ("poet", "clerk"))
    steps = [each["data"] for each in poet if each["type"] == "data-node"]
    assert steps == [{"node": "plan", "status": "succeeded"}, {"node": "write", "status": "succeeded"}]
    assert [each["text"] for each in poet if each["type"] == "text"] == [OFFLINE]
    assert told["aisdk"]["poet"]["metadata"]["usage"]["totalTokens"] > 0
    (tool,) = (each for each in clerk if each["type"] == "dynamic-tool")
    assert (tool["toolName"], tool["state"], tool["input"]) == ("look_up", "output-available", {"number": "17"})


def test_the_ai_sdk_answers_a_question_by_a_tools_output(told: Any) -> None:
    assert told["aisdk"]["question"]["input"]["choices"] == ["ship it", "hold"]
    assert told["aisdk"]["question"]["state"] == "input-available"
    assert [each["text"] for each in told["aisdk"]["done"]["parts"] if each["type"] == "text"] == ["shipped v2"]
    assert "A key is needed" in told["aisdk"]["refused"]


def test_ag_ui_shows_steps_text_tools_and_outputs(told: Any) -> None:
    poet, clerk = told["agui"]["poet"], told["agui"]["clerk"]
    kinds = [each["type"] for each in poet["events"]]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] == "RUN_FINISHED"
    assert kinds.count("STEP_STARTED") == kinds.count("STEP_FINISHED") == 2
    assert [each["content"] for each in poet["newMessages"] if each["role"] == "assistant"] == [OFFLINE]
    assert [each["role"] for each in clerk["newMessages"]] == ["assistant", "tool", "assistant"]
    assert told["agui"]["vague"]["result"] == {"say": "ab"}, "inputs alone start a flow that no message starts"


def test_ag_ui_answers_a_question_by_resuming_an_interrupt(told: Any) -> None:
    (interrupt,) = told["agui"]["interrupts"]
    assert interrupt["responseSchema"]["properties"]["choice"]["enum"] == ["ship it", "hold"]
    assert told["agui"]["done"]["result"] == {"reply": "shipped v3"}
