"""An endless answer ends as a whole: nothing is sent behind its end, and one to HEAD ends with its head."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio

from flowengine.web.api.sse import StreamResponse


async def test_no_comment_comes_behind_the_end_that_a_slow_client_takes() -> None:
    sent: list[dict[str, Any]] = []

    async def pieces() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"

    async def receive() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("more_body") is False:
            await anyio.sleep(0.1)

    await StreamResponse(pieces(), beat=0.01)({"type": "http"}, receive, send)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert b"data: 1\n\n" in [each.get("body") for each in sent]


async def test_the_answer_to_head_ends_with_its_head() -> None:
    sent: list[dict[str, Any]] = []

    async def pieces() -> AsyncGenerator[bytes]:
        await anyio.sleep_forever()
        yield b""

    async def receive() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    with anyio.fail_after(5):
        await StreamResponse(pieces())({"type": "http", "method": "HEAD"}, receive, send)
    assert [each["type"] for each in sent] == ["http.response.start", "http.response.body"]
    assert not sent[-1]["more_body"]
