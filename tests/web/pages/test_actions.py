"""What is done with runs in their pages: forms that are filled in, commands that do the same, and who may not."""

from __future__ import annotations

import html
import re
import shlex
import sys
import textwrap
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.cli.main import main
from flowengine.core.records import ToolCall, tool_key
from flowengine.engine.events import NodeRecorded, NodeStarted
from flowengine.flow import Flow
from flowengine.journal.run_export import store_run
from flowengine.journal.stores import open_store
from flowengine.runtime.local.local import beginning
from flowengine.web.app import make_app
from tests.support.ui_server import Served, served

STEPS = """
def shout(text="hello"):
    return text.upper()

def check(text, ok):
    if not ok:
        raise ValueError(f"{text} is not ok")
    return text
"""
STORY = """
flowengine: v1
name: story
inputs:
  topic: {type: string, default: bees}
  ok: {type: boolean, default: true}
  tags: {type: array, default: [a, b]}
shared_state:
  tone: {type: string, default: dry}
nodes:
  begin: {type: function, call: "steps:shout", with: {text: "{{ inputs.topic }}"}}
  write: {prompt: "Of {{ inputs.topic }}, {{ shared_state.tone }}", model: offline, needs: [begin]}
  check: {type: function, call: "steps:check", with: {text: "{{ nodes.write.output }}", ok: "{{ inputs.ok }}"}}
outputs:
  said: "{{ nodes.check.output }}"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A server over a folder with a flow, which has one run that succeeded (`one`) and one that failed (`bad`)."""
    folder = tmp_path_factory.mktemp("acts")
    (folder / "steps.py").write_text(STEPS)
    (folder / "story.yaml").write_text(textwrap.dedent(STORY).lstrip())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delitem(sys.modules, "steps", raising=False)
        app = make_app("sqlite:///runs.db", ["."], durability="process", options=["--store", "runs.db"])
        with served(app) as found:
            for run_id, inputs, status in (("one", {}, "succeeded"), ("bad", {"ok": False}, "failed")):
                found.post("/api/runs", {"flow": "story", "run_id": run_id, "inputs": inputs}, 201)
                found.until(run_id, status)
            yield found
    sys.modules.pop("steps", None)


def form_of(server: Served, path: str) -> dict[str, str]:
    """The fields of the form at an address, as it is filled in."""
    text = server.client.get(path).text
    found: dict[str, str] = {}
    for tag in re.findall(r"<input [^>]*>", text):
        said = dict(re.findall(r'(\S+?)="([^"]*)"', tag))
        if " disabled" not in tag and (said.get("type") != "checkbox" or " checked" in tag):
            found[html.unescape(said["name"])] = html.unescape(said.get("value", ""))
    return found


def command_of(text: str) -> str:
    return html.unescape(re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', text, re.DOTALL)[-1])


def send(server: Served, path: str, fields: dict[str, str]) -> Any:
    return server.client.post(path, data=fields)


def test_a_run_is_started_again_with_its_inputs_and_once_however_often_the_button_is_pressed(server: Served):
    path = "/runs/one/act/again"
    fields = form_of(server, path)
    assert {name: fields[name] for name in fields if name.startswith("input.")} == {
        "input.topic": "bees",
        "input.ok": "true",
        "input.tags": '["a","b"]',
    }
    fields |= {"input.tags": '["c"]', "labels": "team=a\nby=ada", "session": "s1", "model_calls": "3", "reuse": "true"}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: send(server, path, fields), range(4)))
    [place] = {each.headers["location"] for each in answers}
    run = server.until(place.removeprefix("/runs/"), "succeeded")
    assert run["inputs"] == {"topic": "bees", "ok": True, "tags": ["c"]}
    assert run["labels"] == {"team": "a", "by": "ada"}
    assert send(server, path, fields).headers["location"] == place
    assert send(server, path, {**fields, "input.topic": "ants"}).headers["location"] != place
    assert send(server, path, {**fields, "once": "another"}).headers["location"] != place


