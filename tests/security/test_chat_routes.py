"""Attacks on the endpoints for chats, pages and MCP clients: no key, another site's page, another's runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flowengine.web.mcp import mcp_routes
from tests.support.chat_server import ChatServer, chat_server
from tests.support.pace import slowness
from tests.support.plain_http import NO_TLS

HI = [{"role": "user", "content": "hello"}]
CHAT = {"model": "ship", "messages": HI}
AG_UI = {"threadId": "t1", "runId": "r1", "messages": HI}
AI_SDK = {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
ROUTES: dict[str, Any] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"model": "ship", "input": "hello"},
    "/ag-ui/ship": AG_UI,
    "/ai-sdk/ship": AI_SDK,
    "/mcp": INITIALIZE,
}
EVERY_ROUTE = pytest.mark.parametrize("path", ROUTES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    with chat_server(tmp_path_factory.mktemp("routes")) as found:
        yield found


def post(server: ChatServer, path: str, body: Any, key: str | None, **headers: str) -> httpx.Response:
    sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{server.url}{path}", content=content, headers=sent, trust_env=False, verify=NO_TLS, timeout=30)


def runs_of(server: ChatServer) -> int:
    return len(server.service.store.list())


@EVERY_ROUTE
@pytest.mark.parametrize("key", [None, "nonsense", "fe_" + "x" * 300])
def test_without_a_key_nothing_is_told_and_nothing_runs(server: ChatServer, path: str, key: str | None) -> None:
    before = runs_of(server)
    assert post(server, path, ROUTES[path], key).status_code == 401
    assert runs_of(server) == before


@EVERY_ROUTE
def test_a_page_of_another_site_is_refused(server: ChatServer, path: str) -> None:
    before = runs_of(server)
    assert post(server, path, ROUTES[path], server.ann, Origin="https://evil.example").status_code == 403
    assert runs_of(server) == before


@EVERY_ROUTE
def test_a_foreign_name_that_is_bound_to_our_address_is_refused(server: ChatServer, path: str) -> None:
    assert post(server, path, ROUTES[path], server.ann, Host="evil.example:8000").status_code == 421


@EVERY_ROUTE
def test_a_key_reaches_only_its_flows(server: ChatServer, path: str) -> None:
    before = runs_of(server)
    answer = post(server, path, ROUTES[path], server.ben)
    assert answer.status_code == (200 if path == "/mcp" else 404)
    assert runs_of(server) == before


@EVERY_ROUTE
@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (b"{", {400}),
        (b"[]", {400, 422}),
        (b'"x"', {400, 422}),
        (b"null", {400, 422}),
        (b'{"messages": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", {400, 413}),
        (b'{"messages": "' + b"x" * 5_000_000 + b'"}', {413}),
        (b'{"model": "ship", "messages": NaN, "input": Infinity}', {400}),
    ],
)
def test_a_body_that_is_none_is_refused(server: ChatServer, path: str, body: bytes, statuses: set[int]) -> None:
    before = runs_of(server)
    assert post(server, path, body, server.ann).status_code in statuses
    assert runs_of(server) == before


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/ag-ui/ship"])
@pytest.mark.parametrize("kind", [[], {}, 1, None])
def test_a_part_of_a_strange_kind_is_refused(server: ChatServer, path: str, kind: Any) -> None:
    messages = [{"role": "user", "content": [{"type": kind, "text": "x"}]}]
    assert post(server, path, {**ROUTES[path], "messages": messages}, server.ann).status_code in (400, 422)


@pytest.mark.parametrize("name", ["resp_\ud800", "resp_\0", "resp_../x"])
def test_a_run_of_an_impossible_id_is_told_of_like_any_other_that_there_is_not(server: ChatServer, name: str) -> None:
    asked = {"model": "ship", "input": "yes", "previous_response_id": name}
    assert post(server, "/v1/responses", asked, server.ann).status_code == 404
    resume = [{"interruptId": f"{name}/ask", "status": "resolved", "payload": {"choice": "yes"}}]
    answer = post(server, "/ag-ui/ship", {**AG_UI, "messages": [], "resume": resume}, server.ann)
    assert (answer.status_code, ".db" in answer.text) == (404, False)


@pytest.mark.parametrize("path", ["/ag-ui/ship", "/ai-sdk/ship"])
@pytest.mark.parametrize("message", ["1", '{"role":"user","parts":[]}'])
def test_very_many_messages_are_refused_at_once_and_not_told_back(server: ChatServer, path: str, message: str) -> None:
    many = f"{message}," * (3_500_000 // (len(message) + 1))
    body = json.dumps(ROUTES[path]).replace('"messages": [', f'"messages": [{many}')
    begun = time.process_time()
    answer = post(server, path, body.encode(), server.ann)
    assert (answer.status_code, len(answer.text) < 8_000) == (413, True)
    assert time.process_time() - begun < 6 * slowness()


def test_a_long_conversation_is_recognized_in_time_in_proportion_to_its_length(server: ChatServer) -> None:
    turns = [{"role": ("user", "assistant")[at % 2], "content": "x" * 1_800} for at in range(1_999)]
    begun = time.process_time()
    answer = post(server, "/v1/chat/completions", {"model": "ship", "messages": turns}, server.ann)
    assert (answer.status_code, time.process_time() - begun < 6 * slowness()) == (200, True)


def waiting_run_of_ann(server: ChatServer) -> str:
    answer = post(server, "/ag-ui/ship", {**AG_UI, "threadId": "hers"}, server.ann)
    return answer.headers["flowengine-run"]


def test_no_other_key_answers_a_question_or_sees_its_run(server: ChatServer) -> None:
    run_id = waiting_run_of_ann(server)
    resume = [{"interruptId": f"{run_id}/ask", "status": "resolved", "payload": {"choice": "ship it"}}]
    part = {"type": "dynamic-tool", "toolName": "answer_question", "toolCallId": f"{run_id}/ask"}
    answered = {**part, "state": "output-available", "input": {}, "output": {"choice": "ship it"}}
    attempts: list[tuple[str, Any]] = [
        ("/ag-ui/echo", {**AG_UI, "messages": [], "resume": resume}),
        ("/ai-sdk/echo", {"id": "c", "messages": [{"id": "a", "role": "assistant", "parts": [answered]}]}),
        ("/v1/responses", {"model": "echo", "input": "ship it", "previous_response_id": f"resp_{run_id}"}),
    ]
    for path, body in attempts:
        answer = post(server, path, body, server.ben)
        assert answer.status_code == 404, path
        assert "Ship hello" not in answer.text
    assert server.client.get(f"/runs/{run_id}").json()["status"] == "waiting"
    for path, body in attempts[:2]:  # A run that there is not is told of in the same words.
        unknown = json.loads(json.dumps(body).replace(run_id, "0" * len(run_id)))
        assert post(server, path, unknown, server.ben).status_code == 404
        assert run_id not in post(server, path, unknown, server.ben).text


def test_a_conversation_of_another_key_is_another_conversation(server: ChatServer) -> None:
    for key, path in ((server.ann, "/v1/chat/completions"), (server.ben, "/v1/chat/completions")):
        post(server, path, {"model": "echo", "messages": HI, "metadata": {"session": "same"}}, key)
    sessions = {
        str(server.service.store.events(each.run_id)[0].settings["session"])  # type: ignore[union-attr]
        for each in server.service.store.list()
        if each.flow == "echo"
    }
    assert {"ann/same", "ben/same"} <= sessions


def test_a_session_of_the_protocol_belongs_to_the_key_that_began_it(server: ChatServer) -> None:
    session = post(server, "/mcp", INITIALIZE, server.ann).headers["mcp-session-id"]
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    version = {"mcp-protocol-version": "2025-11-25"}
    theirs = post(server, "/mcp", listing, server.ben, **{"mcp-session-id": session}, **version)
    assert theirs.status_code == 404
    assert "poet" not in theirs.text
    hers = post(server, "/mcp", listing, server.ann, **{"mcp-session-id": session}, **version)
    assert "poet" in hers.text


def test_sessions_that_one_key_leaves_open_keep_no_other_key_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_routes, "_MAX_SESSIONS", 2)
    with chat_server(tmp_path) as server:
        assert [post(server, "/mcp", INITIALIZE, server.ben).status_code for _ in range(3)] == [200, 200, 503]
        assert post(server, "/mcp", INITIALIZE, server.ann).status_code == 200


@pytest.mark.parametrize("name", ["../ship", "..%2fship", "ship%0d%0aX-Evil:%201", "ship\u2028", "%00"])
def test_a_flows_name_is_no_path_and_no_header(server: ChatServer, name: str) -> None:
    for path in (f"/ag-ui/{name}", f"/ai-sdk/{name}", f"/v1/models/{name}"):
        answer = httpx.request(
            "GET" if "models" in path else "POST",
            f"{server.url}{path}",
            headers={"Authorization": f"Bearer {server.ann}"},
            trust_env=False,
            verify=NO_TLS,
            **({} if "models" in path else {"json": AG_UI if "ag-ui" in path else AI_SDK}),  # type: ignore[arg-type]
        )
        assert answer.status_code in (404, 405)
        assert "x-evil" not in answer.headers


def test_what_a_run_answers_cannot_end_a_streamed_event(server: ChatServer) -> None:
    message = "a\r\n\r\nevent: evil\r\ndata: {}\r\n\r\n\u2028b"
    chat = {"model": "echo", "messages": [{"role": "user", "content": message}], "stream": True}
    page = {"id": "c9", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": message}]}]}
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/v1/responses", {"model": "echo", "input": message, "stream": True}),
        ("/ag-ui/echo", {**AG_UI, "messages": [{"role": "user", "content": message}]}),
        ("/ai-sdk/echo", page),
    ):
        answer = post(server, path, body, server.ann)
        assert answer.status_code == 200, answer.text
        lines = answer.content.decode().split("\n")
        assert not any("evil" in line for line in lines if not line.startswith("data: "))
        assert not any(line.startswith("event: evil") for line in lines)
