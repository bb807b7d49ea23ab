"""Attempts on `flowengine serve`: without a key, from other sites, on other callers' runs, with bodies without end, by
paths and headers, through files and call-backs, and with webhooks that were recorded."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

import httpx
import pytest

from flowengine.flowfile.project.project import find_project
from flowengine.journal.stores import open_store
from flowengine.web.gate.api_keys import KeyRing
from flowengine.web.serving import ConnectionLimits
from flowengine.web.serving_app import make_serving_app
from tests.support.plain_http import NO_TLS
from tests.support.ui_server import Served, served

FLOWS = """flowengine: v1
name: {name}
inputs: {{text: {{type: string, default: ""}}, file: {{type: file, default: null}}}}
nodes: {{say: {{type: function, call: "steps:say", with: {{text: "{{{{ inputs.text }}}}"}}}}}}
outputs: {{said: "{{{{ nodes.say.output }}}}"}}
"""
ASK = """flowengine: v1
name: ask
nodes: {ask: {type: approval, message: Go on?, routes: {"yes": {}, "no": {}}}}
"""
WORD = "a-secret-of-sixteen"
PROJECT = """allow_calls = ["steps"]
allow_callbacks = ["https://shop.example/told"]
[[webhooks]]
path = "in"
flow = "echo"
signature = "slack"
secret_env = "HOOK_SECRET"
inputs = {text = "{{ body.text }}"}
"""


class Attacked(NamedTuple):
    server: Served
    ann: httpx.Client
    ben: httpx.Client
    """May use `echo` alone."""
    nobody: httpx.Client

    @property
    def runs(self) -> int:
        return len(self.ann.get("/runs").json()["runs"])


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "steps.py").write_text("def say(text):\n    return text\n")
    for name in ("echo", "other"):
        (folder / f"{name}.yaml").write_text(FLOWS.format(name=name))
    (folder / "ask.yaml").write_text(ASK)
    (folder / "flowengine.toml").write_text(PROJECT)
    environ = {"HOOK_SECRET": WORD, "FLOWENGINE_CALLBACK_SECRET": "whsec_YS1zZWNyZXQtb2Ytc2l4dGVlbg=="}
    with closing(open_store(f"sqlite:///{folder / 'runs.db'}", "process")) as store:
        ring = KeyRing(store)
        keys = [ring.add("ann"), ring.add("ben", flows=["echo"])]
        app = make_serving_app(
            store, [folder], environ=environ, project=find_project(folder / "echo.yaml"), grace=0, max_body=10_000
        )
        limits = ConnectionLimits(seconds=3.0)
        with served(app, limits=limits, token="none", end=app.state.serving.service.drain) as server:
            headers = [*({"Authorization": f"Bearer {key}"} for key in keys), {}]
            clients = [
                httpx.Client(base_url=server.url, headers=each, trust_env=False, verify=NO_TLS, timeout=60)
                for each in headers
            ]
            yield Attacked(server, *clients)
            for client in clients:
                client.close()


def raw(server: Served, *lines: str, body: bytes = b"") -> bytes:
    """What is answered to a request as it stands, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(10)
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        parts: list[bytes] = []
        with suppress(ConnectionResetError):  # Where it closes with bytes unread.
            while part := connection.recv(65_536):
                parts.append(part)
    return b"".join(parts)


PATHS = ["/flows", "/flows/echo", "/openapi.json", "/runs", "/runs/x", "/runs/x/events", "/metrics"]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_told_without_a_key(attacked: Attacked, path: str) -> None:
    key = attacked.ann.headers["authorization"]
    wrong = [
        {},
        {"Authorization": key[:-1]},
        {"Authorization": f"{key}0"},
        {"Authorization": key.replace("Bearer", "Basic")},
    ]
    for headers in (*wrong, {"Cookie": f"key={key}"}, {"Authorization": "Bearer " + "x" * 5_000}):
        answer = attacked.nobody.get(path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="flowengine"')
    assert attacked.nobody.get(f"{path}?key={key[7:]}&token={key[7:]}").status_code == 401
    assert attacked.nobody.post("/flows/echo", json={}).status_code == 401


def test_a_wrong_key_takes_as_long_wherever_it_is_wrong() -> None:
    """What is compared are digests, all of them each time, so there is nothing to feel one's way along."""
    with closing(open_store("memory:")) as store:
        ring = KeyRing(store)
        key = ring.add("ann")
        for number in range(20):
            ring.add(f"other-{number}")
        ring.refresh()
        early, late = "x" + key[1:], key[:-1] + ("x" if key[-1] != "x" else "y")
        took: dict[str, list[float]] = {early: [], late: [], key: []}
        for _ in range(300):
            for each, times in took.items():
                begun = time.perf_counter()
                ring.find(each)
                times.append(time.perf_counter() - begun)
        fastest = [min(each) for each in took.values()]
        assert max(fastest) < 1.5 * min(fastest)


def test_pages_of_other_sites_and_foreign_names_get_nothing(attacked: Attacked) -> None:
    before = attacked.runs
    for origin in ("https://evil.example", "null", f"http://localhost:{attacked.server.port}.evil.example", "http://"):
        answer = attacked.ann.post("/flows/echo", json={}, headers={"Origin": origin})
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)
    for host in ("evil.example", f"evil.example:{attacked.server.port}", "127.0.0.1.nip.io", "", "[::1", "a@localhost"):
        for path in ("/flows", "/healthz"):
            assert attacked.ann.get(path, headers={"Host": host}).status_code in (400, 421)
    assert attacked.runs == before


