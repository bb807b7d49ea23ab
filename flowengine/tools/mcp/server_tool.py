"""Names one tool of an MCP server, and opens it in a run, where its server may run already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flowengine.core.run_scope import RunScope
from flowengine.tools.mcp.server_settings import McpServer
from flowengine.tools.tool import Tool

__all__ = ["ServerTool"]


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool that only its server knows: it has no schema and no effect before the server has started."""

    server: McpServer
    tool: str
    """As the server calls it."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where the server's secrets are."""

    @property
    def name(self) -> str:
        """As records and models name it."""
        return f"{self.server.name}_{self.tool}"

    async def open(self, scope: RunScope, *, ahead: bool = False) -> Tool:
        """The tool, or a `DefinitionError`. Its server ends with the scope. `ahead`: as in `serve`."""
        from flowengine.tools.mcp.client import serve  # The event loop's part of MCP, which most flows do not need.

        served = await serve([replace(self.server, allow=(self.tool,))], scope, environ=self.environ, ahead=ahead)
        return served.sets[0].tools[0]
