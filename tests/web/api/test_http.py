"""Flows over HTTP, as a program with a key calls them: one server for all of these tests."""

from __future__ import annotations

import json
import os
import re
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jsonschema
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from flowengine.core.records import Answered
from flowengine.flowfile.project.project import Project
from flowengine.journal.approvals import times_asked
from flowengine.journal.stores import open_store
from flowengine.nodes.notify.links import AnswerLink, LinkSigner
from flowengine.nodes.notify.notifier import link_path
from flowengine.web.gate.api_keys import KeyRing
from flowengine.web.serving_app import make_serving_app
from tests.support.answer_links import SECRET
from tests.support.counted_flows import Counted
from tests.support.plain_http import NO_TLS
from tests.support.ui_server import Served, served

FLOWS = {
    "shout": """
        description: Says it louder.
        inputs:
          text: {type: string, default: hello}
        nodes:
          shout: {type: function, call: "steps:shout", with: {text: "{{ inputs.text }}"}}
        outputs:
          loud: "{{ nodes.shout.output }}"
        """,
    "fail": """
        nodes:
          fail: {type: function, call: "steps:fail"}
        """,
    "ask": """
        nodes:
          ask:
            type: approval
            message: "May it be published?"
            routes: {"yes": {to: publish}, "no": {}}
            form: {type: object, properties: {channel: {type: string}}, required: [channel]}
          publish: {type: function, call: "steps:shout", with: {text: "{{ nodes.ask.output.by }}"}}
        """,
    "slow": """
        nodes:
          wait: {type: function, call: "steps:wait"}
        """,
    "write": """
        nodes:
          write: {prompt: "Write a poem about bees, with many lines and many words.", model: offline}
        """,
}
STEPS = """
import anyio

def shout(text="hello"):
    return text.upper()

def fail():
    raise ValueError("no such thing")

async def wait():
    await anyio.sleep_forever()
"""


JSON = {"Content-Type": "application/json"}


class Api(NamedTuple):
    """A server with three keys."""

    server: Served
    ann: httpx.Client
    ben: httpx.Client
    """May use `shout` alone."""
    nobody: httpx.Client


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("api")
    (folder / "steps.py").write_text(STEPS)
    for name, text in FLOWS.items():
        (folder / f"{name}.yaml").write_text(f"flowengine: v1\nname: {name}\n{textwrap.dedent(text).lstrip()}")
    with closing(open_store(f"sqlite:///{folder / 'runs.db'}")) as store:
        ring = KeyRing(store)
        ann, ben = ring.add("ann"), ring.add("ben", flows=["shout"])
        environ = {**os.environ, "FLOWENGINE_LINK_SECRET": SECRET}
        app = make_serving_app(store, [folder], grace=0, max_body=1_000, environ=environ)
        with served(app, token=ann, end=app.state.serving.service.drain) as server:
            clients = [
                httpx.Client(base_url=server.url, trust_env=False, verify=NO_TLS, timeout=30, headers=headers)
                for headers in ({"Authorization": f"Bearer {ben}"}, {})
            ]
            yield Api(server, server.client, *clients)
            for client in clients:
                client.close()


def events_of(text: str) -> Sequence[tuple[str, Any]]:
    """Name and data of server-sent events."""
    found: list[tuple[str, Any]] = []
    for message in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in message.splitlines() if ": " in line)
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


async def test_the_app_lives_inside_of_another(tmp_path: Path, counted: Counted):
    inner = make_serving_app(f"sqlite:///{tmp_path / 'runs.db'}", counted.flows, needs_key=False, hosts=None)
    outer = Starlette(routes=[Mount("/ai", inner)], lifespan=lambda app: inner.router.lifespan_context(inner))
    transport = httpx.ASGITransport(outer)
    async with (
        outer.router.lifespan_context(outer),
        httpx.AsyncClient(transport=transport, base_url="http://any") as client,
    ):
        answer = await client.post("/ai/flows/quick", json={"text": "x"}, headers={"Prefer": "respond-async"})
        assert answer.headers["location"] == f"/ai/runs/{answer.json()['run_id']}"
        assert (await client.get(answer.headers["location"])).status_code == 200
        refused = await client.put("/ai/flows/quick")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST")
        assert refused.json()["detail"] == "PUT /ai/flows/quick: see /ai/openapi.json"
        assert (await client.put("/ai/v1/models")).json()["error"]["code"] == "unknown_url"