def test_another_callers_runs_cannot_be_told_from_none(attacked: Attacked) -> None:
    run_id = attacked.ann.post("/flows/ask").json()["run_id"]
    for method, path, body in (
        ("GET", "", None),
        ("GET", "/events", None),
        ("POST", "/answer", {"choice": "yes"}),
        ("POST", "/cancel", None),
        ("POST", "/resume", None),
    ):
        found = attacked.ben.request(method, f"/runs/{run_id}{path}", json=body)
        missing = attacked.ben.request(method, f"/runs/{'0' * len(run_id)}{path}", json=body)
        assert (found.status_code, missing.status_code) == (404, 404), found.text
        assert found.text.replace(run_id, "") == missing.text.replace("0" * len(run_id), "")
    assert attacked.ann.get(f"/runs/{run_id}").json()["status"] == "waiting"
    assert attacked.ben.get("/runs", params={"label": "caller=ann"}).json() == {"runs": []}
    assert attacked.ben.post("/flows/other", json={}).status_code == 404
    shared = {"Idempotency-Key": "same"}
    first = attacked.ann.post("/flows/echo", json={"text": "ann"}, headers=shared)
    assert attacked.ben.post("/flows/echo", json={"text": "ben"}, headers=shared).json() == {"said": "ben"}
    assert first.json() == {"said": "ann"}


def test_a_session_is_of_its_caller(attacked: Attacked) -> None:
    for client in (attacked.ann, attacked.ben):
        assert client.post("/flows/echo", json={"text": "x"}, headers={"Flowengine-Session": "s"}).status_code == 200
    service = attacked.server.app.state.serving.service
    sessions = {service.store.events(each.run_id)[0].settings.get("session") for each in service.store.list()}
    assert {"ann/s", "ben/s"} <= sessions
    assert "s" not in sessions


@pytest.mark.long
def test_bodies_without_measure_are_refused_before_they_are_kept(attacked: Attacked) -> None:
    before = attacked.runs
    for body in (b'{"text": "%s"}' % (b"a" * 20_000), b"[" * 9_000, b'{"text": ' + b"9" * 9_000 + b"}", b"\xff"):
        answer = attacked.ann.post("/flows/echo", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 413, 422)
    endless = raw(
        attacked.server,
        "POST /flows/echo HTTP/1.1",
        f"Host: 127.0.0.1:{attacked.server.port}",
        f"Authorization: {attacked.ann.headers['authorization']}",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        body=b"fff\r\n"
        + b"a" * 4_095
        + b"\r\n"
        + b"fff\r\n"
        + b"a" * 4_095
        + b"\r\n"
        + b"fff\r\n"
        + b"a" * 4_095
        + b"\r\n",
    )
    assert endless.startswith(b"HTTP/1.1 413")
    assert attacked.runs == before


