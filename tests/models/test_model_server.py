"""The local model server itself: what tests rely on when they use it."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import model_server
import pytest
from model_server import Completion, Failure, Hang, ModelServer, ToolCall, Truncated

SCHEMA = {
    "type": "object",
    "properties": {
        "route": {"enum": ["publish", "improve"]},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 2},
        "note": {"anyOf": [{"type": "string", "minLength": 8}, {"type": "null"}]},
    },
    "required": ["route", "score", "items", "note"],
    "$defs": {"item": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
}


def ask(connection: http.client.HTTPConnection, **body: Any) -> tuple[http.client.HTTPResponse, bytes]:
    body = {"model": "m", "messages": [{"role": "user", "content": "How  are you?"}], **body}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    response = connection.getresponse()
    return response, response.read()


@pytest.fixture
def connection(server: ModelServer) -> Any:
    client = http.client.HTTPConnection(server.host, server.port, timeout=60)
    yield client
    client.close()


def test_without_a_script_it_repeats_the_question(connection: Any, server: ModelServer) -> None:
    response, body = ask(connection)
    answer = json.loads(body)
    assert response.status == 200
    assert answer["choices"][0]["message"]["content"] == "Answer to: How are you?"
    assert answer["usage"]["total_tokens"] > 0
    assert server.requests[0].answered >= server.requests[0].arrived


def test_a_schema_that_is_asked_for_is_filled_validly(connection: Any) -> None:
    _, body = ask(connection, response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    value = json.loads(json.loads(body)["choices"][0]["message"]["content"])
    jsonschema.validate(value, SCHEMA)
    assert value["route"] == "publish"


def test_answers_of_a_list_come_in_order_and_then_an_error_says_so(connection: Any, server: ModelServer) -> None:
    server.respond_with(["one", Failure(429, retry_after=2), ToolCall("look", {"at": "sky"})])
    assert json.loads(ask(connection)[1])["choices"][0]["message"]["content"] == "one"
    busy, _ = ask(connection)
    assert (busy.status, busy.headers["retry-after"]) == (429, "2")
    call = json.loads(ask(connection)[1])["choices"][0]
    assert call["finish_reason"] == "tool_calls"
    assert call["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "sky"}'}
    spent, body = ask(connection)
    assert spent.status == 400
    assert b"used up" in body


def test_a_responder_that_raises_is_an_error_the_client_sees(connection: Any, server: ModelServer) -> None:
    server.respond_with(lambda body: body["nothing"])
    response, body = ask(connection)
    assert response.status == 400
    assert b"KeyError" in body


def test_a_stream_has_pieces_a_usage_and_an_end(connection: Any, server: ModelServer) -> None:
    server.respond_with([Completion("A text of some length.")])
    _, body = ask(connection, stream=True, stream_options={"include_usage": True})
    events = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(each) for each in events]
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    text = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks if each["choices"])
    assert text == "A text of some length."


def test_a_truncated_answer_breaks_off_in_its_body(connection: Any, server: ModelServer) -> None:
    server.respond_with([Truncated()])
    with pytest.raises(http.client.IncompleteRead):
        ask(connection)


def test_a_client_that_leaves_is_noticed(server: ModelServer) -> None:
    server.respond_with([Hang(), "here"])
    impatient = http.client.HTTPConnection(server.host, server.port, timeout=0.1)
    with pytest.raises(TimeoutError):
        ask(impatient)
    impatient.close()
    deadline = time.monotonic() + 20
    while not (server.requests and server.requests[0].abandoned):  # The server lives in another thread.
        assert time.monotonic() < deadline
        time.sleep(0.01)
    patient = http.client.HTTPConnection(server.host, server.port, timeout=20)
    ask(patient)
    patient.close()
    assert [each.abandoned for each in server.requests] == [True, False]
    assert server.requests[0].answered is None


def test_as_a_process_of_its_own_it_prints_its_port_and_shows_its_requests(tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps([{"Failure": {"status": 503}}, {"plain": "value"}]), "utf-8")
    command = [sys.executable, model_server.__file__, "--port", "0", "--answers", str(answers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            client = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=60)
            assert ask(client)[0].status == 503
            assert json.loads(json.loads(ask(client)[1])["choices"][0]["message"]["content"]) == {"plain": "value"}
            client.request("GET", "/requests")
            seen = json.loads(client.getresponse().read())
            client.close()
        finally:
            process.terminate()
    assert [each["body"]["model"] for each in seen] == ["m", "m"]
    assert seen[0]["connection"] == seen[1]["connection"]