def test_what_cannot_be_done_is_told_above_the_form_which_stays_filled_in(server: Served):
    path = "/runs/one/act/again"
    fields = form_of(server, path)
    for name, text, told in (
        ("input.tags", "[", "input 'tags': expected array as JSON, found '['"),
        ("input.ok", '"yes"', "input 'ok'"),
        ("cost_usd", "nan", "--max-cost takes a number above 0, found 'nan'"),
        ("model_calls", "1.5", "--max-calls takes a whole number, found '1.5'"),
        ("timeout", "soon", "--timeout takes a time such as 30s, found 'soon'"),
        ("labels", "team", "team"),
        ("model", "offline\r\nX-Evil: 1", "--model takes a name on one line"),
    ):
        answer = send(server, path, {**fields, name: text})
        assert answer.status_code == 422, answer.text
        assert told in html.unescape(answer.text)
        assert html.escape(text.replace("\r\n", "\n"), quote=False).split("\n")[0] in answer.text
    answer = send(server, path, {**fields, "input.tags": "[", "once": "again"})
    assert send(server, path, {**fields, "once": "again"}).status_code == 303


def test_a_failed_run_goes_on_and_says_what_the_command_line_says(server: Served):
    path = "/runs/bad/act/resume"
    text = server.client.get(path).text
    assert command_of(text) == "flowengine resume bad --store runs.db"
    assert send(server, path, form_of(server, path)).headers["location"] == "/runs/bad"
    assert server.until("bad", "failed")["error"]["message"].endswith("is not ok")
    before = server.get("/api/runs/one")
    assert send(server, "/runs/one/act/resume", form_of(server, path)).headers["location"] == "/runs/one"
    assert server.get("/api/runs/one") == before


def test_a_fork_has_the_values_that_were_changed_and_the_command_makes_the_same(
    server: Served, capsys: pytest.CaptureFixture[str]
):
    path = "/runs/bad/act/fork?node=write"
    fields = form_of(server, path)
    assert fields["state.tone"] == "dry"
    place = send(server, path, {**fields, "state.tone": "warm", "input.ok": "true"}).headers["location"]
    run = server.until(place.removeprefix("/runs/"), "succeeded")
    assert run["inputs"]["ok"] is True
    assert run["outputs"]["said"].startswith("Of bees, warm")
    words = shlex.split("resume bad --from write --set tone=warm -i ok=true --store runs.db --json")
    assert main(words) == 0
    assert "Of bees, warm" in capsys.readouterr().out
    # Unchanged, it is tried again as it was.
    place = send(server, "/runs/bad/act/retry?node=check", form_of(server, path)).headers["location"]
    assert server.until(place.removeprefix("/runs/"), "failed")["nodes"]["write"]["status"] == "succeeded"


def test_who_means_harm_gets_nothing_done(server: Served):
    path = "/runs/one/act/again"
    fields = form_of(server, path)
    runs = server.get("/api/runs")["total"]
    keys = server.app.state.parts.keys
    cookie = {"Cookie": f"flowengine-{server.port}={keys.cookie}"}

    def post(headers: dict[str, str], sent: dict[str, str], at: str = path) -> int:
        plain = server.client.build_request("POST", at, data=sent, headers=headers)
        if "Cookie" in headers:
            del plain.headers["authorization"]
        return server.client.send(plain).status_code

    assert post({**cookie, "Origin": "https://evil.example"}, fields) == 403
    assert post({**cookie, "Origin": "null"}, fields) == 403
    assert post(cookie, fields) == 403
    assert post({**cookie, "Host": "evil.example", "Origin": "http://evil.example"}, fields) == 421
    assert post({}, {**fields, "token": "x" * 64}) == 403
    assert post({}, {name: text for name, text in fields.items() if name != "token"}) == 403
    for place in (
        "/runs/one/act/fork?node=../../etc/passwd",
        "/runs/one/act/fork?node=write%00",
        "/runs/none/act/fork",
    ):
        assert post({}, fields, place) == 404
        assert server.client.get(place).status_code == 404
    assert post({}, fields, "/runs/one/act/fork") == 400
    assert post({}, fields, "/runs/one/act/nothing") == 404
    assert post({}, {**fields, "input.topic": "x" * 10_000_000}) == 413
    assert post({}, {**fields, "input.tags": "[" * 1_000_000}) == 422
    assert server.client.get("/runs/one/act/fork?node=%0d%0aSet-Cookie:x").headers.get("set-cookie") is None
    assert server.get("/api/runs")["total"] == runs


