from .mcp_routes import make_mcp_routes as make_mcp_routes
from .mcp_server import McpSettings as McpSettings
from .mcp_server import make_mcp_server as make_mcp_server
from .mcp_server import serve_stdio as serve_stdio
