"""Finds the MCP server that a node names, among those of the file and of the project.

A server of the file stands under `mcp_servers`, its own or an agent's. Two of one name must be the same server: only
what they offer may differ. The file's go before the project's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis.flow_levels import settings_in
from flowengine.flowfile.schema.agent_settings import AgentSettings, McpServerSpec

if TYPE_CHECKING:
    from flowengine.flowfile.project.project import Project
    from flowengine.flowfile.schema.flow_file import FlowSpec
    from flowengine.tools.mcp.server_settings import McpServer

__all__ = ["UnknownServerError", "server_named"]


class UnknownServerError(DefinitionError):
    """Nobody names such a server; `known`: those that are named."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no MCP server '{name}' in the file or its project")
        self.known = known


def server_named(spec: FlowSpec, project: Project, name: str) -> McpServer:
    """The server of a name; `UnknownServerError` where there is none."""
    of_file = [each for each in _servers_of(spec) if each.name == name]
    if not of_file:
        if name not in project.mcp_servers:
            known = [*(each.name for each in _servers_of(spec)), *project.mcp_servers]
            raise UnknownServerError(name, list(dict.fromkeys(known)))
        from flowengine.tools.mcp.server_settings import server_of  # The event loop's library comes with it.

        return server_of({"name": name, **project.mcp_servers[name]})
    first, *others = of_file
    if any(_told_apart(first) != _told_apart(each) for each in others):
        raise DefinitionError(f"the file has different MCP servers named '{name}'; rename one of them")
    offers = [each.allow for each in of_file]
    allow: Any = None
    if None not in offers:
        allow = tuple(dict.fromkeys(tool for each in offers for tool in each or ()))
    return first.model_copy(update={"allow": allow}).server() if len(of_file) > 1 else first.server()


def _told_apart(server: McpServerSpec) -> dict[str, Any]:
    return server.model_dump(exclude={"allow", "timeout", "start_timeout"})


def _servers_of(spec: FlowSpec) -> Iterator[McpServerSpec]:
    yield from spec.mcp_servers or ()
    for _, each in settings_in(spec):
        if isinstance(each, AgentSettings):
            yield from each.mcp_servers or ()
