"""MCP servers that run for as long as a scope: each is started once in it, and shared by all who ask for it.

    async with RunScope() as scope:
        served = await serve([McpServer(name="time", command="mcp-server-time")], scope)
        offer = Offer(served.sets)

This is the door: it starts the servers side by side and ends them all. What happens to one server is
`flowengine.tools.mcp_owner`'s, what one agent sees of it is `flowengine.tools.mcp_served`'s. The `mcp`
library is loaded here, in a thread, and only when it is needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anyio import to_thread

from flowengine.errors import DefinitionError
from flowengine.extras import install_hint
from flowengine.run_scope import RunScope
from flowengine.tools.mcp_secrets import header_values, process_environment
from flowengine.tools.mcp_served import Served
from flowengine.tools.mcp_server import McpServer

if TYPE_CHECKING:
    from flowengine.tools.mcp_owner import McpOwner

__all__ = ["check_library", "serve"]


async def serve(servers: Iterable[McpServer], scope: RunScope, *, environ: Mapping[str, str] | None = None) -> Served:
    """Start those of the servers that do not run in this scope yet, and give what they have, in their order.

    A server is the same as another one if it is started with the same settings and the same values of `environ`
    (None: the process's own environment); allow-lists and time limits of calls are each caller's own. It ends with the
    scope.

    A server that does not start is a `RunError` that names it; wrong settings, a tool in `allow` that
    the server lacks, and a missing `mcp` extra are a `DefinitionError`. After that no server can raise
    anything: its failures are results of its tools.
    """
    environ = os.environ if environ is None else environ
    kind = await to_thread.run_sync(_owner_type)
    running = scope.once(_Running, partial(_Running, scope))
    return await Served.of([(server, running.owner(server, environ, kind)) for server in servers])


class _Running:
    """The servers of one scope, by what they were started with."""

    def __init__(self, scope: RunScope) -> None:
        self._scope = scope
        self._owners: dict[Hashable, McpOwner] = {}
        scope.at_end(self._close)

    def owner(self, server: McpServer, environ: Mapping[str, str], kind: type[McpOwner]) -> McpOwner:
        """The one that runs or is being started; one that was given up gets a successor."""
        key = _started_with(server, environ)
        owner = self._owners.get(key)
        if owner is None or owner.is_gone:
            owner = self._owners[key] = kind(server, environ)
            self._scope.start_soon(owner.run)
        return owner

    async def _close(self) -> None:
        for owner in self._owners.values():
            owner.close()
        for owner in self._owners.values():
            await owner.ended.wait()


def _started_with(server: McpServer, environ: Mapping[str, str]) -> Hashable:
    """All that makes two servers different ones."""
    values = process_environment(server, environ) if server.command else header_values(server, environ)
    return server.name, server.command, server.args, server.url, server.start_timeout, frozenset(values.items())


def check_library() -> None:
    """`DefinitionError` where the `mcp` library is not installed; nothing is loaded."""
    if find_spec("mcp") is None:
        raise _no_library("mcp")


def _owner_type() -> type[McpOwner]:
    try:
        return importlib.import_module("flowengine.tools.mcp_owner").McpOwner
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("flowengine"):
            raise
        raise _no_library(error.name or "mcp") from error


def _no_library(name: str) -> DefinitionError:
    return DefinitionError(f"MCP servers need the 'mcp' extra, and '{name}' is not installed: {install_hint('mcp')}")
