"""What holds at both doors to runs alike: the viewer's (`ui`), and that of flows for programs (`serve`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import httpx
import pytest

from flowengine.engine.ports import JournalStore
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.approval import ApprovalNode
from flowengine.web.app import make_app
from flowengine.web.gate.api_keys import KeyRing
from flowengine.web.serving_app import make_serving_app
from tests.support.counted_flows import Counted

pytestmark = pytest.mark.anyio
DOORS = pytest.mark.parametrize("door", ["ui", "serve"])


class Door(NamedTuple):
    """One way to the runs of a store, behind its gate."""

    web: httpx.AsyncClient
    """Has the token, or a key."""
    store: JournalStore
    secret: str
    runs: str
    """Where the runs are."""
    starts: Mapping[str, str]
    """Flow → where it is started."""


@asynccontextmanager
async def opened(door: str, flows: list[Flow], before: Door | None = None) -> AsyncGenerator[Door]:
    """`before`: it has ended, and this is its next start."""
    store = MemoryStore() if before is None else before.store
    if door == "ui":
        app = make_app(store, flows, "a token of this test")
        secret, runs = "a token of this test", "/api/runs"
    else:
        app, runs = make_serving_app(store, flows, grace=0), "/runs"
        secret = KeyRing(store).add("ann") if before is None else before.secret
    headers = {"Authorization": f"Bearer {secret}"}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as web,
    ):
        starts = {flow.name: "/api/runs" if door == "ui" else f"/flows/{flow.name}" for flow in flows}
        yield Door(web, store, secret, runs, starts)


@DOORS
async def test_a_request_of_two_lengths_is_refused_before_it_is_read(door: str, counted: Counted):
    async with opened(door, counted.flows) as found:
        headers = {"Content-Type": "application/json", "Content-Length": "2", "Transfer-Encoding": "chunked"}
        answer = await found.web.post(found.starts["quick"], content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (400, "Not one length")
    assert answer.headers["connection"] == "close"
    assert counted.calls == []


@DOORS
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example"}, 421),
        ("GET", {"Origin": "https://evil.example"}, 403),
        ("POST", {"Origin": "https://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("GET", {"Authorization": "Bearer no"}, 401),
        ("GET", {}, 200),
    ],
)
async def test_names_pages_and_secrets_are_judged_alike(
    door: str, method: str, headers: dict[str, str], status: int, counted: Counted
):
    async with opened(door, counted.flows) as found:
        answer = await found.web.request(method, found.runs, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ("www-authenticate" in answer.headers) == (status == 401)


def asking(**more: Any) -> Flow:
    return Flow("ask", {"ask": ApprovalNode(lambda context: "Go on?", {"yes": None, "no": None}, **more)})


async def start(door: Door, flow: str) -> str:
    """The id of a run that was started by the door."""
    is_viewer = door.runs.startswith("/api")
    headers = {} if is_viewer else {"Prefer": "respond-async"}
    said = await door.web.post(door.starts[flow], json={"flow": flow} if is_viewer else {}, headers=headers)
    assert said.status_code in (201, 202), said.text
    return said.json()["run_id"]


async def wait_until(door: Door, run_id: str, *statuses: str) -> Any:
    """The run, once it has one of these statuses."""
    with anyio.fail_after(30):
        while True:
            run = (await door.web.get(f"{door.runs}/{run_id}")).json()
            if run["status"] in statuses:
                return run
            await anyio.sleep(0.01)


@DOORS
async def test_a_question_that_nobody_answers_in_time_is_decided(door: str):
    async with opened(door, [asking(expires=0.1, on_expire="no")]) as found:
        run = await wait_until(found, await start(found, "ask"), "succeeded", "failed")
    assert run["status"] == "succeeded"


@DOORS
async def test_a_question_expires_also_after_a_restart(door: str):
    async with opened(door, [asking(expires=0.5, on_expire="no")]) as before:
        run_id = await start(before, "ask")
        await wait_until(before, run_id, "waiting")
    async with opened(door, [asking(expires=0.5, on_expire="no")], before) as found:
        await wait_until(found, run_id, "succeeded")


@DOORS
async def test_a_run_that_waits_is_cancelled(door: str):
    async with opened(door, [asking()]) as found:
        run_id = await start(found, "ask")
        await wait_until(found, run_id, "waiting")
        assert (await found.web.post(f"{found.runs}/{run_id}/cancel")).status_code == 200
        assert (await found.web.get(f"{found.runs}/{run_id}")).json()["status"] == "cancelled"
        again = await found.web.post(f"{found.runs}/{run_id}/cancel")
    assert (again.status_code, "it is cancelled" in again.json()["detail"]) == (409, True)


@DOORS
async def test_a_run_that_is_on_its_way_is_left_to_go_on_by_a_resumption(door: str, counted: Counted):
    async with opened(door, counted.flows) as found, anyio.create_task_group() as tasks:
        tasks.start_soon(start, found, "slow")
        await counted.at_gate.wait()
        [run] = (await found.web.get(found.runs)).json()["runs"]
        answer = await found.web.post(f"{found.runs}/{run['run_id']}/resume")
        assert (answer.status_code, answer.json()["run_id"]) == (202, run["run_id"])
        counted.gate.set()
        await wait_until(found, run["run_id"], "succeeded")


@DOORS
async def test_a_question_is_answered_and_its_run_followed_to_the_end(door: str):
    async with opened(door, [asking()]) as found:
        run_id = await start(found, "ask")
        await wait_until(found, run_id, "waiting")
        answer = await found.web.post(f"{found.runs}/{run_id}/answer", json={"choice": "yes"})
        assert (answer.status_code in (200, 202), answer.json()["node"]) == (True, "ask")
        await wait_until(found, run_id, "succeeded")
        stream = await found.web.get(f"{found.runs}/{run_id}/events", params={"after": 1})
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "id: 0\n" not in stream.text
        last = max(int(line[4:]) for line in stream.text.splitlines() if line.startswith("id: "))
        again = await found.web.get(f"{found.runs}/{run_id}/events", headers={"Last-Event-ID": str(last)})
        assert again.status_code == 204
        for wrong in ({"Last-Event-ID": "x"}, {"Last-Event-ID": "-1"}):
            assert (await found.web.get(f"{found.runs}/{run_id}/events", headers=wrong)).status_code == 400
        both = await found.web.get(f"{found.runs}/{run_id}/events?after=9999999999", headers={"Last-Event-ID": "0"})
        assert both.status_code == 400


@DOORS
async def test_what_is_done_with_runs_is_described_alike(door: str, counted: Counted):
    async with opened(door, counted.flows) as found:
        root = found.runs.removesuffix("/runs")
        paths = (await found.web.get(f"{root}/openapi.json")).json()["paths"]
    told = {(method, path.removeprefix(root)): each["operationId"] for path, methods in paths.items()
            for method, each in methods.items()}  # fmt: skip
    assert {place: id for place, id in told.items() if "/runs" in place[1] and id != "startRun"} == {
        ("get", "/runs"): "listRuns",
        ("get", "/runs/{run_id}"): "getRun",
        ("get", "/runs/{run_id}/events"): "followRun",
        ("post", "/runs/{run_id}/answer"): "answerRun",
        ("post", "/runs/{run_id}/resume"): "resumeRun",
        ("post", "/runs/{run_id}/cancel"): "cancelRun",
    }