def test_a_body_is_refused_by_its_length_before_it_comes_and_one_that_breaks_off_fills_no_log(
    attacked: Attacked, caplog: pytest.LogCaptureFixture
) -> None:
    head = (
        "POST /flows/echo HTTP/1.1",
        f"Host: 127.0.0.1:{attacked.server.port}",
        f"Authorization: {attacked.ann.headers['authorization']}",
        "Content-Type: application/json",
    )
    with socket.create_connection(("127.0.0.1", attacked.server.port), timeout=60) as connection:
        connection.sendall("\r\n".join([*head, "Content-Length: 99999999999", "", "{"]).encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
    raw(attacked.server, *head, "Transfer-Encoding: chunked", body=b"zz\r\n{}")
    assert attacked.ann.get("/flows").status_code == 200
    assert "Traceback" not in caplog.text


def test_a_request_of_two_lengths_is_refused_and_what_follows_it_is_not_read(attacked: Attacked) -> None:
    second = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{attacked.server.port}\r\n\r\n"
    said = raw(
        attacked.server,
        "POST /flows/echo HTTP/1.1",
        f"Host: 127.0.0.1:{attacked.server.port}",
        f"Authorization: {attacked.ann.headers['authorization']}",
        "Content-Type: application/json",
        "Content-Length: 6",
        "Transfer-Encoding: chunked",
        body=f"0\r\n\r\n{second}".encode(),
    )
    assert (said.startswith(b"HTTP/1.1 400"), said.count(b"HTTP/1.1")) == (True, 1)


@pytest.mark.long
def test_slow_senders_are_cut_off_and_hold_nobody_up(attacked: Attacked) -> None:
    head = (
        f"POST /flows/echo HTTP/1.1\r\nHost: 127.0.0.1:{attacked.server.port}\r\n"
        f"Authorization: {attacked.ann.headers['authorization']}\r\n"
    )
    stalled: Sequence[bytes] = (head.encode(), f"{head}Content-Length: 99\r\n\r\n{{".encode())
    connections = [socket.create_connection(("127.0.0.1", attacked.server.port)) for _ in range(40)]
    try:
        for number, each in enumerate(connections):
            each.sendall(stalled[number % 2])
        assert attacked.ann.post("/flows/echo", json={"text": "x"}).json() == {"said": "x"}
        for each in connections:
            each.settimeout(20)
            assert each.recv(100)[:12] in (b"HTTP/1.1 408", b"")
    finally:
        for each in connections:
            each.close()


@pytest.mark.parametrize(
    "path",
    [
        "/flows/../../etc/passwd",
        "/flows/%2e%2e%2fecho.yaml",
        "/flows/echo.yaml",
        "/flows/echo%00",
        "/flows/./echo/../other.yaml",
        "/hooks/../flows/echo",
        "/hooks/..%2fflows%2fecho",
        "//healthz/../flows",
        "/healthz/../flows/echo",
        "/healthz%2f..%2fflows",
        "/runs/..%2f..%2fruns.db",
        "/HOOKS/in",
    ],
)
def test_no_path_leads_to_a_file_or_past_the_key(attacked: Attacked, path: str) -> None:
    for method in ("GET", "POST"):
        for key in ("", f"Authorization: {attacked.ann.headers['authorization']}"):
            said = raw(
                attacked.server,
                f"{method} {path} HTTP/1.1",
                f"Host: 127.0.0.1:{attacked.server.port}",
                "Connection: close",
                *([key] if key else []),
            )
            assert said.split()[1] in (b"400", b"401", b"404", b"405", b"415"), (method, path, said[:200])
            assert b"flowengine: v1" not in said
            assert b"root:" not in said


def test_nothing_that_is_sent_becomes_a_header(attacked: Attacked) -> None:
    evil = "x\r\nSet-Cookie: a=b"
    answer = attacked.ann.post("/flows/echo", json={"text": evil})
    assert answer.json() == {"said": evil}
    for name in ("echo%0d%0aSet-Cookie:%20a=b", "%0aecho"):
        answer = attacked.ann.post(f"/flows/{name}", json={})
        assert (answer.status_code, "set-cookie" in answer.headers) == (404, False)
    said = raw(
        attacked.server,
        "POST /flows/echo HTTP/1.1",
        f"Host: 127.0.0.1:{attacked.server.port}",
        f"Authorization: {attacked.ann.headers['authorization']}",
        "Idempotency-Key: a\nSet-Cookie: a=b",
        "Content-Length: 0",
        "Connection: close",
    )
    assert b"set-cookie" not in said.lower()
    stream = attacked.ann.post(
        "/flows/echo", json={"text": "a\n\nevent: result\ndata: {}"}, headers={"Accept": "text/event-stream"}
    )
    assert stream.text.count("event: result") == 1 + stream.text.count("\\nevent: result")


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "flowengine.toml", "runs.db", "file:///etc/passwd", "http://127.0.0.1/", "\x00"]
)
def test_no_file_of_the_server_or_its_network_is_taken_as_an_input(attacked: Attacked, file: str) -> None:
    answer = attacked.ann.post("/flows/echo", json={"file": file})
    assert (answer.status_code, "input 'file'" in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:8000/flows/echo",
        "https://shop.example.evil.org/told",
        "https://shop.example/told/../admin",
        "https://shop.example@evil.org/told",
        "https://shop.example/other",
        "gopher://shop.example/told",
    ],
)
def test_call_backs_go_nowhere_but_where_the_project_says(attacked: Attacked, url: str) -> None:
    """What a listed name leads to is judged at each try: `tests/web/hooks/test_webhooks.py`."""
    before = attacked.runs
    answer = attacked.ann.post("/flows/echo", json={}, headers={"Flowengine-Callback": url})
    assert (answer.status_code, "allow_callbacks" in answer.json()["detail"]) == (422, True)
    assert attacked.runs == before


def test_a_recorded_webhook_starts_nothing_again(attacked: Attacked) -> None:
    def call(body: bytes, at: int, word: str = WORD) -> httpx.Response:
        signed = hmac.new(word.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
        headers = {"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={signed}"}
        return attacked.nobody.post("/hooks/in", content=body, headers={**headers, "content-type": "application/json"})

    now, body = int(time.time()), json.dumps({"text": "once"}).encode()
    first = call(body, now)
    assert (first.status_code, first.json()["is_new"]) == (202, True)
    again = call(body, now)
    assert (again.json()["run_id"], again.json()["is_new"]) == (first.json()["run_id"], False)
    assert [call(body, now + seconds).status_code for seconds in (-301, 302)] == [401, 401]
    assert call(body, now, "another-secret-word").status_code == 401
    assert attacked.nobody.post("/hooks/in", content=body).status_code == 401
    assert WORD not in call(body, now, "another-secret-word").text
