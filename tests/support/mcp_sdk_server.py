"""An MCP server made with the Python SDK, over streamable HTTP: `python mcp_sdk_server.py PORT`."""

from __future__ import annotations

import sys

import anyio
from mcp.server import MCPServer

server = MCPServer("sdk")


@server.tool()
def echo(message: str) -> str:
    """Gives the message back."""
    return f"Echo: {message}"


@server.tool()
async def linger() -> str:
    """Takes its time."""
    await anyio.sleep(60)
    return "done"


if __name__ == "__main__":
    server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
