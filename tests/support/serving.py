"""MCP servers in a scope of their own, for tests of servers without an agent."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

from flowengine.agents.tools.mcp.server_clients import serve
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.toolset import ToolSet
from flowengine.core.run_scope import RunScope


@asynccontextmanager
async def open_mcp(
    servers: Iterable[McpServer], *, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[tuple[ToolSet, ...]]:
    """The sets of the servers, which end with the block."""
    async with RunScope() as scope:
        yield (await serve(servers, scope, environ=environ)).sets