def test_inputs_go_in_and_outputs_come_out(api: Api):
    answer = api.ann.post("/flows/shout", content=b'{"text": "bee \\u2028 \\ud83d"}', headers=JSON)
    assert (answer.status_code, answer.json()) == (200, {"loud": "BEE \u2028 \ufffd"})
    assert api.ann.post("/flows/shout").json() == {"loud": "HELLO"}
    run = api.ann.get(f"/runs/{answer.headers['flowengine-run']}").json()
    assert (run["status"], run["labels"], run["nodes"]["shout"]["status"]) == (
        "succeeded",
        {"caller": "ann"},
        "succeeded",
    )
    listed = api.ann.get("/runs", params={"flow": "shout", "status": "succeeded"}).json()["runs"]
    assert run["run_id"] in [each["run_id"] for each in listed]


def test_half_a_character_breaks_no_refusal(api: Api):
    refused = api.ann.post("/flows/shout", content=b'{"\\ud83d": 1}', headers=JSON)
    assert (refused.status_code, "\ufffd" in refused.json()["detail"]) == (422, True)


def test_the_same_key_is_the_same_run(api: Api):
    headers = {"Idempotency-Key": "order-1"}
    first = api.ann.post("/flows/shout", json={"text": "a"}, headers=headers)
    again = api.ann.post("/flows/shout", json={"text": "a"}, headers={"Idempotency-Key": '"order-1"'})
    assert first.headers["flowengine-run"] == again.headers["flowengine-run"]
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    other = api.ann.post("/flows/shout", json={"text": "b"}, headers=headers)
    assert (other.status_code, other.headers["content-type"]) == (422, "application/problem+json")
    assert api.ben.post("/flows/shout", json={"text": "b"}, headers=headers).json() == {"loud": "B"}


def test_a_caller_that_does_not_wait_gets_an_address(api: Api):
    for wish in ("respond-async", "wait=0"):
        answer = api.ann.post("/flows/slow", headers={"Prefer": wish})
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/runs/{answer.json()['run_id']}" == answer.json()["links"]["self"]
        stopped = api.ann.post(answer.json()["links"]["cancel"])
        assert (stopped.status_code, stopped.json()["status"]) == (200, "cancelled")
        again = api.ann.post(answer.json()["links"]["cancel"])
        assert (again.status_code, "cannot be cancelled: it is cancelled" in again.json()["detail"]) == (409, True)


def test_a_run_that_asks_is_answered_and_the_key_finds_its_result(api: Api):
    headers = {"Idempotency-Key": "ask-1"}
    asked = api.ann.post("/flows/ask", headers=headers)
    [question] = asked.json()["questions"]
    assert (asked.status_code, question["message"], question["choices"]) == (
        202,
        "May it be published?",
        ["yes", "no"],
    )
    since = datetime.fromisoformat(asked.json()["started_at"])
    assert since.timestamp() == pytest.approx(asked.json()["started"])
    assert asked.json()["finished_at"] is None  # It only waits.
    wrong = api.ann.post(question["answer"], json={"choice": "yes"})
    assert (wrong.status_code, "asks for a form" in wrong.json()["detail"]) == (409, True)
    taken = api.ann.post(question["answer"], json={"choice": "yes", "form": {"channel": "blog"}})
    assert (taken.status_code, taken.json()["node"]) == (202, "ask")
    assert api.ann.post("/flows/ask", headers=headers).json() == {"publish": "ANN"}
    ended = datetime.fromisoformat(api.ann.get(asked.json()["links"]["self"]).json()["finished_at"])
    assert ended > since
    assert ended.tzinfo is not None


