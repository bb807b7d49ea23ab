"""Attempts over HTTP beside `tests/web/gate/test_safety.py`: deep bodies, stalled clients, hostile contents."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flowengine.cli.main import main
from flowengine.web.app import make_app
from tests.support.plain_http import NO_TLS
from tests.support.ui_server import Served, served

EVIL = "</script><script>alert(1)</script>\u2028\u2029<!--<script>\x00\x1b]0;owned\x07\r\nSet-Cookie: x=1\n\ndata: y"
FLOW = """flowengine: v1
name: echo
inputs: {value: {type: array, default: []}, text: {type: string, default: ""}}
nodes: {say: {type: function, call: "steps:say", with: {text: "{{ inputs.text }}"}}}
outputs: {said: "{{ nodes.say.output }}"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.py").write_text("def say(text):\n    return text\n")
    (tmp_path / "echo.yaml").write_text(FLOW)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[Served]:
    with served(make_app("sqlite:///runs.db", ["."], durability="process")) as found:
        yield found


def test_a_body_nested_without_end_is_refused_and_nothing_runs(server: Served) -> None:
    for depth in (101, 400, 900, 2_000, 500_000):
        body = '{"flow": "echo", "inputs": {"value": ' + "[" * depth + "]" * depth + "}}"
        response = server.client.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == (400 if depth < 50_000 else 413), depth  # So many values are not read at all.
    for body in ('{"flow": "echo", "inputs": {"value": [' + "9" * 100_000 + "]}}", '{"flow": NaN}', "[" * 99, "\xff"):
        response = server.client.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in (400, 422)
    assert server.get("/api/runs")["total"] == 0


def test_clients_that_never_finish_their_request_hold_nobody_up(server: Served) -> None:
    stalled = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    try:
        for number, each in enumerate(stalled):
            head = b"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            each.sendall(head if number % 2 else head + b"Content-Length: 1000000\r\n\r\n{")
        assert (
            httpx.get(f"{server.url}/static/viewer.css", trust_env=False, verify=NO_TLS, timeout=60).status_code == 200
        )
        assert server.get("/api/runs")["total"] == 0
    finally:
        for each in stalled:
            each.close()


def test_a_request_without_the_token_is_answered_before_its_body_is_read(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(
            b"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000\r\n\r\n{"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 401")


def test_what_a_run_says_becomes_no_script_no_header_and_no_event_of_its_own(server: Served) -> None:
    run_id = server.post("/api/runs", {"flow": "echo", "inputs": {"text": EVIL}}, status=201)["run_id"]
    assert server.until(run_id, "succeeded")["outputs"] == {"said": EVIL}
    for path in (f"/runs/{run_id}", f"/runs/{run_id}/nodes/say", "/", f"/compare?a={run_id}&b={run_id}"):
        response = server.client.get(path)
        assert response.status_code == 200
        assert "alert(1)</script>" not in response.text.replace("&lt;", "").replace("\\u003c", ""), path
        assert "set-cookie" not in response.headers
        assert response.headers["content-type"] == "text/html; charset=utf-8"
    for path in (f"/runs/{run_id}/events", f"/api/runs/{run_id}/events"):
        lines = server.client.get(path).content.decode().split("\n")
        fields = {line.partition(":")[0] for line in lines if line}
        assert fields <= {"id", "data", "retry"}
        assert not [line for line in lines if "\r" in line]
        assert all(json.loads(line[6:]) is not None for line in lines if line.startswith("data: "))


def test_an_exported_page_is_closed_by_nothing_in_it(server: Served, folder: Path) -> None:
    run_id = server.post("/api/runs", {"flow": "echo", "inputs": {"text": EVIL}}, status=201)["run_id"]
    server.until(run_id, "succeeded")
    assert main(["export", run_id, "--unmasked", "-o", "run.html", "--store", "runs.db"]) == 0
    page = (folder / "run.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert "Content-Security-Policy" in page
    assert "unsafe-inline" not in page
    blocks = page.split('<script type="application/json"')[1:]
    assert blocks
    assert all("<" not in block.partition(">")[2].partition("</script>")[0] for block in blocks)


@pytest.mark.parametrize(
    "address",
    ["/flows/..%2f..%2fsteps.py", "/flows/%2e%2e/steps.py", "/flows/%00", "/runs/%00", "/api/flows/%2e%2e/x"],
)
def test_no_address_leads_to_a_file(server: Served, address: str) -> None:
    response = server.client.get(address)
    assert response.status_code == 404
    assert "def say" not in response.text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "[::1].evil", ""])
def test_a_foreign_name_for_this_machine_gets_nothing(server: Served, host: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        request = f"GET /api/runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        client.sendall(request.encode())
        assert client.recv(100).split(b" ")[1] in (b"400", b"421")
