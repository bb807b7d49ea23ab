"""Servers as they are published: one of Python, one of Node, over both transports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from require import missing, require

from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.tool import ToolResult
from flowengine.agents.tools.toolset import Offer, ToolSet
from tests.support.quiet_ports import quiet_port
from tests.support.serving import open_mcp

# The HTTP library leaves its event streams to the garbage collector when they are cancelled; trio says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning"
)


SUPPORT = Path(__file__).parents[2] / "support"

# Servers of our own are asked on both event loops; here each transport is.
ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
ON_TRIO = pytest.mark.parametrize("anyio_backend", ["trio"])


async def text(sets: tuple[ToolSet, ...], name: str, **arguments: object) -> str:
    tool = Offer(sets).find(name)
    assert tool is not None
    result = await tool.call(arguments)
    assert not result.is_error
    return result.text


@pytest.fixture(scope="module")
def everything() -> str:
    """The command of @modelcontextprotocol/server-everything, under the prefix in FLOWENGINE_TEST_NODE."""
    require("node", "Node.js runs the published MCP test server")
    prefix = os.environ.get("FLOWENGINE_TEST_NODE", "")
    command = Path(prefix) / "node_modules/.bin/mcp-server-everything"
    if not prefix or not command.exists():
        missing("@modelcontextprotocol/server-everything is not installed under FLOWENGINE_TEST_NODE")
    return str(command)


class RunningServer:
    """A published server over streamable HTTP, which can be killed and started again at its address."""

    def __init__(self, *command: str) -> None:
        self._port = quiet_port()
        self._command = [each.format(port=self._port) for each in command]
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self.start()

    def start(self) -> None:
        environment = {"PATH": os.environ["PATH"], "PORT": str(self._port)}
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, env=environment, stdout=quiet, stderr=quiet)
        wait_for(self._port)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def everything_server(everything: str) -> Iterator[RunningServer]:
    server = RunningServer(everything, "streamableHttp")
    yield server
    server.kill()


@pytest.fixture(scope="module")
def sdk_server() -> Iterator[RunningServer]:
    server = RunningServer(sys.executable, str(SUPPORT / "mcp_sdk_server.py"), "{port}")
    yield server
    server.kill()


@pytest.fixture
def everything_url(everything_server: RunningServer) -> str:
    return everything_server.url


def wait_for(port: int) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.1)
        else:
            return


@ON_ASYNCIO
async def test_the_published_time_server() -> None:
    server = McpServer(
        name="time", command=sys.executable, args=["-m", "mcp_server_time", "--local-timezone", "UTC"], env={}
    )
    async with open_mcp([server]) as sets:
        (only,) = sets
        assert {tool.name for tool in only.tools} == {"time_get_current_time", "time_convert_time"}
        assert '"timezone": "Asia/Tokyo"' in await text(sets, "time_get_current_time", timezone="Asia/Tokyo")
        wrong = await only.tools[0].call({"timezone": "Moon/Base"})
    assert wrong.is_error
    assert "Moon/Base" in wrong.text


@ON_ASYNCIO
async def test_the_published_everything_server_over_stdio(everything: str) -> None:
    async with open_mcp([McpServer(name="all", command=everything, args=["stdio"])]) as sets:
        assert await text(sets, "all_echo", message="日本") == "Echo: 日本"
        assert "[image: image/png, 4,033 bytes]" in await text(sets, "all_get-tiny-image")
        structured = Offer(sets).find("all_get-structured-content")
        assert structured is not None
        value = (await structured.call({"location": "New York"})).value
        assert sorted(value) == ["conditions", "humidity", "temperature"]
        wrong = await sets[0].tools[0].call({})
    assert wrong.is_error
    assert "'message' is missing" in wrong.text  # The server is not asked.


async def test_the_published_everything_server_over_streamable_http(everything_url: str) -> None:
    server = McpServer(name="all", url=everything_url, headers_env={"Authorization": "TOKEN"}, allow=["echo"])
    async with open_mcp([server], environ={"TOKEN": "Bearer topsecret-123"}) as sets:
        assert [tool.name for tool in sets[0].tools] == ["all_echo"]
        assert await text(sets, "all_echo", message="hello") == "Echo: hello"
        assert await text(sets, "all_echo", message="topsecret-123") == "Echo: [hidden]"


@ON_TRIO
async def test_several_servers_are_open_at_once(everything: str, everything_url: str) -> None:
    local = McpServer(name="local", command=everything, args=["stdio"])
    remote = McpServer(name="remote", url=everything_url)
    async with open_mcp([local, remote]) as sets:
        assert [each.name for each in sets] == ["local", "remote"]
        assert await text(sets, "local_echo", message="a") == await text(sets, "remote_echo", message="a")


@pytest.mark.long
@ON_ASYNCIO
@pytest.mark.parametrize(
    ("fixture", "slow", "arguments"),
    [
        ("everything_server", "all_trigger-long-running-operation", {"duration": 60, "steps": 2}),
        ("sdk_server", "all_linger", {}),
    ],
)
async def test_a_server_that_is_killed_and_restarted_in_the_middle_is_reached_again(
    fixture: str, slow: str, arguments: dict[str, object], request: pytest.FixtureRequest
) -> None:
    running: RunningServer = request.getfixturevalue(fixture)
    async with open_mcp([McpServer(name="all", url=running.url)]) as sets:
        assert await text(sets, "all_echo", message="1") == "Echo: 1"
        for number in range(2, 6):
            await to_thread.run_sync(running.kill)
            await to_thread.run_sync(running.start)
            assert await text(sets, "all_echo", message=str(number)) == f"Echo: {number}"
        lingering = Offer(sets).find(slow)
        assert lingering is not None
        lost: list[ToolResult] = []

        async def linger() -> None:
            lost.append(await lingering.call(arguments))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(linger)
            await anyio.sleep(3)  # No server says that it has begun; a busy machine takes its time.
            await to_thread.run_sync(running.kill)
            await to_thread.run_sync(running.start)
        # The library may wait for the rest of a stream that the new server does not know: then the time ends it.
        assert "took effect is unknown" in lost[0].text
        assert lost[0].may_have_acted
        assert await text(sets, "all_echo", message="again") == "Echo: again"
