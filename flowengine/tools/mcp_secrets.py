"""What a server is given of the environment, and how that is kept out of everything that is said of it.

Values are read here and go to the process or into the request, and nowhere else: `Secrets.hide` takes
them out of messages and of what the server answers, which a journal would keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from flowengine.errors import DefinitionError
from flowengine.tools.mcp_server import McpServer

__all__ = ["Secrets", "header_values", "process_environment", "secret_values", "url_secrets"]

_INHERITED: Final = ("PATH", "HOME", "LANG")
_SHORTEST: Final = 6
"""Shorter values are no secrets, and hiding them would tear words apart."""
_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|DSN|DATABASE_URL", re.IGNORECASE)
_HIDDEN: Final = "[hidden]"
_MAX_DEPTH: Final = 50


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


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values whose variables are named like secrets; a time zone or a log level is none.

    >>> secret_values({"API_KEY": "sk-123456", "TZ": "Asia/Tokyo"})
    ['sk-123456']
    """
    return [value for name, value in environment.items() if _SECRET_NAME.search(name)]


def url_secrets(url: str) -> list[str]:
    """The password and the query's values, in which services let keys be given.

    >>> url_secrets("https://ada:pass@example.org/mcp?key=abc&v=2")
    ['pass', 'abc', '2']
    """
    parts = urlsplit(url)
    return [parts.password or "", *(value for _, value in parse_qsl(parts.query))]


class Secrets:
    """Values that must not be seen.

    >>> Secrets(["Bearer abcdef123"]).hide("Bearer token abcdef123 refused")
    'Bearer token [hidden] refused'
    """

    def __init__(self, values: Iterable[str]) -> None:
        # Servers echo a token without the scheme before it, which is no secret.
        pieces = {piece for value in values for piece in (value, *value.split()[1:])}
        self._pieces = sorted((piece for piece in pieces if len(piece) >= _SHORTEST), key=len, reverse=True)

    def hide(self, text: str) -> str:
        for piece in self._pieces:
            text = text.replace(piece, _HIDDEN)
        return text

    def hide_in(self, value: Any, depth: int = 0) -> Any:
        """The same of every text in a value of JSON's types."""
        if not self._pieces:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if depth > _MAX_DEPTH:
            return _HIDDEN if isinstance(value, dict | list) else value
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value)
            return {self.hide(key): self.hide_in(each, depth + 1) for key, each in entries.items()}
        if isinstance(value, list):
            return [self.hide_in(each, depth + 1) for each in cast("list[Any]", value)]
        return value
