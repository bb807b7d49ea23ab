"""What holds at both doors to runs alike: the viewer's (`ui`), and that of flows for programs (`serve`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
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
    app: Any
    runs: str
    """Where the runs are."""
    starts: Mapping[str, str]
    """Flow → where it is started."""


@asynccontextmanager
async def opened(door: str, flows: list[Flow]) -> AsyncGenerator[Door]:
    store = MemoryStore()
    if door == "ui":
        app = make_app(store, flows, "a token of this test")
        secret, runs = "a token of this test", "/api/runs"
    else:
        app, secret, runs = make_serving_app(store, flows, grace=0), KeyRing(store).add("ann"), "/runs"
    headers = {"Authorization": f"Bearer {secret}"}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as web,
    ):
        starts = {flow.name: "/api/runs" if door == "ui" else f"/flows/{flow.name}" for flow in flows}
        yield Door(web, app, runs, starts)


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