def test_a_run_whose_flow_is_elsewhere_has_the_command_alone(server: Served, tmp_path: Path):
    other = make_app("sqlite:///runs.db", [tmp_path])
    with served(other) as found:
        text = found.client.get("/runs/one/act/again").text
        assert "This server does not have the flow 'story'" in html.unescape(text)
        assert command_of(text).startswith("flowengine run ")
        for name in ("again", "retry?node=write", "fork?node=write"):
            path = f"/runs/one/act/{name}"
            assert send(found, path, form_of(found, path)).status_code == 409


def test_a_server_that_is_only_looked_at_shows_commands_and_does_nothing(server: Served):
    fields = form_of(server, "/runs/one/act/again")
    with served(make_app("sqlite:///runs.db", ["."], read_only=True)) as found:
        text = found.client.get("/runs/bad").text
        assert "data-act" not in text
        assert "flowengine resume bad" in text
        assert 'method="post"' not in text + found.client.get("/flows/story").text
        assert "resume bad --from write" in found.client.get("/runs/bad/nodes/write").text
        assert found.client.get("/runs/one/act/again").status_code == 404
        listed = found.client.get("/").text
        assert ('class="selecting"' in listed, 'method="post"' in listed) == (True, False)
        both = found.client.get("/selection?do=export&run=one&run=bad")
        assert both.headers["content-disposition"] == 'attachment; filename="runs.jsonl"'
        assert 'href="/selection?do=page&amp;run=bad"' in text
        assert found.client.get("/selection?do=page&run=bad").text.startswith("<!doctype html>")
        compared = found.client.get("/selection?do=compare&run=one&run=bad")
        assert compared.headers["location"].startswith("/compare?run=")
        for what in ("forget&sure=yes", "cancel"):
            assert found.client.get(f"/selection?do={what}&run=one").status_code == 400
            assert server.client.get(f"/selection?do={what}&run=one").status_code == 400
        assert found.client.get("/runs/one").status_code == 200
        for path in ("/runs/one/act/again", "/flows/story/start", "/api/runs", "/api/runs/bad/resume"):
            assert found.client.post(path, data=fields).status_code == 403


def test_a_flow_is_started_with_model_session_labels_and_limits_once(server: Served):
    page = server.client.get("/flows/story").text
    assert 'data-option="-i topic="' in page
    fields = form_of(server, "/flows/story")
    fields |= {"input.topic": "ants", "input.tags": '["x"]'}
    fields |= {"model": "offline", "session": "s2", "labels": "team=b", "cost_usd": "1"}
    first, second = (send(server, "/flows/story/start", fields).headers["location"] for _ in range(2))
    assert first == second
    run = server.until(first.removeprefix("/runs/"), "succeeded")
    assert run["inputs"] == {"topic": "ants", "ok": True, "tags": ["x"]}
    assert run["labels"] == {"team": "b"}
    assert send(server, "/flows/story/start", {**fields, "cost_usd": "-1"}).status_code == 422


