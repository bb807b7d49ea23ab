"""MCP servers as sets of tools, for as long as a block of code lasts.

    async with open_mcp([McpServer(name="time", command="mcp-server-time")]) as tool_sets:
        offer = Offer(tool_sets)

This is the door: it starts the servers side by side and ends them all. What happens to one server is
`flowengine.tools.mcp_owner`'s. The `mcp` library is loaded here, in a thread, and only when it is needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from flowengine.errors import DefinitionError
from flowengine.tools.mcp_server import McpServer
from flowengine.tools.toolset import ToolSet

if TYPE_CHECKING:
    from flowengine.tools.mcp_owner import McpOwner

__all__ = ["open_mcp"]

_CLOSING: Final = 10.0
"""Seconds that all servers together get to end; each kills its own process well before that."""


@asynccontextmanager
async def open_mcp(
    servers: Iterable[McpServer], *, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[tuple[ToolSet, ...]]:
    """Start the servers and give a `ToolSet` for each, in their order; leaving ends them.

    A server that does not start is a `RunError` that names it; wrong settings, a tool in `allow` that
    the server lacks, and a missing `mcp` extra are a `DefinitionError`. After that no server can raise
    anything: its failures are results of its tools. Enter and leave it in the same task.
    """
    chosen = tuple(servers)
    if not chosen:
        yield ()
        return
    owners = await _owners(chosen, environ)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for owner in owners:
            tasks.start_soon(owner.run)
        try:
            yield tuple([await owner.opened() for owner in owners])
        except Exception as error:
            failure = error  # raised below: from inside the group it would come out as an ExceptionGroup
        for owner in owners:
            owner.close()
        tasks.cancel_scope.deadline = anyio.current_time() + _CLOSING
    if failure is not None:
        raise failure


async def _owners(servers: tuple[McpServer, ...], environ: Mapping[str, str]) -> list[McpOwner]:
    names = [server.name for server in servers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DefinitionError(f"two MCP servers are named '{twice}'; rename one of them")
    kind = await to_thread.run_sync(_owner_type)
    return [kind(server, environ) for server in servers]


def _owner_type() -> type[McpOwner]:
    try:
        return importlib.import_module("flowengine.tools.mcp_owner").McpOwner
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("flowengine"):
            raise
        raise DefinitionError(
            f"MCP servers need the 'mcp' extra, and '{error.name}' is not installed: pip install 'flowengine[mcp]'"
        ) from error