def test_a_stream_tells_progress_tokens_and_the_result(api: Api):
    headers = {"Accept": "text/event-stream"}
    found = events_of(api.ann.post("/flows/write", headers=headers).text)
    assert [name for name, _ in found[:2]] == ["run", "progress"]
    text = "".join(data["text"] for name, data in found if name == "token")
    assert found[-1][0] == "result"
    assert found[-1][1]["outputs"]["write"] == text
    run_id = found[0][1]["run_id"]
    later = events_of(api.ann.get(f"/runs/{run_id}/events", params={"after": 2}).text)
    assert [name for name, _ in later if name != "token"] == ["run", "progress", "result"]
    assert events_of(api.ann.post("/flows/fail", headers=headers).text)[-1][0] == "error"
    assert events_of(api.ann.post("/flows/ask", headers=headers).text)[-1][0] == "question"


def test_a_follower_that_comes_again_goes_on_where_it_was(api: Api):
    run_id = api.ann.post("/flows/ask").json()["run_id"]
    asked = api.ann.get(f"/runs/{run_id}/events").text
    assert events_of(asked)[-1][0] == "question"
    last = re.findall(r"^id: (\d+)$", asked, re.MULTILINE)[-1]
    with api.ann.stream("GET", f"/runs/{run_id}/events", headers={"Last-Event-ID": last}) as answer:
        api.ann.post(f"/runs/{run_id}/answer", json={"choice": "no", "form": {"channel": "x"}})
        rest = answer.read().decode()
    assert events_of(rest)[-1][0] == "result"
    last = re.findall(r"^id: (\d+)$", rest, re.MULTILINE)[-1]
    assert api.ann.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": last}).status_code == 204
    for wrong, status in (("-1", 400), ("x", 400), ("1e3", 400), ("99999", 404)):
        assert api.ann.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": wrong}).status_code == status


def test_a_key_that_asks_too_often_is_told_when_it_may_again(api: Api):
    ring = KeyRing(api.server.app.state.serving.service.store)
    headers = {"Authorization": f"Bearer {ring.add('cy', requests_per_minute=1)}"}
    while api.nobody.get("/flows", headers=headers).status_code == 401:  # Servers read the keys each second.
        time.sleep(0.05)
    answer = api.nobody.get("/flows", headers=headers)
    assert (answer.status_code, 1 <= int(answer.headers["retry-after"]) <= 61) == (429, True)


def test_a_run_that_fails_says_where_and_why(api: Api):
    answer = api.ann.post("/flows/fail", headers={"Idempotency-Key": "f"})
    problem = answer.json()
    assert (answer.status_code, problem["node"], problem["error"]) == (500, "fail", "ValueError")
    assert "no such thing" in problem["detail"]
    assert "Traceback" not in answer.text
    again = api.ann.post("/flows/fail", headers={"Idempotency-Key": "f"})
    assert again.json() == problem


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[1]", {}, 422),
        (b'{"text": NaN}', {}, 400),
        (b'{"text": 1e999}', {}, 400),
        (b'{"text": 1}', {}, 422),
        (b'{"texd": "a"}', {}, 422),
        (b'{"text": %s}' % (b"[" * 200 + b"]" * 200), {}, 400),
        (b'{"text": "%s"}' % (b"a" * 1_000), {}, 413),
        (b'{"text": "a", "text": "b"}', {}, 400),
        (b'{"text": "a"}', {"Content-Encoding": "gzip"}, 415),
        (b'{"text": "a"}', {"Content-Type": "text/plain"}, 415),
        (b'{"text": "a"}', {"Idempotency-Key": "k" * 256}, 422),
        (b'{"text": "a"}', {"Flowengine-Label": "caller=ben"}, 422),
        (b'{"text": "a"}', {"Flowengine-Label": "noequals"}, 422),
        (b'{"text": "a"}', {"Flowengine-Session": "s" * 300}, 422),
        (b'{"text": "a"}', {"Flowengine-Session": ""}, 422),
        (b'{"text": "a"}', {"Prefer": "wait=abc, handling=strict"}, 200),
        (b'{"text": "a"}', {"Prefer": "respond-async, wait=20"}, 200),
    ],
)
def test_what_does_not_fit_is_told(api: Api, body: bytes, headers: dict[str, str], status: int):
    headers = {**JSON, **headers}
    answer = api.ann.post("/flows/shout", content=body, headers=headers)
    assert answer.status_code == status, answer.text


