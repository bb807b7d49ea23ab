"""What agents see of running servers, and of servers that change their tools while they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from mcp import Client

from flowengine.agents.tools.mcp.connection import McpConnection
from flowengine.agents.tools.mcp.server_clients import Served, serve
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.toolset import Offer
from flowengine.core.run_scope import RunScope
from flowengine.errors import DefinitionError, RunError
from tests.support.quiet_ports import quiet_port

Settings = Callable[..., McpServer]

GROWING = Path(__file__).parents[2] / "support" / "mcp_growing_server.py"


def names(served: Served) -> list[str]:
    return [tool.name.partition("_")[2] for each in served.sets for tool in each.tools]


async def call(served: Served, name: str) -> str:
    tool = Offer(served.sets).find(name)
    assert tool is not None
    result = await tool.call({})
    assert not result.is_error, result.text
    return result.text


async def kill(process: int) -> None:
    """End a server, and wait until its owner has seen it end."""
    os.kill(process, signal.SIGKILL)
    with anyio.fail_after(60), suppress(ProcessLookupError):
        while True:
            os.kill(process, 0)
            await anyio.sleep(0.005)


async def renewed(served: Served) -> bool:
    """Whether a change that was told comes to be seen."""
    with anyio.move_on_after(60):
        while not await served.renew():  # noqa: ASYNC110 - nobody is told: who wants to know looks again
            await anyio.sleep(0.005)
        return True
    return False


async def test_one_scope_has_one_server_and_each_caller_what_it_allows(server: Settings) -> None:
    async with RunScope() as scope:
        first = await serve([server(allow=["pid"])], scope)
        second = await serve([server(allow=["pid", "echo"])], scope)
        assert (names(first), names(second)) == (["pid"], ["echo", "pid"])
        assert await call(first, "test_pid") == await call(second, "test_pid")


async def test_a_tool_that_a_server_adds_is_seen_by_all_who_look_again(server: Settings) -> None:
    async with RunScope() as scope:
        everybody = [await serve([server()], scope) for _ in range(2)]
        narrow = await serve([server(allow=["echo"])], scope)
        await call(everybody[0], "test_grow")
        assert [await renewed(each) for each in everybody] == [True, True]
        assert [names(each)[-1] for each in everybody] == ["grown", "grown"]
        await narrow.renew()
        assert names(narrow) == ["echo"]


async def test_nothing_is_new_where_nothing_has_changed(server: Settings) -> None:
    async with RunScope() as scope:
        served = await serve([server()], scope)
        sets = served.sets
        assert not await served.renew()
        assert all(now is before for now, before in zip(served.sets, sets, strict=True))


async def test_a_tool_that_is_gone_is_offered_no_more_though_it_is_allowed(server: Settings) -> None:
    async with RunScope() as scope:
        served = await serve([server(allow=["echo", "shrink"])], scope)
        await call(served, "test_shrink")
        assert await renewed(served)
        assert names(served) == ["shrink"]


async def test_a_server_that_died_keeps_its_tools_and_comes_back_with_those_it_has_then(server: Settings) -> None:
    async with RunScope() as scope:
        served = await serve([server()], scope)
        await call(served, "test_grow")
        assert await renewed(served)
        await kill(int(await call(served, "test_pid")))
        assert not await served.renew()
        assert names(served)[-1] == "grown"
        assert await call(served, "test_echo") == "{}"
        assert await renewed(served)
        assert "grown" not in names(served)


async def test_a_server_that_was_given_up_is_started_anew_for_who_comes_then(server: Settings) -> None:
    async with RunScope() as scope:
        with pytest.raises(RunError, match="did not start"):
            await serve([server("second_start")], scope)
        served = await serve([server("second_start")], scope)
        assert await call(served, "test_echo") == "{}"


async def test_a_wrong_allow_list_is_one_callers_matter(server: Settings) -> None:
    async with RunScope() as scope:
        with pytest.raises(DefinitionError, match=r"did you mean 'echo'\?"):
            await serve([server(allow=["ecko"])], scope)
        assert await call(await serve([server(allow=["echo"])], scope), "test_echo") == "{}"


@pytest.fixture
def growing_url() -> Iterator[str]:
    """The growing server over streamable HTTP."""
    port = quiet_port()
    command = [sys.executable, str(GROWING), "streamable-http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "Uvicorn running" in line)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


async def grows(server: McpServer) -> None:
    async with RunScope() as scope:
        served = await serve([server], scope)
        assert names(served) == ["grow"]
        await call(served, "test_grow")
        assert await renewed(served)
        assert await call(served, "test_grown") == "I am new"


@pytest.mark.long
async def test_servers_of_the_newest_protocol_tell_of_changes_too() -> None:
    await grows(McpServer(name="test", command=sys.executable, args=[str(GROWING), "stdio"]))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # What it tells of is the same on both.
async def test_a_change_before_the_server_is_asked_to_tell_of_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    asks, listen = anyio.Event(), McpConnection._listen

    async def listen_late(connection: McpConnection, client: Client) -> None:
        await asks.wait()
        await listen(connection, client)

    monkeypatch.setattr(McpConnection, "_listen", listen_late)
    async with RunScope() as scope:
        served = await serve([McpServer(name="test", command=sys.executable, args=[str(GROWING), "stdio"])], scope)
        await call(served, "test_grow")
        assert not await served.renew()
        asks.set()
        assert await renewed(served)
        assert names(served) == ["grow", "grown"]


# The HTTP library leaves its event streams to the garbage collector when they are cancelled; trio says so.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning")
async def test_they_do_so_over_http(growing_url: str) -> None:
    await grows(McpServer(name="test", url=growing_url))
