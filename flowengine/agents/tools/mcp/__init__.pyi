from .server_clients import Served as Served
from .server_clients import ServerTool as ServerTool
from .server_clients import check_library as check_library
from .server_clients import serve as serve
from .server_settings import McpServer as McpServer
from .server_settings import header_values as header_values
from .server_settings import server_of as server_of
