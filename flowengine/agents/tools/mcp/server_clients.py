"""Starts MCP servers for as long as a scope lasts: each once, and shared by all agents that use it.

    async with RunScope() as scope:
        served = await serve([McpServer(name="time", command="mcp-server-time")], scope)
        offer = Offer(served.sets)

It starts the servers side by side and ends them all, and opens single tools of them. What happens to one server is the
matter of `flowengine.agents.tools.mcp.owner`. The `mcp` library is loaded here, in a thread, and only when needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anyio import to_thread

from flowengine.agents.tools.mcp.listed_tools import check_allowed, describe
from flowengine.agents.tools.mcp.server_settings import McpServer, header_values, process_environment
from flowengine.agents.tools.result_text import cut
from flowengine.agents.tools.tool import Tool, checking
from flowengine.agents.tools.toolset import ToolSet
from flowengine.core import RunScope
from flowengine.errors import DefinitionError
from flowengine.version import install_hint

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

    from flowengine.agents.tools.mcp.owner import McpOwner


class Served:
    """The tools of some servers, one set for each, as one agent sees them."""

    def __init__(self, views: Sequence[_View]) -> None:
        self._views = views

    @property
    def sets(self) -> tuple[ToolSet, ...]:
        """The sets as they were at the last look."""
        return tuple(view.tools for view in self._views)

    async def renew(self) -> bool:
        """Look again; whether a server lists something else than before."""
        return any([await view.renew() for view in self._views])


class _View:
    """One server, as one agent sees it."""

    def __init__(self, server: McpServer, owner: McpOwner, tools: Sequence[ListedTool]) -> None:
        self._server = server
        self._owner = owner
        self._tools = tools
        self.tools = self._describe()

    async def renew(self) -> bool:
        tools = await self._owner.list_tools()
        if tools is None or tools is self._tools:
            return False
        self._tools = tools
        self.tools = self._describe()
        return True

    def _describe(self) -> ToolSet:
        server, owner = self._server, self._owner
        tools = [
            Tool(
                each.name,
                owner.secrets.hide(each.text),
                each.parameters,
                checking(each.name, each.parameters, partial(owner.call, each)),
                each.effect,
                server.timeout,
                qualified=f"{server.name}.{each.remote_name}",
            )
            for each in describe(server, self._tools)
        ]
        return ToolSet(server.name, cut(owner.instructions, 2_000), tools, source=f"MCP server '{server.name}'")


async def serve(
    servers: Iterable[McpServer], scope: RunScope, *, environ: Mapping[str, str] | None = None, ahead: bool = False
) -> Served:
    """Start those of the servers that do not run in this scope yet, and give what they have, in their order.

    A server is the same as another one if it is started with the same settings and the same values of `environ`
    (None: the process's own environment); allow-lists and time limits of calls are each caller's own. It ends with the
    scope. `ahead`: failures are not told yet. Where a server hangs at such a start, the next who asks is told so,
    and does not wait for it a second time.

    A server that does not start is a `RunError` that names it; wrong settings, a tool in `allow` that
    the server lacks, and a missing `mcp` extra are a `DefinitionError`. After that no server can raise
    anything: its failures are results of its tools.
    """
    environ = os.environ if environ is None else environ
    kind = await to_thread.run_sync(_owner_type)
    running = scope.once(_Running, partial(_Running, scope))
    views: list[_View] = []
    for server, owner in [(each, running.owner(each, environ, kind, ahead=ahead)) for each in servers]:  # Side by side.
        tools = await owner.wait_for_tools()
        check_allowed(server, tools)
        views.append(_View(server, owner, tools))
    return Served(views)


class _Running:
    """The servers of one scope, by what they were started with."""

    def __init__(self, scope: RunScope) -> None:
        self._scope = scope
        self._owners: dict[Hashable, McpOwner] = {}
        scope.at_end(self._close)

    def owner(self, server: McpServer, environ: Mapping[str, str], kind: type[McpOwner], *, ahead: bool) -> McpOwner:
        """The one that runs or is being started; one that was given up gets a successor."""
        values = process_environment(server, environ) if server.command else header_values(server, environ)
        # All that makes two servers different ones.
        key = (server.name, server.command, server.args, server.url, server.start_timeout, frozenset(values.items()))
        owner = self._owners.get(key)
        if owner is None or owner.is_replaced:
            owner = self._owners[key] = kind(server, environ)
            self._scope.start_soon(owner.run)
        owner.asked_ahead = ahead
        return owner

    async def _close(self) -> None:
        for owner in self._owners.values():
            owner.close()
        for owner in self._owners.values():
            await owner.ended.wait()


def check_library() -> None:
    """`DefinitionError` where the `mcp` library is not installed; nothing is loaded."""
    if find_spec("mcp") is None:
        raise _missing_library("mcp")


def _owner_type() -> type[McpOwner]:
    try:
        return importlib.import_module("flowengine.agents.tools.mcp.owner").McpOwner
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("flowengine"):
            raise
        raise _missing_library(error.name or "mcp") from error


def _missing_library(name: str) -> DefinitionError:
    return DefinitionError(f"MCP servers need the 'mcp' extra, and '{name}' is not installed: {install_hint('mcp')}")


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool that only its server knows: it has no schema and no effect before the server has started."""

    server: McpServer
    tool: str
    """The tool's name at the server."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """The environment that holds the server's secrets."""

    @property
    def name(self) -> str:
        """The tool's name in records and for models."""
        return f"{self.server.name}_{self.tool}"

    async def open(self, scope: RunScope, *, ahead: bool = False) -> Tool:
        """The tool, or a `DefinitionError`. Its server ends with the scope. `ahead`: as in `serve`."""
        served = await serve([replace(self.server, allow=(self.tool,))], scope, environ=self.environ, ahead=ahead)
        return served.sets[0].tools[0]
