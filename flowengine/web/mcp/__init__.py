"""Serves flows as MCP tools, over HTTP or stdio. Begin with `mcp_server`. Needs the extra `mcp`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
