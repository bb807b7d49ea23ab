"""Serves flows as MCP tools, over HTTP or stdio. Begin with `mcp_server`. Needs the extra `mcp`."""
