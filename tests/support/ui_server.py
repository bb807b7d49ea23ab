"""The real server on a free port of loopback, on a thread of its own, for tests of pages, API and followers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import httpx
import uvicorn
from starlette.applications import Starlette

from flowengine.runtime.loop_watch import LoopHold, watch_this_loop
from flowengine.web.app import stop
from flowengine.web.serving import ConnectionLimits, listen, make_config
from tests.support.plain_http import NO_TLS

__all__ = ["Served", "served"]


class Served:
    """A running server, and a client that has the token."""

    def __init__(self, app: Starlette, port: int, token: str | None = None) -> None:
        self.app = app
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.token: str = token or app.state.token
        self.client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=60,
            trust_env=False,
            verify=NO_TLS,
        )

    @property
    def entry_url(self) -> str:
        """The address that signs a browser in."""
        return f"{self.url}/?token={self.token}"

    def at(self, path: str) -> str:
        """The address of a page, which signs a browser in."""
        place, mark, rest = path.partition("#")
        return f"{self.url}{place}{'&' if '?' in place else '?'}token={self.token}{mark}{rest}"

    def get(self, path: str, status: int = 200) -> Any:
        """The JSON that is there."""
        response = self.client.get(path)
        assert response.status_code == status, response.text
        return response.json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        response = self.client.post(path, json=body) if body is not None else self.client.post(path)
        assert response.status_code == status, response.text
        return response.json()

    def until(self, run_id: str, status: str, timeout: float = 60.0) -> Any:
        """The run, once it has that status."""
        deadline = time.monotonic() + timeout
        while True:
            run = self.get(f"/api/runs/{run_id}")
            if run["status"] == status:
                return run
            assert time.monotonic() < deadline, run
            time.sleep(0.02)


class _QuickAsyncio:
    """The library as uvicorn's server sees it: what it looks at ten times a second it looks at a hundred times."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    def sleep(delay: float) -> Awaitable[None]:
        return asyncio.sleep(delay / 10)


@contextmanager
def served(
    app: Starlette,
    port: int = 0,
    limits: ConnectionLimits | None = None,
    *,
    token: str | None = None,
    end: Callable[[], Awaitable[None]] | None = None,
    holds: list[LoopHold] | None = None,
) -> Generator[Served]:
    """Serve the app for as long as the block lasts; it ends as with Ctrl-C. `token`: the client's; `end`: as `serve`
    takes it."""
    listening = listen("127.0.0.1", port)
    server = uvicorn.Server(make_config(app, limits or ConnectionLimits()))
    ended = server.shutdown

    async def shutdown(sockets: Any = None) -> None:
        await (stop(app) if end is None else end())
        await ended(sockets)

    serve_unwatched = server.serve

    async def serve(sockets: Any = None) -> None:
        with nullcontext() if holds is None else watch_this_loop(holds.append):
            await serve_unwatched(sockets)

    server.serve = serve  # type: ignore[method-assign]  # as below
    server.shutdown = shutdown  # type: ignore[method-assign]  # as `flowengine.web.serving` does it
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    with mock.patch("uvicorn.server.asyncio", _QuickAsyncio()):
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        found = Served(app, port, token)
        try:
            yield found
        finally:
            found.client.close()
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