@pytest.mark.parametrize(
    "topic", ["a\rb\u2028c\x00", "\r\n lines\n", "@me", "x" * 200_000], ids=["signs", "lines", "at", "long"]
)
def test_an_input_that_nobody_changed_is_what_it_was_whatever_it_is(server: Served, topic: str):
    run_id = server.post("/api/runs", {"flow": "story", "inputs": {"topic": topic}}, 201)["run_id"]
    path = f"/runs/{run_id}/act/again"
    page = server.client.get(path).text
    area = re.search(r'<textarea [^>]*name="input.topic"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    fields = form_of(server, path)
    if area is not None:  # As browsers do: other line ends, and no NUL.
        fields["input.topic"] = re.sub(r"\r\n?|\n", "\r\n", html.unescape(area[1])).replace("\0", "\ufffd")
    assert (len(topic) > 100_000) == ("input.topic" not in fields)
    place = send(server, path, fields).headers["location"]
    assert server.until(place.removeprefix("/runs/"), "succeeded")["inputs"]["topic"] == topic
    if len(topic) > 100_000:
        assert "-i topic=@topic.txt" in command_of(page)
        assert len(page) < 50_000
    elif topic == "@me":
        assert "-i topic=@@me" in command_of(page)


def test_what_a_fork_with_other_inputs_shares_holds_for_no_other_run(server: Served):
    fields = form_of(server, "/runs/one/act/fork?node=check")
    place = send(server, "/runs/one/act/fork?node=check", {**fields, "input.topic": "ants"}).headers["location"]
    fork = place.removeprefix("/runs/")
    run = server.until(fork, "succeeded")
    assert (run["inputs"]["topic"], run["outputs"]["said"][:7]) == ("ants", "Of bees")
    body = {"flow": "story", "run_id": "reusing", "inputs": dict(run["inputs"]), "reuse": fork}
    server.post("/api/runs", body, 201)
    assert server.until("reusing", "succeeded")["outputs"]["said"].startswith("Of ants")


SHOP = """
from flowengine import tool

@tool(effect="external")
def refund(order: str) -> str:
    return f"paid {order}"
"""
PAY = """
flowengine: v1
name: pay
nodes:
  pay: {type: tool, tool: "acting_shop:refund", with: {order: A-1}}
outputs: {said: "{{ nodes.pay.output }}"}
"""


def test_what_nobody_saw_the_end_of_and_an_edited_flow_are_a_persons_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acting_shop.py").write_text(SHOP)
    (tmp_path / "pay.yaml").write_text(PAY.lstrip())
    store, plan = open_store("sqlite:///runs.db", "process"), Flow.from_yaml("pay.yaml").plan
    given = {"order": "A-1"}
    call = ToolCall("refund", given, "", False, "external", key=tool_key("refund", given), started=True)
    for run_id in ("r1", "r2"):
        begun = [beginning(plan, {}, store, run_id=run_id), NodeStarted("pay", 1.0), NodeRecorded("pay", 1.0, call)]
        anyio.run(store_run, store, begun, run_id)
    with served(make_app(store, ["."])) as found:
        text = found.client.get("/runs/r1/act/resume").text
        assert 'data-option="--retry-effect pay"' in text
        fields = form_of(found, "/runs/r1/act/resume")
        answer = send(found, "/runs/r1/act/resume", fields)
        assert (answer.status_code, "whose end is not known" in answer.text) == (409, True)
        assert send(found, "/runs/r1/act/resume", {**fields, "done.pay": "true"}).status_code == 303
        assert found.until("r1", "succeeded")["outputs"] == {"said": None}
        (tmp_path / "pay.yaml").write_text(PAY.lstrip().replace("A-1", "A-2"))
        again = {**fields, "retry.pay": "true"}
        answer = send(found, "/runs/r2/act/resume", again)
        assert (answer.status_code, "changed nodes: pay" in answer.text) == (409, True)
        assert send(found, "/runs/r2/act/resume", {**again, "allow_changed": "true"}).status_code == 303
        assert found.until("r2", "succeeded")["outputs"] == {"said": "paid A-2"}
    store.close()
    sys.modules.pop("acting_shop", None)
