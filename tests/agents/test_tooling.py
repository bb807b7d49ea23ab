"""Agents with MCP servers: started for a run, asked in it, and gone with it, however it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.settings import Surroundings
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.core.records import ToolCall
from flowengine.errors import DefinitionError, GuardrailError, PermanentModelError, RunError
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from tests.support.mcp_http_server import HttpServer

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"

PID = ToolRequest("p", "test_pid", "{}")
"""Asks the server for its process id."""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """The test server, as a flow file would have it."""
    calls = tmp_path / "calls.txt"
    calls.write_text("")
    return {
        "name": "test",
        "trust_hints": True,
        "command": sys.executable,
        "args": [str(SERVER), "plain", str(calls)],
    }


def is_running(pid: str) -> bool:
    """Whether a process is there; one that has ended and is not yet reaped is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def list_texts(request: Request) -> list[str]:
    return [each.content for each in request.messages if each.role == "tool"]


def wish(name: str, **arguments: Any) -> ToolRequest:
    return ToolRequest("1", name, json.dumps(arguments))


async def test_a_servers_tools_are_offered_after_the_agents_own_and_called(
    settings: dict[str, Any], recorder: Any
) -> None:
    def double(number: int) -> int:
        return 2 * number

    model = ScriptedModel([wish("test_echo", value="hello"), wish("double", number=4), "done"])
    agent = Agent("a", "", model=model, tools=[double], mcp_servers=[{**settings, "allow": ["echo", "count"]}])
    await agent.run_async("x", gateway=recorder)
    assert [each["function"]["name"] for each in model.requests[0].tools] == ["double", "test_echo", "test_count"]
    assert list_texts(model.requests[-1]) == ['{"value": "hello"}', "8"]
    assert [(each.name, each.effect) for each in recorder.of(ToolCall)] == [("test_echo", "none"), ("double", "none")]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_that_a_server_adds_is_offered_in_the_next_round(settings: dict[str, Any], streamed: bool) -> None:
    # The pause is for the word of the change, which comes beside the answer.
    model = ScriptedModel([wish("test_grow"), wish("test_grown"), "done"], latency=0.05)
    agent = Agent("a", "", model=model, mcp_servers=[settings])
    if streamed:
        async with agent.stream("x") as pieces:
            async for _ in pieces:
                pass
    else:
        await agent.run_async("x")
    offered = [[each["function"]["name"] for each in request.tools] for request in model.requests]
    assert ["test_grown" in names for names in offered] == [False, True, True]
    assert list_texts(model.requests[2]) == ["{}", "{}"]


async def test_an_external_call_is_told_before_it_begins(settings: dict[str, Any], recorder: Any) -> None:
    model = ScriptedModel([wish("test_count"), "done"])
    await Agent("a", "", model=model, mcp_servers=[McpServer(**settings)]).run_async("x", gateway=recorder)
    assert [(each.effect, each.started) for each in recorder.of(ToolCall)] == [("external", True), ("external", False)]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_server_runs_for_one_run_and_ends_with_it(settings: dict[str, Any], streamed: bool) -> None:
    model = ScriptedModel([PID, "one", PID, "two"])
    agent = Agent("a", "", model=model, mcp_servers=[settings])
    for _ in range(2):
        if streamed:
            async with agent.stream("x") as pieces:
                assert len([piece async for piece in pieces]) == 2
        else:
            await agent.run_async("x")
    first, second = list_texts(model.requests[1]) + list_texts(model.requests[3])
    assert first != second
    assert not is_running(first)
    assert not is_running(second)


async def test_runs_at_once_have_servers_of_their_own(settings: dict[str, Any]) -> None:
    model = ScriptedModel(lambda request: "done" if list_texts(request) else PID)
    agent = Agent("a", "", model=model, mcp_servers=[settings])
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(agent.run_async, "x")
    pids = {pid for request in model.requests for pid in list_texts(request)}
    assert len(pids) == 3
    assert not any(is_running(pid) for pid in pids)


async def test_no_server_is_started_for_an_input_that_is_refused(tmp_path: Path) -> None:
    started = tmp_path / "started"
    server = {"name": "a", "command": sys.executable, "args": ["-c", f"open({str(started)!r}, 'w')"]}
    agent = Agent("a", "", model=ScriptedModel([]), mcp_servers=[server], input_guardrails=[lambda text: False])
    with pytest.raises(GuardrailError):
        await agent.run_async("x")
    assert not started.exists()


