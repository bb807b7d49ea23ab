"""An MCP server of the `mcp` library, of its newest protocol, with a tool that adds another one.

`python mcp_growing_server.py stdio`, or `streamable-http PORT`. With `external` at the end the new tool is that.
"""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

HARMLESS = ToolAnnotations(read_only_hint=True)

server = MCPServer("growing")


def grown() -> str:
    return "I am new"


@server.tool(annotations=HARMLESS)
async def grow(ctx: Context) -> str:
    server.add_tool(grown, annotations=None if "external" in sys.argv else HARMLESS)
    await ctx.notify_tools_changed()
    return "done"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
