"""MCP over streamable HTTP: headers from the environment, sessions that are lost, servers that fail."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
from mcp_http_server import HttpServer

from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.tool import ToolResult
from flowengine.errors import DefinitionError, RunError
from tests.support.pace import done_within
from tests.support.serving import open_mcp

TOKEN = "Bearer topsecret-123"


def settings(server: HttpServer, **more: Any) -> McpServer:
    return McpServer(
        **{"name": "web", "trust_hints": True, "url": server.url, "headers_env": {"Authorization": "WEB_TOKEN"}, **more}
    )


async def test_calls_go_over_http_with_the_headers(http_server: HttpServer) -> None:
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        result = await web.tools[0].call({"value": 1})
    assert result == ToolResult('{"value": 1}', '{"value": 1}')
    assert {headers["Authorization"] for headers in http_server.headers} == {TOKEN}


async def test_a_header_without_its_variable_is_an_error_before_anything_is_sent(http_server: HttpServer) -> None:
    with pytest.raises(DefinitionError, match="environment variable WEB_TOKEN, which is not set"):
        async with open_mcp([settings(http_server)], environ={}):
            pytest.fail("it opened")
    assert http_server.headers == []


@pytest.mark.parametrize("mode", ["unauthorized", "broken", "garbage"])
async def test_a_server_that_refuses_at_the_start_is_named(
    http_server: HttpServer, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    http_server.mode = mode
    with pytest.raises(RunError, match="MCP server 'web' did not start: ") as caught:
        async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}):
            pytest.fail("it opened")
    assert "topsecret" not in str(caught.value)
    assert "topsecret" not in caplog.text


async def test_a_server_that_hangs_at_the_start_is_given_up(http_server: HttpServer) -> None:
    http_server.mode = "hangs"
    with done_within(5), pytest.raises(RunError, match=r"did not start: it did not answer within 0.5 s"):
        async with open_mcp([settings(http_server, start_timeout=0.5)], environ={"WEB_TOKEN": TOKEN}):
            pytest.fail("it opened")


async def test_nobody_at_the_address_is_told(http_server: HttpServer) -> None:
    http_server.stop()
    with pytest.raises(RunError, match="MCP server 'web' did not start: ConnectError"):
        async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}):
            pytest.fail("it opened")


async def test_a_call_that_hangs_ends_at_its_timeout(http_server: HttpServer) -> None:
    async with open_mcp([settings(http_server, timeout=0.3)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        http_server.mode = "hangs"
        with done_within(8):
            result = await web.tools[0].call({})
        http_server.mode = "plain"
        http_server.released.set()
        with anyio.fail_after(30):
            while (await web.tools[0].call({})).is_error:
                pass
    assert result.text == (
        "tool 'web_echo' did not answer within 0.3 s and was given up; whether it took effect is unknown"
    )


async def test_a_session_that_the_server_forgot_is_begun_anew_and_the_call_made(http_server: HttpServer) -> None:
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        http_server.mode = "forgets"
        assert web.tools[0].effect == "external"  # it may be repeated, as it was not carried out
        assert await web.tools[0].call({}) == ToolResult("{}", "{}")
    assert http_server.calls == 1
    assert http_server.sessions == 2


@pytest.mark.parametrize("mode", ["unauthorized", "broken", "garbage", "packed", "huge", "many"])
async def test_a_call_that_fails_is_an_error_result_and_the_next_one_works(http_server: HttpServer, mode: str) -> None:
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        http_server.mode = mode
        result = await web.tools[0].call({})
        http_server.mode = "plain"
        assert not (await web.tools[0].call({})).is_error
    assert result.is_error
    assert result.text.startswith("MCP server 'web'")


async def test_a_server_that_went_away_is_an_error_result(http_server: HttpServer) -> None:
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        http_server.stop()
        result = await web.tools[0].call({})
    assert result.is_error
    assert "MCP server 'web'" in result.text
    assert "was lost during the call" in result.text or "is not available" in result.text
    assert not result.may_have_acted  # Nobody was there to take it.


LOST = "MCP server 'web' was lost during the call: "
DOUBT = ". Whether the call took effect is unknown"


@pytest.mark.parametrize(
    ("mode", "said", "acted", "calls"),
    [
        ("drops", LOST, True, 1),
        ("breaks_off", LOST, True, 1),
        ("fails", f"MCP server 'web' answered wrongly: HTTP 500{DOUBT}", True, 1),
        ("garbage", f"MCP server 'web' answered wrongly: HTTP 200{DOUBT}", True, 0),
        ("own_400", "MCP server 'web' refused: no such city", False, 0),
        ("own_500", "MCP server 'web' refused: no such city", False, 0),
        ("own_closed", "MCP server 'web' refused: the town has closed", False, 0),
        ("forbidden", "MCP server 'web' refused: HTTP 403: not for you", False, 0),
    ],
)
async def test_what_becomes_of_an_external_call_is_told_by_status_and_ids(
    http_server: HttpServer, mode: str, said: str, acted: bool, calls: int
) -> None:
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        http_server.mode = mode
        result = await web.tools[0].call({})
        http_server.mode = "plain"
        assert (result.text.startswith(said), result.may_have_acted) == (True, acted), result.text
        assert (DOUBT in result.text) == acted
        assert http_server.calls == calls
        assert await web.tools[0].call({}) == ToolResult("{}", "{}")


@pytest.mark.parametrize(("mode", "calls"), [("drops", 2), ("breaks_off", 2), ("fails", 1)])
async def test_a_harmless_call_is_made_again_where_the_connection_ended(
    http_server: HttpServer, mode: str, calls: int
) -> None:
    http_server.reads_only = True
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        http_server.mode = mode
        result = await web.tools[0].call({})
    assert (result.is_error, result.may_have_acted, http_server.calls) == (True, False, calls)


@pytest.mark.parametrize("mode", ["forgets_404", "forgets_400"])
async def test_a_session_that_is_forgotten_again_and_again_is_begun_anew_each_time(
    http_server: HttpServer, mode: str
) -> None:
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        for number in range(5):
            http_server.mode = mode
            assert await web.tools[0].call({"n": number}) == ToolResult(f'{{"n": {number}}}', f'{{"n": {number}}}')
    assert (http_server.calls, http_server.sessions) == (5, 6)


async def test_a_key_in_the_url_is_not_in_the_message(http_server: HttpServer) -> None:
    http_server.mode = "unauthorized"
    server = McpServer(name="web", url=f"{http_server.url}?key=topsecret-123")
    with pytest.raises(RunError) as caught:
        async with open_mcp([server]):
            pytest.fail("it opened")
    assert "topsecret" not in str(caught.value) + repr(server)


async def test_a_token_that_the_server_sends_back_is_hidden(
    http_server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_mcp([settings(http_server)], environ={"WEB_TOKEN": TOKEN}) as (web,):
        http_server.mode = "echoes_headers"
        result = await web.tools[0].call({})
    assert '"Authorization": "[hidden]"' in result.text
    assert "topsecret" not in str(result)
