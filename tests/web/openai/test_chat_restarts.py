"""A server that stops in the middle: a call that is repeated with its key gets the one result; nothing runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from flowengine.engine.ports import JournalStore
from flowengine.journal.stores import open_store
from flowengine.runtime.run_driver import StoppingError
from flowengine.web.api.chat_requests import stopping_unheard
from flowengine.web.mcp.mcp_server import McpSettings, make_mcp_server
from flowengine.web.openai.chat_calls import ChatRun, Conversation, begin_chat, follow_parts
from flowengine.web.service.flow_service import FlowService
from flowengine.web.service.outcomes import KeyReusedError
from flowengine.web.service.stream_parts import RunEnded, StepBegan
from tests.support.counted_flows import Counted

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JournalStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'runs.db'}")) as opened:
        yield opened


def said(text: str) -> Conversation:
    return Conversation([{"role": "user", "content": text}], "s1")


async def end_of(service: FlowService, chat: ChatRun) -> RunEnded:
    return [part async for part in follow_parts(service, chat, None, None)][-1]  # type: ignore[return-value]


async def stop_once_it_runs(service: FlowService, chat: ChatRun) -> None:
    async for part in follow_parts(service, chat, None, None):
        if part == StepBegan("wait"):
            await service.drain()


async def test_a_chat_that_is_repeated_after_a_stop_is_the_same_run(store: JournalStore, counted: Counted) -> None:
    async with FlowService(store, counted.flows, grace=0) as service:
        first = await begin_chat(service, "slow", said("x"), None, run_key="k")
        with pytest.raises(StoppingError):
            await stop_once_it_runs(service, first)
    counted.gate.set()
    async with FlowService(store, counted.flows) as service:
        again = await begin_chat(service, "slow", said("x"), None, run_key="k")
        end = await end_of(service, again)
    assert (again.run_id, again.is_new) == (first.run_id, False)
    assert end.outputs == {"wait": "through"}
    assert counted.calls == ["slow"], "what had ended is not done again"


@pytest.mark.parametrize(("is_kept", "status"), [(True, "running"), (False, "cancelled")])
async def test_what_is_said_of_a_chat_at_a_stop_becomes_of_it(
    store: JournalStore, counted: Counted, is_kept: bool, status: str
) -> None:
    async with FlowService(store, counted.flows, grace=0) as service:
        chat = await begin_chat(service, "slow", said("x"), None)
        with pytest.raises(StoppingError) as stopped:
            async with stopping_unheard(service, chat.run_id, None, is_kept=is_kept):
                await stop_once_it_runs(service, chat)
    assert ("goes on at its next start" in str(stopped.value)) is is_kept
    assert store.list()[0].status == status


async def test_an_answer_that_is_repeated_after_a_stop_is_one_answer(store: JournalStore, counted: Counted) -> None:
    async with FlowService(store, counted.flows) as service:
        asked = await begin_chat(service, "ask", said("x"), None)
        assert (await end_of(service, asked)).status == "waiting"
        first = await begin_chat(service, "ask", said("yes"), None, run_key="a")
    async with FlowService(store, counted.flows) as service:
        again = await begin_chat(service, "ask", said("yes"), None, run_key="a")
        end = await end_of(service, again)
        with pytest.raises(KeyReusedError):
            await begin_chat(service, "ask", said("no"), None, run_key="a")
    assert asked.run_id == first.run_id == again.run_id
    assert end.outputs == {"done": "SLOW"}
    assert counted.calls == ["slow"]
    assert len(store.list()) == 1


async def test_a_tools_call_that_is_repeated_after_a_stop_is_the_same_run(
    store: JournalStore, counted: Counted
) -> None:
    meta: Any = {"flowengine/key": "k"}
    runs: list[str] = []
    for patience in (0.1, 50.0):
        async with FlowService(store, counted.flows, grace=0) as service:
            server = make_mcp_server(service, McpSettings(patience=patience, on_cancel="detach"))
            async with Client(server) as client:
                result = (await client.call_tool("slow", {}, meta=meta)).structured_content
                await counted.at_gate.wait()
            assert result is not None
            runs.append(result["run_id"])
        counted.gate.set()
    assert runs[0] == runs[1]
    assert result["outputs"] == {"wait": "through"}
    assert counted.calls == ["slow"]
