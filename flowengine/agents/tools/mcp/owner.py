"""Keeps one MCP server available to its callers: restarted when it ends, or given up for good.

The owner's task enters and leaves every connection of its server, one after the other; calls come from
other tasks and borrow the one that is live. Rules:

1. A server is started once; if that fails, nothing is tried again.
2. A connection that ended is replaced when the next call asks for it, after a pause that doubles.
3. After `MAX_RESTARTS` restarts without one answered call between them the server is given up.
4. A call that was under way when the connection ended is repeated, once, if its effect is `none` or
   `idempotent`, or if it did not reach the server, which may have forgotten the session. Otherwise it may have taken
   effect, which is told; so it is where what comes is no answer.
5. Whatever goes wrong in a call is a result that the model can read.

It knows no agent: allow-lists, names and time limits of tools are the matter of `Served`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp_types import Tool as ListedTool

from flowengine.agents.tools.mcp.connection import ConnectionLostError, McpConnection, NoAnswerError
from flowengine.agents.tools.mcp.listed_tools import Description, result_of
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.result_text import error_text
from flowengine.agents.tools.tool import ToolResult, failed_result
from flowengine.core import Secrets
from flowengine.errors import RunError

MAX_RESTARTS: Final = 3
_FIRST_PAUSE: Final = 0.25
_DOUBT: Final = "Whether the call took effect is unknown"


class _GoneError(Exception):
    """No connection is to be had."""


class McpOwner:
    """Holds the connections of one server. `run` is a task of its own; everything else may be called from any task."""

    def __init__(self, server: McpServer, environ: Mapping[str, str]) -> None:
        self._server = server
        self._environ = dict(environ)
        self._connection = McpConnection(server, self._environ)
        self._closing = anyio.Event()
        self._wish = anyio.Event()
        self._changed = anyio.Event()
        self._restarts = 0
        self._end_reason = ""
        self.instructions = ""
        """The server's text on itself, once it has started."""
        self.asked_ahead = False
        """Whether who asked last only looked before its node runs (see `serve`)."""
        self.ended = anyio.Event()
        """Set when `run` has ended."""

    @property
    def secrets(self) -> Secrets:
        """The values that the server was given."""
        return self._connection.secrets

    @property
    def is_replaced(self) -> bool:
        """Whether who asks now gets another one: it was given up or closed, and somebody was told where it hung."""
        return bool(self._end_reason) and not (self._connection.has_hung and self.asked_ahead)

    async def run(self) -> None:
        """Hold one connection after the other, until the server is given up or closed."""
        try:
            await self._hold_connection()
            while not self._end_reason:
                await self._wish.wait()
                with anyio.move_on_after(_FIRST_PAUSE * 2**self._restarts):
                    await self._closing.wait()
                if not self._end_reason:
                    self._restarts += 1
                    self._connection = McpConnection(self._server, self._environ)
                    await self._hold_connection()
        finally:
            self._end_for("it was closed")
            self.ended.set()

    async def wait_for_tools(self) -> Sequence[ListedTool]:
        """Returns the tools of the started server; raises `RunError` if it does not list them."""
        try:
            connection = await self._live_connection()
        except _GoneError as error:
            raise RunError(f"MCP server '{self._server.name}' did not start: {error}") from None
        self.instructions = self.secrets.hide(connection.instructions)
        return await connection.list_tools()

    async def list_tools(self) -> Sequence[ListedTool] | None:
        """Returns the server's current tools, the same object while nothing changes; None if it is not running."""
        return await self._connection.list_tools() if self._connection.is_live else None

    def close(self) -> None:
        """Let `run` end; calls after this are told so."""
        self._end_for("it was closed")
        self._closing.set()
        self._connection.close()

    async def _hold_connection(self) -> None:
        """One connection from its start to its end."""
        opening, connection = anyio.Event(), self._connection
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._announce, opening)
            await connection.hold(opening)
            tasks.cancel_scope.cancel()
        if self._restarts >= MAX_RESTARTS:
            self._end_for(f"it was restarted {self._restarts} times to no avail; the last time {connection.reason}")
        elif self._restarts == 0 and not opening.is_set():
            self._end_for(connection.reason)
        self._wake_waiting()

    async def _announce(self, opening: anyio.Event) -> None:
        await opening.wait()
        self._wish = anyio.Event()  # what was wanted is there; the next wish comes after this one's end
        self._wake_waiting()

    def _end_for(self, reason: str) -> None:
        self._end_reason = self._end_reason or reason
        self._wish.set()
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Wake all that wait for a connection; they look again."""
        self._changed.set()
        self._changed = anyio.Event()

    async def _live_connection(self) -> McpConnection:
        """The live connection, started where there is none."""
        while not self._connection.is_live:
            if self._end_reason:
                raise _GoneError(self._end_reason)
            self._wish.set()
            await self._changed.wait()
        return self._connection

    async def call(self, described: Description, arguments: Mapping[str, Any]) -> ToolResult:
        """Call it, over a second connection if the first one ends and that does no harm."""
        name, problem = f"MCP server '{self._server.name}'", ""
        for _ in range(2):
            try:
                connection = await self._live_connection()
            except _GoneError as error:
                return failed_result(f"{name} is not available: {error}")
            try:
                return await self._answer(connection, described, arguments)
            except ConnectionLostError as error:
                if error.is_forgotten:
                    self._restarts = 0
                    problem = f"{name} refused: {connection.secrets.hide(error.reason)}"
                    continue
                problem = f"{name} was lost during the call: {error.reason}"
                if error.reached and described.effect == "external":
                    return failed_result(f"{problem}. {_DOUBT}; it was not repeated", may_have_acted=True)
        return failed_result(problem)

    async def _answer(
        self, connection: McpConnection, described: Description, arguments: Mapping[str, Any]
    ) -> ToolResult:
        name, acted = f"MCP server '{self._server.name}'", described.effect == "external"
        try:
            answer = await connection.call(described.remote_name, arguments)
        except MCPError as error:
            text, acted = f"{name} refused: {error.message}", False
        except ConnectionLostError:
            raise
        except Exception as error:  # An answer that breaks the protocol or the tool's own schema, or none at all.
            reason = str(error) if isinstance(error, NoAnswerError) else error_text(error)
            text = f"{name} answered wrongly: {reason}{f'. {_DOUBT}' if acted else ''}"
        else:
            self._restarts = 0
            return result_of(answer, connection.secrets)
        self._restarts = 0
        return failed_result(connection.secrets.hide(text), may_have_acted=acted)
