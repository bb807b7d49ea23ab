"""What one agent sees of running MCP servers: the tools that it is allowed, under its own time limits.

Several agents may see one server at once, each in its own way. Servers may change their lists while they
run; that is seen when somebody looks again (`renew`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from flowengine.tools.mcp_server import McpServer
from flowengine.tools.mcp_tools import check_allowed, describe
from flowengine.tools.text import cut
from flowengine.tools.tool import Tool
from flowengine.tools.toolset import ToolSet

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

    from flowengine.tools.mcp_owner import McpOwner

__all__ = ["Served"]


class Served:
    """The tools of some servers, one set for each."""

    def __init__(self, views: Sequence[_View]) -> None:
        self._views = views

    @classmethod
    async def of(cls, parts: Iterable[tuple[McpServer, McpOwner]]) -> Served:
        """Once all of them have started."""
        return cls([await _View.opened(server, owner) for server, owner in parts])

    @property
    def sets(self) -> tuple[ToolSet, ...]:
        """As they were at the last look."""
        return tuple(view.tools for view in self._views)

    async def renew(self) -> bool:
        """Look again; whether a server lists something else than before."""
        return any([await view.renew() for view in self._views])


class _View:
    """One server, as one agent sees it."""

    def __init__(self, server: McpServer, owner: McpOwner, listed: Sequence[ListedTool]) -> None:
        self._server = server
        self._owner = owner
        self._listed = listed
        self.tools = self._described()

    @classmethod
    async def opened(cls, server: McpServer, owner: McpOwner) -> _View:
        listed = await owner.opened()
        check_allowed(server, listed)
        return cls(server, owner, listed)

    async def renew(self) -> bool:
        listed = await self._owner.listed()
        if listed is None or listed is self._listed:
            return False
        self._listed = listed
        self.tools = self._described()
        return True

    def _described(self) -> ToolSet:
        server, owner = self._server, self._owner
        tools = [
            Tool(each.name, each.text, each.parameters, partial(owner.call, each), each.effect, server.timeout)
            for each in describe(server, self._listed)
        ]
        return ToolSet(server.name, cut(owner.instructions, 2_000), tools, source=f"MCP server '{server.name}'")
