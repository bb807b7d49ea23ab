"""The local model server as a vendor of Anthropic's protocol: what tests rely on when they use it."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.support.model_answers import Completion, Failure, StreamFailure, Thinking, ToolCall, Truncated
from tests.support.model_server import ModelServer


def ask(server: ModelServer, **more: Any) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "How  are you?"}], **more}
    connection.request("POST", "/v1/messages", json.dumps(body), {"x-api-key": "k"})
    response = connection.getresponse()
    try:
        return response, response.read()
    finally:
        connection.close()


def events(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: ")]


def test_a_message_comes_whole_and_what_came_is_kept() -> None:
    with ModelServer() as server:
        answer = json.loads(ask(server)[1])
        assert answer["content"] == [{"type": "text", "text": "Answer to: How are you?"}]
        assert (answer["stop_reason"], answer["usage"]["output_tokens"] > 0) == ("end_turn", True)
        (received,) = server.requests
        assert (received.path, received.headers["x-api-key"], received.body["max_tokens"]) == ("/v1/messages", "k", 9)


def test_thinking_text_and_tools_are_blocks_of_a_whole_answer_and_of_a_stream() -> None:
    thinking = (Thinking("Look first.", "c2ln"), Thinking(redacted="xyz"))
    completion = Completion("Looking.", (ToolCall("look", {"at": "空"}, "toolu_7"),), thinking=thinking)
    with ModelServer([completion, completion]) as server:
        whole = json.loads(ask(server)[1])
        streamed = events(ask(server, stream=True)[1])
    assert [each["type"] for each in whole["content"]] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert whole["stop_reason"] == "tool_use"
    kinds = [each["type"] for each in streamed]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert "ping" in kinds
    blocks = [each["content_block"] for each in streamed if each["type"] == "content_block_start"]
    assert [each["type"] for each in blocks] == ["thinking", "redacted_thinking", "text", "tool_use"]
    deltas = [each["delta"] for each in streamed if each["type"] == "content_block_delta"]
    arguments = "".join(each.get("partial_json", "") for each in deltas)
    assert json.loads(arguments) == {"at": "空"}
    assert "c2ln" in [each.get("signature") for each in deltas]


def test_a_forced_tool_is_called() -> None:
    schema = {"type": "object", "properties": {"tea": {"enum": ["green"]}}}
    tools = [{"name": "answer", "input_schema": schema}]
    with ModelServer() as server:
        answer = json.loads(ask(server, tools=tools, tool_choice={"type": "tool", "name": "answer"})[1])
    assert answer["content"][0]["input"] == {"tea": "green"}


@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (529, "overloaded_error")])
def test_failures_have_the_vendors_form(status: int, kind: str) -> None:
    with ModelServer([Failure(status, "no", retry_after=3)]) as server:
        response, body = ask(server)
    assert (response.status, response.headers["retry-after"]) == (status, "3")
    assert json.loads(body)["error"] == {"type": kind, "message": "no"}


def test_a_stream_can_end_in_an_error_or_break_off() -> None:
    with ModelServer([StreamFailure(), Truncated("a long answer that breaks off")]) as server:
        failed = events(ask(server, stream=True)[1])
        assert (failed[0]["type"], failed[-1]["error"]["type"]) == ("message_start", "overloaded_error")
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(server, stream=True)
    kinds = [each["type"] for each in events(caught.value.partial)]
    assert ("content_block_delta" in kinds, "message_stop" in kinds) == (True, False)
