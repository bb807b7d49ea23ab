"""What a server is given of the environment.

Values are read here and go to the process or into the request, and nowhere else: `secret_values.Secrets` takes
them out of messages and of what the server answers, which a journal would keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowengine.errors import DefinitionError
from flowengine.tools.mcp_server import McpServer

__all__ = ["header_values", "process_environment"]

_INHERITED: Final = ("PATH", "HOME", "LANG")


def process_environment(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    """All that the process gets.

    >>> server = McpServer(name="a", command="a", env={"MODE": "fast"})
    >>> process_environment(server, {"PATH": "/bin", "OPENAI_API_KEY": "sk-1"})
    {'PATH': '/bin', 'MODE': 'fast'}
    """
    return {name: environ[name] for name in _INHERITED if name in environ} | dict(server.env)


def header_values(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers with their values; a `DefinitionError` names the variable, never its value."""
    found: dict[str, str] = {}
    for header, variable in server.headers_env.items():
        value = environ.get(variable, "").strip()
        if not value:
            raise DefinitionError(
                f"MCP server '{server.name}': header {header} comes from the environment variable {variable}, "
                f"which is not set"
            )
        if not (value.isascii() and value.isprintable()):
            raise DefinitionError(
                f"MCP server '{server.name}': the environment variable {variable} holds characters that "
                f"header {header} cannot carry"
            )
        found[header] = value
    return found
