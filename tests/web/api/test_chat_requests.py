"""Who is still listening: a client that goes away before anything of its answer has reached it."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette

from flowengine.journal.memory import MemoryStore
from flowengine.web.serving_app import make_serving_app
from tests.support.counted_flows import Counted

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

CHAT = {"model": "slow", "messages": [{"role": "user", "content": "x"}], "stream": True}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"model": "slow", "input": "x", "stream": True},
    "/ag-ui/slow": {"threadId": "t", "runId": "r", "messages": CHAT["messages"]},
    "/ai-sdk/slow": {"id": "t", "messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]},
}


async def ask_and_go(app: Starlette, path: str) -> None:
    """Post a body, and go away as soon as the answer begins, before the server has sent a piece of it."""
    begins = anyio.Event()
    body = json.dumps(BODIES[path]).encode()
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await begins.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            begins.set()
            await anyio.sleep_forever()

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, "root_path": ""}
    await app(scope, receive, send)


@pytest.mark.parametrize("path", BODIES)
async def test_a_client_that_goes_away_before_the_first_piece_cancels_its_run(counted: Counted, path: str) -> None:
    store = MemoryStore()
    app = make_serving_app(store, counted.flows, needs_key=False, grace=0)
    async with app.router.lifespan_context(app):
        with anyio.fail_after(10):
            await ask_and_go(app, path)
        (info,) = store.list()
        assert info.status == "cancelled"