def test_an_answer_is_bound_by_the_largest_body_too(api: Api):
    answer = api.ann.post("/runs/any/answer", json={"choice": "yes", "comment": "a" * 1_000})
    assert answer.status_code == 413


def test_very_many_unknown_inputs_are_not_all_told_back(api: Api):
    names = {f"{number}{'n' * 3}": 1 for number in range(80)}
    told = api.ann.post("/flows/shout", json=names).json()["detail"].splitlines()
    assert (len(told), told[-1]) == (21, "and 60 more unknown inputs")


def test_a_call_has_one_key(api: Api):
    answer = api.ann.post("/flows/shout", headers=[("Idempotency-Key", "one"), ("Idempotency-Key", "two")])
    assert (answer.status_code, answer.json()["detail"]) == (422, "a call has one Idempotency-Key, found 2")


@pytest.mark.parametrize(
    ("body", "told"),
    [(b"null", "expected a JSON object, found null"), (b'{"text": null}', "input 'text': expected string, found None")],
)
def test_a_missing_value_is_named_without_a_type_of_python(api: Api, body: bytes, told: str):
    answer = api.ann.post("/flows/shout", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["detail"]) == (422, told)


def test_a_status_that_no_run_has_is_told(api: Api):
    answer = api.ann.get("/runs", params={"status": "suceeded"})
    assert (answer.status_code, "did you mean 'succeeded'?" in answer.json()["detail"]) == (422, True)


