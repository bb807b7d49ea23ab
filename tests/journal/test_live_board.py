"""What agents write is seen by other processes, in SQLite and in PostgreSQL, and is gone with the run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from flowengine import Agent, AgentNode, Flow
from flowengine.engine.events import TokenStreamed
from flowengine.journal import live_board
from flowengine.journal.live_texts import LiveFollower, read_live
from flowengine.journal.stores import open_store
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.web.app import make_app
from tests.support.postgres import empty_database
from tests.support.ui_server import served

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])


class HeldModel(ScriptedModel):
    """Goes on with its answer, after the first piece, once it is let."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__(answers)
        self.let = anyio.Event()
        self.has_streamed = False

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            self.has_streamed = True
            async for piece in whole:
                yield piece
                await self.let.wait()

        async with super().stream(request) as whole:
            yield pieces()


def flow_of(model: ScriptedModel) -> Flow:
    return Flow("slow", {"say": AgentNode(Agent("a", "Say it.", model=model))})


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else empty_database()


def look_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE", "_LOOKS_AGAIN"):
        monkeypatch.setattr(live_board, name, 0.01)


async def until(holds: Callable[[], Any]) -> None:
    def wait() -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    await anyio.to_thread.run_sync(wait)


async def test_a_run_of_python_is_seen_elsewhere_while_its_agents_write(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_quickly(monkeypatch)
    model, elsewhere, heard = HeldModel(["Green tea\x00, please."]), open_store(url), list[str]()
    done: list[str] = []

    async def run() -> None:
        done.append((await flow_of(model).run(store=url, run_id="r", live=True)).status)

    def listen(server: Any) -> None:
        with server.client.stream("GET", "/api/runs/r/events") as answer:
            for line in answer.iter_lines():
                told = json.loads(line[6:]) if line.startswith("data: ") else {}
                heard.append(told.get("text", "") if told.get("type") == "TokenStreamed" else told.get("type", ""))

    with served(make_app(elsewhere, [])) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: model.has_streamed)
            listener = threading.Thread(target=listen, args=(server,))
            listener.start()
            await until(lambda: "Green " in heard)
            model.let.set()
        await anyio.to_thread.run_sync(listener.join, 30)
    assert done == ["succeeded"]
    assert "RunFinished" in heard
    assert read_live(elsewhere, "r") is None
    assert elsewhere.recall("followed", "r") is None
    assert not any("Token" in type(event).__name__ for event in elsewhere.events("r"))
    elsewhere.close()


async def test_nothing_is_written_until_somebody_follows_and_then_the_nodes_start_is_there_first(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_quickly(monkeypatch)
    model, store, elsewhere = HeldModel(["Green tea, please."]), open_store(url), open_store(url)
    kinds: list[str] = []
    recall, revise = store.recall, store.revise

    def recalling(kind: str, key: str) -> Any:
        kinds.append(f"read {kind}")
        return recall(kind, key)

    def revising(kind: str, key: str, change: Callable[[Any], Any]) -> None:
        kinds.append(f"write {kind}")
        revise(kind, key, change)

    store.recall, store.revise = recalling, revising  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: flow_of(model).run(store=store, run_id="r", live=True))
        await until(lambda: kinds.count("read followed") > 5)
        assert set(kinds) == {"read followed"}
        follower = LiveFollower()
        await until(lambda: any("Green" in piece.text for piece in follower.look(elsewhere, "r")))
        assert any(type(event).__name__ == "NodeStarted" for event in elsewhere.events("r"))
        model.let.set()
    assert elsewhere.recall("followed", "r") is None
    store.close()
    elsewhere.close()


async def test_a_run_that_nobody_asked_to_see_is_asked_whole_and_writes_nothing_beside(url: str) -> None:
    model = HeldModel(["Tea."] * 4)
    flow, store = flow_of(model), open_store(url)
    written = list[str]()
    revise = store.revise

    def noting(kind: str, key: str, change: Callable[[Any], Any]) -> None:
        written.append(kind)
        revise(kind, key, change)

    store.revise = noting  # type: ignore[method-assign]
    assert (await flow.run(store=store, run_id="r")).status == "succeeded"
    assert (model.has_streamed, "live" in written) == (False, False)
    model.let.set()
    assert (await flow.fork("r", "say", store=store, live=True)).status == "succeeded"
    assert model.has_streamed
    model.has_streamed = False
    for live in (False, True):
        async with flow.stream(store=store, live=live) as events:
            assert not [event async for event in events if isinstance(event, TokenStreamed)]
        assert model.has_streamed == live
    store.close()
