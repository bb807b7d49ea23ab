"""The HTTP API: what is done, and that everything it says is what its OpenAPI document promises."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowengine.core.context import Context
from flowengine.engine.events import RunResumed
from flowengine.flow import Flow
from flowengine.journal.stores import open_store
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.node import FlowNode
from flowengine.web.api.api import OPERATIONS, make_document
from flowengine.web.app import make_app
from tests.support.ui_server import Served, served

DOCUMENT: Any = json.loads(json.dumps(make_document()))


def check(server: Served, method: str, path: str, operation: str, status: int, body: Any = None) -> Any:
    """The answer of an operation, once it is found to be as the document says."""
    response = server.client.request(method, path, json=body)
    assert response.status_code == status, response.text
    [said] = [
        each for methods in DOCUMENT["paths"].values() for each in methods.values() if each["operationId"] == operation
    ]
    [(media_type, found)] = said["responses"][str(status)]["content"].items()
    assert response.headers["content-type"] == media_type
    if "schema" in found:
        jsonschema.validate(response.json(), {**found["schema"], "components": DOCUMENT["components"]})
    return response.json()


def test_the_document_has_every_operation_and_resolves(server: Served):
    assert check(server, "GET", "/api/openapi.json", "describe", 200) == DOCUMENT
    listed = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert listed == {(each.method.lower(), each.path.replace(":path", "")) for each in OPERATIONS}
    for each in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(each)
    references = set(json.dumps(DOCUMENT).split('"#/components/schemas/')[1:])
    assert {each.split('"')[0] for each in references} == set(DOCUMENT["components"]["schemas"])


def test_a_run_is_started_listed_and_told(server: Served):
    started = check(server, "POST", "/api/runs", "startRun", 201, {"flow": "shout", "inputs": {"text": "oh"}})
    run_id = started["run_id"]
    server.until(run_id, "succeeded")
    run = check(server, "GET", f"/api/runs/{run_id}", "getRun", 200)
    assert run["outputs"] == {"loud": "OH"}
    assert run["inputs"] == {"text": "oh"}
    assert run["nodes"]["shout"]["status"] == "succeeded"
    assert run["nodes"]["shout"]["output"] == "OH"
    assert run["driven_here"] is False
    listed = check(server, "GET", "/api/runs?flow=shout&status=succeeded", "listRuns", 200)
    assert [each["run_id"] for each in listed["runs"]] == [run_id]
    assert check(server, "GET", "/api/runs?q=nothing", "listRuns", 200)["total"] == 0
    given = check(server, "POST", "/api/runs", "startRun", 201, {"flow": "shout", "run_id": "mine", "reuse": run_id})
    assert given == {"run_id": "mine"}
    server.until("mine", "succeeded")
    assert check(server, "POST", "/api/runs", "startRun", 409, {"flow": "shout", "run_id": "mine"})["status"] == 409


def test_runs_are_labelled_and_found_by_their_labels(server: Served):
    labels = {"team": "billing", "env": "prod"}
    body = {"flow": "shout", "run_id": "mine", "labels": labels}
    check(server, "POST", "/api/runs", "startRun", 201, body)
    check(server, "POST", "/api/runs", "startRun", 201, {"flow": "shout", "run_id": "other"})
    server.until("mine", "succeeded")
    server.until("other", "succeeded")
    assert check(server, "GET", "/api/runs/mine", "getRun", 200)["labels"] == labels
    for query in ("label=team%3Dbilling", "label=team%3Dbilling&label=env%3Dprod", "q=team%3Dbilling"):
        [found] = check(server, "GET", f"/api/runs?{query}", "listRuns", 200)["runs"]
        assert (found["run_id"], found["labels"]) == ("mine", labels)
    for query in ("label=team%3Dother", "label=team%3Dbilling&label=team%3Dother"):
        assert check(server, "GET", f"/api/runs?{query}", "listRuns", 200)["total"] == 0
    assert check(server, "GET", "/api/runs?label=team", "listRuns", 422)["detail"].startswith("label 'team'")
    wrong = {"flow": "shout", "labels": {"a b": "x"}}
    assert "label 'a b'" in check(server, "POST", "/api/runs", "startRun", 422, wrong)["detail"]


@pytest.mark.parametrize(
    "query", ["since=2026-02-30", "until=soon", "ended=x", "page=x", "page=0", "page=1e3", "page="]
)
def test_a_filter_that_is_none_is_told(server: Served, query: str):
    """Else a program would take all runs for those that it asked for."""
    answer = server.client.get(f"/api/runs?{query}")
    assert answer.status_code == 422
    assert f"`{query.partition('=')[0]}` is a" in answer.json()["detail"]


def test_a_run_that_fails_says_where_and_why(server: Served):
    run_id = server.post("/api/runs", {"flow": "fail"}, 201)["run_id"]
    server.until(run_id, "failed")
    run = check(server, "GET", f"/api/runs/{run_id}", "getRun", 200)
    assert run["error"]["node"] == "fail"
    assert "broken" in run["nodes"]["fail"]["error"]["message"]
    (Path("steps.py")).write_text(Path("steps.py").read_text() + "\ndef fail():\n    return 'mended'\n")
    check(server, "POST", f"/api/runs/{run_id}/resume", "resumeRun", 202, {})
    done = server.until(run_id, "succeeded")
    assert done["outputs"] == {"fail": "mended"}
    check(server, "POST", f"/api/runs/{run_id}/resume", "resumeRun", 202, {})
    assert server.get(f"/api/runs/{run_id}")["events"] == done["events"]  # Nothing is left to do.


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"flow": "nobody"}, 404, "there is no flow 'nobody'"),
        ({"flow": "shou"}, 404, "did you mean 'shout'"),
        ({"flow": "shout", "inputs": {"txt": "x"}}, 422, "unknown input 'txt'"),
        ({"flow": "shout", "inputs": {"text": 1}}, 422, "expected string"),
        ({"flow": "shout", "inputs": []}, 422, "is not of type 'object'"),
        ({"flow": "shout", "color": 1}, 422, "color"),
        ({"flow": "shout", "run_id": "../x"}, 422, "does not match"),
        ({"flow": "shout", "reuse": "nobody"}, 404, "no run 'nobody'"),
        ({"flow": "bad"}, 422, "FE"),
        ({}, 422, "'flow' is a required property"),
    ],
)
def test_what_cannot_be_started_is_told(server: Served, body: Any, status: int, said: str):
    assert said in check(server, "POST", "/api/runs", "startRun", status, body)["detail"]
    assert server.get("/api/runs")["total"] == 0


def test_a_flow_with_errors_has_them_all_in_the_problem(server: Served):
    problem = check(server, "POST", "/api/runs", "startRun", 422, {"flow": "bad"})
    assert problem["diagnostics"][0]["code"].startswith("FE")


def test_an_id_is_good_for_one_run_also_while_that_goes_on(server: Served):
    body = {"flow": "sleep", "run_id": "mine"}
    check(server, "POST", "/api/runs", "startRun", 201, body)
    assert "exists already" in check(server, "POST", "/api/runs", "startRun", 409, body)["detail"]
    check(server, "POST", "/api/runs/mine/cancel", "cancelRun", 200)


def test_a_run_of_this_process_is_cancelled(server: Served):
    run_id = server.post("/api/runs", {"flow": "sleep"}, 201)["run_id"]
    assert check(server, "GET", f"/api/runs/{run_id}", "getRun", 200)["driven_here"] is True
    check(server, "POST", f"/api/runs/{run_id}/resume", "resumeRun", 202, {})
    problem = check(server, "POST", f"/api/runs/{run_id}/resume", "resumeRun", 409, {"limits": {"timeout": 9}})
    assert "does not reach it" in problem["detail"]
    check(server, "POST", f"/api/runs/{run_id}/cancel", "cancelRun", 200)
    assert server.get(f"/api/runs/{run_id}")["status"] == "cancelled"
    problem = check(server, "POST", f"/api/runs/{run_id}/cancel", "cancelRun", 409)
    assert problem["detail"] == f"run '{run_id}' cannot be cancelled: it is cancelled"
    check(server, "POST", "/api/runs/nobody/cancel", "cancelRun", 404)


def test_the_end_of_the_server_cancels_its_runs_in_the_journal(folder: Path):
    app = make_app("sqlite:///runs.db", [folder / "sleep.yaml"], durability="process")
    with served(app) as server:
        run_id = server.post("/api/runs", {"flow": "sleep"}, 201)["run_id"]
    with served(make_app("sqlite:///runs.db")) as server:
        assert server.get(f"/api/runs/{run_id}")["status"] == "cancelled"


def test_a_question_is_answered_and_the_run_goes_on(server: Served):
    run_id = server.post("/api/runs", {"flow": "ask"}, 201)["run_id"]
    server.until(run_id, "waiting")
    run = check(server, "GET", f"/api/runs/{run_id}", "getRun", 200)
    assert run["questions"]["ask"]["choices"] == ["yes", "no"]
    path = f"/api/runs/{run_id}/approve"
    assert "no choice 'maybe'" in check(server, "POST", path, "answerRun", 409, {"choice": "maybe"})["detail"]
    wrong = {"choice": "yes", "form": {"channel": "radio"}}
    assert "does not fit" in check(server, "POST", path, "answerRun", 409, wrong)["detail"]
    check(server, "POST", path, "answerRun", 422, {"choose": "yes"})
    check(server, "POST", path, "answerRun", 422, {"choice": "yes", "form": {"channel": "blog"}, "by": "eve"})
    answered = check(server, "POST", path, "answerRun", 200, {"choice": "yes", "form": {"channel": "blog"}})
    assert answered == {"run_id": run_id, "node": "ask", "resumed": True}
    server.until(run_id, "succeeded")
    assert "waits for no answer" in check(server, "POST", path, "answerRun", 409, {"choice": "yes"})["detail"]


def test_a_call_of_a_tool_is_accepted_with_other_arguments(server: Served):
    run_id = server.post("/api/runs", {"flow": "pay"}, 201)["run_id"]
    server.until(run_id, "waiting")
    [(name, asked)] = check(server, "GET", f"/api/runs/{run_id}", "getRun", 200)["questions"].items()
    assert (name, asked["tool"], asked["arguments"]) == ("pay:refund", "refund", {"order": "A-1", "euros": 5})
    path = f"/api/runs/{run_id}/approve"
    wrong = {"node": name, "choice": "accept", "form": {"order": "A-1", "euros": "much"}}
    assert "'much' is not of type 'integer'" in check(server, "POST", path, "answerRun", 409, wrong)["detail"]
    given = {"node": name, "choice": "accept", "form": {"order": "A-1", "euros": 3}}
    assert check(server, "POST", path, "answerRun", 200, given)["node"] == name
    assert server.until(run_id, "succeeded")["outputs"] == {"pay": "paid 3 for A-1"}


def test_a_call_of_a_tool_is_answered_in_the_page(server: Served):
    run_id = server.post("/api/runs", {"flow": "pay"}, 201)["run_id"]
    server.until(run_id, "waiting")
    page = server.client.get(f"/runs/{run_id}/nodes/pay").text
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token is not None
    assert "Arguments of refund" in page
    assert "&quot;euros&quot;: 5" in page or '"euros": 5' in page
    told = {"token": token[1], "comment": "Not today.", "form": '{"order": "A-1", "euros": 4}'}
    address = f"/runs/{run_id}/approve/pay:refund"
    broken = server.client.post(address, data={**told, "form": "{", "choice": "accept"})
    assert (broken.status_code, "the answer is no JSON" in broken.text) == (422, True)
    server.client.post(address, data={**told, "choice": "refuse"})  # What stands in the form counts for nothing then.
    run = server.until(run_id, "failed")
    assert run["error"]["message"].endswith("Their word: Not today.")


def test_an_answer_is_kept_where_the_flow_is_not_here(folder: Path):
    with served(make_app("sqlite:///runs.db", ["ask.yaml"], durability="process")) as server:
        run_id = server.post("/api/runs", {"flow": "ask"}, 201)["run_id"]
        server.until(run_id, "waiting")
    with served(make_app("sqlite:///runs.db", durability="process")) as server:
        assert "which is not here" in server.post(f"/api/runs/{run_id}/resume", {}, 404)["detail"]
        body = {"choice": "yes", "form": {"channel": "blog"}}
        assert server.post(f"/api/runs/{run_id}/approve", body)["resumed"] is False
    with served(make_app("sqlite:///runs.db", [Flow.from_yaml("ask.yaml")], durability="process")) as server:
        server.post(f"/api/runs/{run_id}/resume", {}, 202)
        server.until(run_id, "succeeded")


def test_a_run_goes_on_with_limits_that_are_chosen_anew(server: Served):
    run_id = server.post("/api/runs", {"flow": "fail"}, 201)["run_id"]
    server.until(run_id, "failed")
    wrong = server.post(f"/api/runs/{run_id}/resume", {"limits": {"model_calls": 0}}, 422)
    assert "$.limits.model_calls" in wrong["detail"]
    chosen = {"model_calls": 7, "cost_usd": 0.5, "timeout": 60}
    check(server, "POST", f"/api/runs/{run_id}/resume", "resumeRun", 202, {"limits": chosen})
    server.until(run_id, "failed")
    store = open_store("sqlite:///runs.db")
    [resumed] = [each for each in store.events(run_id) if isinstance(each, RunResumed)]
    store.close()
    assert {name: resumed.settings[name] for name in chosen} == chosen


def test_a_changed_flow_is_not_gone_on_with_unless_that_is_said(server: Served):
    run_id = server.post("/api/runs", {"flow": "fail"}, 201)["run_id"]
    server.until(run_id, "failed")
    text = Path("fail.yaml").read_text()
    Path("fail.yaml").write_text(text.replace('"steps:fail"', '"steps:shout", with: {text: mended}'))
    problem = check(server, "POST", f"/api/runs/{run_id}/resume", "resumeRun", 409, {})
    assert "changed nodes: fail" in problem["detail"]
    check(server, "POST", f"/api/runs/{run_id}/resume", "resumeRun", 202, {"allow_changed": True})
    server.until(run_id, "succeeded")


def test_flows_are_told_with_their_inputs_and_problems(server: Served):
    listed = check(server, "GET", "/api/flows", "listFlows", 200)["flows"]
    assert [each["name"] for each in listed] == ["ask", "bad", "fail", "pay", "shout", "sleep", "write"]
    shout = check(server, "GET", "/api/flows/shout", "getFlow", 200)
    assert shout["inputs"] == {
        "type": "object", "properties": {"text": {"type": "string", "default": "hello"}}, "required": [],
        "additionalProperties": False,
    }  # fmt: skip
    bad = check(server, "GET", "/api/flows/bad", "getFlow", 200)
    assert (bad["problems"][0]["line"], bad["problems"][0]["severity"]) == (4, "error")
    check(server, "GET", "/api/flows/nobody", "getFlow", 404)


def test_a_flow_built_in_python_is_started_too(folder: Path):
    async def double(context: Any) -> Any:
        return context.inputs["n"] * 2

    flow = Flow("double", {"double": FunctionNode(double)}, inputs={"n": "integer"})
    with served(make_app("memory:", [flow])) as server:
        run_id = server.post("/api/runs", {"flow": "double", "inputs": {"n": 4}}, 201)["run_id"]
        assert server.until(run_id, "succeeded")["outputs"] == {"double": 8}
        assert server.get("/api/flows")["flows"][0]["path"] == "(built in Python)"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"flow": NaN}', b"[" * 20_000, b"\xff", b'"x"'])
def test_a_body_that_is_no_object_is_told(server: Served, content: bytes):
    response = server.client.post("/api/runs", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert str(response.status_code) in DOCUMENT["paths"]["/api/runs"]["post"]["responses"]
    assert response.headers["content-type"] == "application/problem+json"


def test_unknown_addresses_and_methods_are_problems_too(server: Served):
    assert server.get("/api/nowhere", 404)["title"] == "No such address"
    wrong = server.client.delete("/api/runs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, POST")
    assert wrong.headers["content-type"] == "application/problem+json"
    assert wrong.json()["detail"] == "DELETE /api/runs: see /api/openapi.json"
    refused = server.client.post("/")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


# --- runs that cannot be read


@pytest.fixture
def broken(server: Served) -> Served:
    """The server with a run each that is damaged, too new, and without a beginning."""
    for name in ("damaged", "newer", "empty", "missing"):
        server.post("/api/runs", {"flow": "shout", "run_id": name}, 201)
        server.until(name, "succeeded")
    with sqlite3.connect("runs.db") as database:
        span = 2**32
        numbers = dict(database.execute("SELECT run_id, number FROM run").fetchall())

        def change(name: str, statement: str, *values: Any) -> None:
            first = numbers[name] * span
            database.execute(f"{statement} WHERE position >= ? AND position < ?", (*values, first, first + span))

        change("damaged", "UPDATE event SET body = ?", "not an event")
        change("newer", "UPDATE event SET body = replace(body, '[1,', '[99,'), checksum = NULL")
        change("empty", "DELETE FROM event")
        database.execute("DELETE FROM run WHERE run_id = 'missing'")
    database.close()
    return server


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [("damaged", 422, "event 0: what is read"), ("newer", 422, "newer FlowEngine"), ("empty", 422, "no beginning"),
     ("missing", 404, "no run 'missing'")],
)  # fmt: skip
def test_a_run_that_cannot_be_read_is_told_and_never_a_failure_of_the_server(
    broken: Served, name: str, status: int, said: str
):
    with served(make_app("sqlite:///runs.db", durability="process")) as server:
        assert said in check(server, "GET", f"/api/runs/{name}", "getRun", status)["detail"]
        for path in (f"/runs/{name}", f"/runs/{name}/events", f"/runs/{name}/nodes/shout", f"/compare?a={name}&b=x"):
            response = server.client.get(path)
            assert response.status_code in (status, 404), path
            assert "Traceback" not in response.text
        assert server.client.get("/").status_code == 200
        assert server.client.get("/flows").status_code == 200


def test_a_store_that_is_none_is_told(folder: Path):
    Path("runs.db").write_text("this is no database, and it is longer than a header of one would be" * 20)
    with served(make_app("sqlite:///runs.db", ["shout.yaml"])) as server:
        for path in ("/", "/flows", "/api/runs", "/flows/shout"):
            response = server.client.get(path)
            assert response.status_code == 422, path
            assert "no store at all" in response.text


def test_an_answer_reaches_a_run_that_this_server_drives(folder: Path):
    published, done = threading.Event(), threading.Event()

    def publish(context: Context) -> None:
        published.set()

    def wait(context: Context) -> bool:
        return done.wait(60)

    nodes: dict[str, FlowNode] = {
        "ask": ApprovalNode(lambda context: "Ship it?", {"yes": "publish"}),
        "publish": FunctionNode(publish),
        "beside": FunctionNode(wait),
    }
    with served(make_app("sqlite:///runs.db", [Flow("both", nodes)], durability="process")) as server:
        run_id = server.post("/api/runs", {"flow": "both"}, 201)["run_id"]
        while server.get(f"/api/runs/{run_id}")["nodes"].get("ask", {}).get("status") != "waiting":
            time.sleep(0.02)
        answered = server.post(f"/api/runs/{run_id}/approve", {"choice": "yes"})
        assert answered == {"run_id": run_id, "node": "ask", "resumed": True}
        assert published.wait(20)
        done.set()
        assert server.until(run_id, "succeeded")["nodes"]["beside"]["output"] is True