def test_the_description_fits_the_flow(api: Api):
    one = api.ann.get("/flows/shout/openapi.json").json()
    assert one["openapi"] == "3.1.0"
    post = one["paths"]["/flows/shout"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["text"] == {"type": "string", "default": "hello"}
    outputs = post["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(api.ann.post("/flows/shout", json={}).json(), outputs)
    calls = {path for path in api.ann.get("/openapi.json").json()["paths"] if path.startswith("/flows")}
    assert calls == {f"/flows/{name}" for name in FLOWS}
    assert [path for path in api.ben.get("/openapi.json").json()["paths"] if "flows" in path] == ["/flows/shout"]
    assert api.ben.get("/flows").json() == {"flows": [{"name": "shout", "description": "Says it louder."}]}


def test_every_answer_to_a_wrong_request_is_described(api: Api):
    paths = api.ann.get("/openapi.json").json()["paths"]
    run_id = api.ann.post("/flows/ask").json()["run_id"]
    wrong = [
        (api.nobody, "GET", "/runs/{run_id}", {}, 401),
        (api.nobody, "POST", "/runs/{run_id}/cancel", {}, 401),
        (api.ann, "GET", "/runs/{run_id}", {"headers": {"Host": "elsewhere.example"}}, 421),
        (api.ann, "GET", "/runs/{run_id}", {"headers": {"Origin": "https://elsewhere.example"}}, 403),
        (api.ann, "GET", "/runs", {"params": {"label": ""}}, 422),
        (api.ann, "GET", "/runs/{run_id}/events", {"headers": {"Last-Event-ID": "x"}}, 400),
        (api.ann, "GET", "/runs/{run_id}/events", {"headers": {"Last-Event-ID": "99999"}}, 404),
        (api.ann, "POST", "/runs/{run_id}/answer", {"content": b"{", "headers": JSON}, 400),
        (api.ann, "POST", "/runs/{run_id}/answer", {"json": {}}, 422),
        (api.ann, "POST", "/runs/{run_id}/answer", {"content": b"{}"}, 415),
        (api.ann, "POST", "/runs/{run_id}/answer", {"json": {"choice": "y" * 2_000}}, 413),
        (api.ann, "POST", "/flows/shout", {"content": b"{}"}, 415),
        (api.ann, "POST", "/flows/shout", {"json": {}, "headers": {"Flowengine-Label": "0"}}, 422),
    ]
    for client, method, path, sent, status in wrong:
        answer = client.request(method, path.format(run_id=run_id), **sent)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), path
        assert str(status) in paths[path][method.lower()]["responses"], (method, path, status)
    statuses = next(each for each in paths["/runs"]["get"]["parameters"] if each["name"] == "status")["schema"]["enum"]
    assert {api.ann.get("/runs", params={"status": each}).status_code for each in statuses} == {200}
    assert "get" in paths["/flows/shout"]  # It is what `Allow` names, too.


async def test_a_server_describes_only_what_it_takes(tmp_path: Path, counted: Counted):
    def described(**settings: Any) -> Any:
        app = make_serving_app(f"sqlite:///{tmp_path / 'runs.db'}", counted.flows, needs_key=False, **settings)
        with served(app, token="none", end=app.state.serving.service.drain) as server:
            return server.get("/openapi.json")

    def headers_of(document: Any) -> list[str]:
        return [each["name"] for each in document["paths"]["/flows/quick"]["post"]["parameters"]]

    plain = described()
    assert "Flowengine-Callback" not in headers_of(plain)
    assert "security" not in plain
    assert "401" not in plain["paths"]["/runs"]["get"]["responses"]
    secret = {"FLOWENGINE_CALLBACK_SECRET": f"whsec_{'c2VjcmV0' * 4}"}
    project = Project(tmp_path, allow_callbacks=("https://told.example/",))
    assert "Flowengine-Callback" in headers_of(described(environ=secret, project=project))


def test_metrics_count_requests_by_route(api: Api):
    api.ann.post("/flows/shout", json={"text": "m"})
    api.ann.get("/nowhere/at/all")
    text = api.ann.get("/metrics").text
    assert 'flowengine_requests_total{method="POST",route="/flows/{flow}",status="200"}' in text
    assert 'flowengine_runs_total{caller="ann",flow="shout",status="succeeded"}' in text
    for name in ("model_calls", "tokens", "cost_usd", "unpriced_calls"):
        assert f'flowengine_{name}_total{{caller="ann",flow="shout"}} 0.0' in text
    assert "nowhere" not in text
    assert "flowengine_runs_running 0.0" in text
    assert [api.nobody.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 401]
    assert api.ben.get("/metrics").status_code == 403


def test_a_signed_link_answers_without_a_key_for_whom_it_was_sent_to(api: Api):
    asked = api.ann.post("/flows/ask").json()
    run_id, [question] = asked["run_id"], asked["questions"]
    events = api.server.app.state.serving.service.store.events(run_id)
    link = AnswerLink(run_id, "ask", times_asked(events)["ask"], "yes", "bo@example.com")
    path = link_path(LinkSigner([SECRET]).sign(link))
    page = api.nobody.get(path)
    assert (page.status_code, question["message"] in page.text) == (200, True)
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert api.nobody.get("/answer/page/style.css").status_code == 200
    assert api.nobody.post(path, data={"form.channel": "mail"}).status_code == 200
    assert (api.nobody.post(path, data={"form.channel": "mail"}).status_code, api.nobody.get("/flows").status_code) == (
        410,
        401,
    )
    record = api.server.app.state.serving.service.store.events(run_id)
    assert (
        next(each.record.by for each in record if type(getattr(each, "record", None)) is Answered) == "bo@example.com"
    )