async def test_a_server_that_cannot_start_fails_the_run_by_name_before_the_model_is_asked() -> None:
    model = ScriptedModel([])
    agent = Agent("clerk", "", model=model, mcp_servers=[{"name": "shop", "command": "no-such-program"}])
    expected = r"^agent 'clerk': MCP server 'shop' did not start: .*no-such-program"
    with pytest.raises(RunError, match=expected):
        await agent.run_async("x")
    with pytest.raises(RunError, match=expected):
        await agent.stream("x").__aenter__()
    assert model.requests == []


async def test_a_tool_of_a_server_and_one_of_the_agent_with_one_name_are_told(settings: dict[str, Any]) -> None:
    def test_echo(value: str) -> str:
        return value

    agent = Agent("a", "", model=ScriptedModel([]), tools=[test_echo], mcp_servers=[settings])
    with pytest.raises(DefinitionError, match=r"agent 'a': two tools are named 'test_echo': .*test_echo\).*MCP server"):
        await agent.run_async("x")


@pytest.mark.parametrize(
    ("answers", "error"),
    [([PID, PermanentModelError("no such model")], PermanentModelError), ([PID, "", ""], RunError)],
)
async def test_a_run_that_fails_ends_its_server_and_raises_no_group(
    settings: dict[str, Any], answers: list[Any], error: type[Exception]
) -> None:
    model = ScriptedModel(answers)
    agent = Agent("a", "", model=model, mcp_servers=[settings])
    with pytest.raises(error, match="agent 'a': "):
        await agent.run_async("x")
    assert not is_running(list_texts(model.requests[1])[0])


@pytest.mark.usefixtures("impatient")
async def test_cancelling_a_run_while_a_server_works_leaves_no_process(settings: dict[str, Any]) -> None:
    asked = anyio.Event()

    def script(request: Request) -> Any:
        if not list_texts(request):
            return PID
        asked.set()
        return wish("test_hang")

    model = ScriptedModel(script)
    agent = Agent("a", "", model=model, mcp_servers=[settings])
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.run_async, "x")
            await asked.wait()
            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
    assert not is_running(list_texts(model.requests[1])[0])


async def test_leaving_a_stream_early_leaves_no_process(settings: dict[str, Any]) -> None:
    model = ScriptedModel([PID, "a long answer in many pieces"])
    agent = Agent("a", "", model=model, mcp_servers=[settings])
    async with agent.stream("x") as pieces:
        async for _ in pieces:
            break
    assert not is_running(list_texts(model.requests[1])[0])


async def test_an_error_in_the_block_of_a_stream_comes_out_as_it_is(settings: dict[str, Any]) -> None:
    agent = Agent("a", "", model=ScriptedModel(["x"]), mcp_servers=[settings])
    with pytest.raises(RunError, match=r"^my own$"):
        async with agent.stream("x"):
            raise RunError("my own")


def test_servers_work_from_synchronous_code(settings: dict[str, Any]) -> None:
    model = ScriptedModel([wish("test_echo", value="x"), "done"])
    assert str(Agent("a", "", model=model, mcp_servers=[settings]).run("x").result) == "done"


@pytest.mark.parametrize("streamed", [False, True])
async def test_secrets_of_servers_are_looked_up_in_the_agents_surroundings(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEB_TOKEN", raising=False)
    with HttpServer() as server:
        web = {"name": "web", "url": server.url, "headers_env": {"Authorization": "WEB_TOKEN"}}
        around = Surroundings({"WEB_TOKEN": "Bearer topsecret-123"})
        agent = Agent("a", "", model=ScriptedModel(["done"]), mcp_servers=[web], surroundings=around)
        if streamed:
            async with agent.stream("x") as pieces:
                assert await anext(pieces) == "done"
        else:
            await agent.run_async("x")
        assert {headers["Authorization"] for headers in server.headers} == {"Bearer topsecret-123"}


async def test_a_secret_of_the_process_is_not_sent_where_the_surroundings_lack_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEB_TOKEN", "Bearer topsecret-123")
    with HttpServer() as server:
        web = {"name": "web", "url": server.url, "headers_env": {"Authorization": "WEB_TOKEN"}}
        agent = Agent("a", "", model=ScriptedModel(["done"]), mcp_servers=[web], surroundings=Surroundings({}))
        with pytest.raises(DefinitionError, match="WEB_TOKEN, which is not set"):
            await agent.run_async("x")
        assert server.headers == []
