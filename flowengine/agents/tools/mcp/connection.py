"""Holds one connection to an MCP server, from the handshake to its end.

It opens the transport, speaks the handshake and lists the tools. It neither restarts nor repeats
anything: that is the `McpOwner`'s. Entered and left in one and the same task, as the `mcp` library wants.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation, ToolListChangedNotification
from mcp_types import Tool as ListedTool

from flowengine.agents.tools.mcp.http_exchange import EXCHANGE, Fate, HttpExchange, NotingClient
from flowengine.agents.tools.mcp.pipe import Pipe
from flowengine.agents.tools.mcp.server_settings import McpServer, header_values, process_environment
from flowengine.agents.tools.result_text import error_text
from flowengine.core import Secrets, find_secret_values, find_url_secrets
from flowengine.errors import RunError
from flowengine.version import __version__

_MAX_PAGES: Final = 100

# The library tells of every hiccup with a traceback; where no logging is set up, that is not for the terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())


class ConnectionLostError(Exception):
    """The connection ended before the answer came; `reached` says whether the call may have been carried out, and
    `is_forgotten` whether the server is there, and knew nothing of the connection."""

    def __init__(self, reason: str, *, reached: bool, is_forgotten: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.reached = reached
        self.is_forgotten = is_forgotten


class NoAnswerError(Exception):
    """The reply is no answer to the call, which may have been carried out; the connection stays."""


class McpConnection:
    """A connection of one server; `hold` is its life."""

    def __init__(self, server: McpServer, environ: Mapping[str, str]) -> None:
        self._server = server
        if server.command:
            environment = process_environment(server, environ)
            self._pipe = Pipe([server.command, *server.args], environment)
            self._headers: dict[str, str] = {}
            self.secrets = Secrets(find_secret_values(server.env))
        else:
            self._pipe = None
            self._headers = header_values(server, environ)
            self.secrets = Secrets([*self._headers.values(), *find_url_secrets(server.url or "")])
        self._client: Client | None = None
        self._ended = self._pipe.ended if self._pipe else anyio.Event()
        self._exit = anyio.Event()
        self._start = anyio.CancelScope()
        self._tools: list[ListedTool] = []
        self._listing = anyio.Lock()
        self._list_changed = False
        self.instructions = ""
        self.reason = ""
        """Why it ended, once it has."""
        self.has_hung = False
        """Whether it ended because its start took too long."""

    @property
    def is_live(self) -> bool:
        return self._client is not None and not self._ended.is_set()

    async def hold(self, opening: anyio.Event) -> None:
        """Connect, set `opening`, and stay until the connection ends. `reason` then says why.

        One cancel scope surrounds all of it, and its deadline goes once the server has started: a scope
        round the start alone would be left while the library's task groups inside are still open.
        """
        self._start.deadline = anyio.current_time() + self._server.start_timeout
        try:
            with self._start:
                async with self._connect() as client:
                    # By the server's own patterns, and without a bound: `call` does it with one.
                    client.session.validate_tool_result = _leave_unchecked
                    self._tools = await _all_tools(client)
                    self.instructions = client.session.instructions or ""
                    self._start.deadline = math.inf
                    self._client = client
                    opening.set()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._listen, client)
                        await self._ended.wait()
                        tasks.cancel_scope.cancel()
        except Exception as error:
            self.reason = self._explain_end(error)
        finally:
            self.has_hung = self._start.cancelled_caught and not self._ended.is_set()
            if self.has_hung:
                self.reason = f"it did not answer within {self._server.start_timeout:g} s"
            words = self._pipe.last_words(self.secrets.hide) if self._pipe else ""
            self.reason = self.secrets.hide((self.reason or self._explain_end(None)) + words)
            self._client = None
            self._ended.set()
            self._exit.set()

    async def list_tools(self) -> list[ListedTool]:
        """The server's tools, asked for again where it has said that they changed.

        A list that cannot be had leaves the last one.
        """
        async with self._listing:
            client = self._client
            if client is not None and self._list_changed:
                self._list_changed = False  # What changes while it answers is asked for the next time.
                try:
                    with anyio.move_on_after(self._server.start_timeout):
                        tools = await _all_tools(client)
                        if tools != self._tools:
                            self._tools = tools
                except Exception:
                    return self._tools
                except BaseException:
                    self._list_changed = True
                    raise
        return self._tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool. `ConnectionLostError` where the connection ended meanwhile, `NoAnswerError` where what came is
        no answer, `MCPError` where the server refused."""
        if self._client is None:
            raise ConnectionLostError(self.reason, reached=False)
        exchange = HttpExchange()
        token = EXCHANGE.set(exchange)
        try:
            answer = await self._client.call_tool(tool, dict(arguments))
            await self._check_structured(tool, answer)
            return answer
        except MCPError as error:
            fate = self._fate_of(exchange)
            if fate == "answered":
                raise
            if fate == "refused":
                raise MCPError(code=error.code, message=exchange.summary) from None
            if fate == "unclear":
                raise NoAnswerError(exchange.summary) from None
        finally:
            EXCHANGE.reset(token)
        # Its owner leaves it now, within seconds; how the process ended is known only then.
        self.close()
        await self._exit.wait()
        if fate == "forgotten":
            raise ConnectionLostError(exchange.summary, reached=False, is_forgotten=True)
        raise ConnectionLostError(self.reason, reached=fate != "unsent")

    def _fate_of(self, exchange: HttpExchange) -> Fate:
        if self._ended.is_set():
            return "lost"
        return "answered" if self._pipe else exchange.fate

    async def _check_structured(self, tool: str, answer: CallToolResult) -> None:
        """Raises `RunError` for structured content that the tool's own schema refuses, or that it cannot check."""
        schema = next((each.output_schema for each in self._tools if each.name == tool), None)
        if schema is None or answer.is_error:
            return
        from flowengine.core import find_misfits  # Slow to load, and few tools have such a schema.

        misfits = await anyio.to_thread.run_sync(find_misfits, schema, answer.structured_content)
        if misfits:
            raise RunError(f"its structured content does not fit its schema: {misfits[0].message} at {misfits[0].path}")

    def close(self) -> None:
        """Let `hold` end, in the midst of the start too."""
        self._ended.set()
        if self._client is None:
            self._start.cancel()

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Client]:
        info = Implementation(name="flowengine", version=__version__)
        if self._pipe:
            async with Client(
                self._pipe.open(), client_info=info, cache=None, message_handler=self._note_change
            ) as client:
                yield client
            return
        url = self._server.url or ""
        timeout = httpx2.Timeout(30.0, read=None)  # every wait for an answer has its own limit
        async with (
            NotingClient(headers={"accept-encoding": "identity", **self._headers}, timeout=timeout) as http,
            Client(
                streamable_http_client(url, http_client=http),
                client_info=info,
                cache=None,
                message_handler=self._note_change,
            ) as client,
        ):
            yield client

    async def _listen(self, client: Client) -> None:
        """Ask to be told of changes, as servers of newer protocols want it; older ones tell unasked."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        with suppress(Exception):  # An older server, or one that will not: then nothing is heard.
            async with client.listen(tools_list_changed=True):
                self._list_changed = True  # It may have, since the tools were listed: no notice came.
                await anyio.sleep_forever()

    async def _note_change(self, message: IncomingMessage) -> None:
        """Note that the list changed. It is not asked for here: the reader of the answer is waiting for this to end."""
        if isinstance(message, ToolListChangedNotification):
            self._list_changed = True

    def _explain_end(self, error: Exception | None) -> str:
        if self._pipe and self._pipe.ended.is_set():
            return self._pipe.how_it_ended()
        return error_text(error) if error else "the connection was closed"


async def _leave_unchecked(name: str, result: CallToolResult) -> None:
    pass


async def _all_tools(client: Client) -> list[ListedTool]:
    tools: list[ListedTool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools
