"""Checks the settings of an MCP server, and reads what it is given of the environment.

Values are read here and go to the process or into the request, and nowhere else: `secret_values.Secrets` takes
them out of messages and of what the server answers, which a journal would keep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, cast

from flowengine.agents.tools.tool import DEFAULT_TIMEOUT
from flowengine.errors import DefinitionError, did_you_mean

# --- Settings of one server; nothing is started here

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server: either `command` (with `args` and `env`) or `url` (with `headers_env`).

    >>> McpServer(name="time", command="mcp-server-time", args=["--local-timezone", "UTC"]).args
    ('--local-timezone', 'UTC')
    """

    name: str
    """Its tools are named `name_tool`; 1 to 32 of ASCII letters, digits, `_` and `-`."""
    command: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The environment that the process gets beside PATH, HOME and LANG; it inherits nothing else."""
    url: str | None = field(default=None, repr=False)
    headers_env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Header → the environment variable that holds its value."""
    allow: Sequence[str] | None = None
    """The tools to offer, by the server's own names; None for all."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds that one call may take, a restart of the server included."""
    start_timeout: float = 30.0
    """Seconds from the start to the list of tools."""
    trust_hints: bool = False
    """Whether its word counts for what its tools do: else each call counts as a deed, and is asked about as one."""

    def __post_init__(self) -> None:
        misfit = _find_misfit(self)
        if misfit:
            raise DefinitionError(f"MCP server {self.name!r:.40}: {misfit}")
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"MCP server name {self.name!r}: use 1 to 32 of the letters A-Z and a-z, digits, '_' and '-'"
            )
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "allow", None if self.allow is None else tuple(self.allow))
        problem = self._problem()
        if problem:
            raise DefinitionError(f"MCP server '{self.name}': {problem}")

    def _problem(self) -> str:
        """Describes a conflict between settings; empty if there is none."""
        if bool(self.command) == bool(self.url):
            return "give either `command` (a local process) or `url` (streamable HTTP)"
        if self.url and (self.args or self.env):
            return "`args` and `env` belong to a `command`, not to a `url`"
        if self.command and self.headers_env:
            return "`headers_env` belongs to a `url`, not to a `command`"
        if self.url and not self.url.startswith(("http://", "https://")):
            return "`url` starts with http:// or https://"
        wrong = next((header for header in self.headers_env if not _HEADER.fullmatch(header)), None)
        if wrong is not None:
            return f"{wrong!r} in `headers_env` is no name of a header"
        bad_header = next(
            (name for name, variable in self.headers_env.items() if not _VARIABLE.fullmatch(variable)), None
        )
        if bad_header is not None:  # What stands there may be the secret itself, so it is not repeated.
            return f"`headers_env` takes the name of an environment variable for {bad_header}, not the value"
        times = {"timeout": self.timeout, "start_timeout": self.start_timeout}
        late = next((name for name, seconds in times.items() if not seconds > 0), None)
        return f"`{late}` is {times[late]!r}; seconds above 0 are expected" if late else ""


def _find_misfit(server: McpServer) -> str:
    """Names the setting with a wrong type, without its value, which may be secret; empty if there is none."""
    texts = {"name": server.name, "command": server.command, "url": server.url}
    for name, text in texts.items():
        if not (isinstance(text, str) or (text is None and name != "name")):
            return f"`{name}` is a text"
    lists: dict[str, object] = {"args": server.args, "allow": () if server.allow is None else server.allow}
    for name, values in lists.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not _are_texts(cast("Sequence[Any]", values)):
            return f"`{name}` is a list of texts"
    for name, table in {"env": server.env, "headers_env": server.headers_env}.items():
        if not isinstance(cast("Any", table), Mapping) or not _are_texts([*table, *table.values()]):
            return f"`{name}` is a table of texts"
    for name, seconds in {"timeout": server.timeout, "start_timeout": server.start_timeout}.items():
        if isinstance(seconds, bool) or not isinstance(cast("Any", seconds), int | float):
            return f"`{name}` is a number of seconds"
    return "" if isinstance(cast("Any", server.trust_hints), bool) else "`trust_hints` is true or false"


def _are_texts(items: Sequence[Any]) -> bool:
    return all(isinstance(each, str) for each in items)


def server_of(settings: Mapping[str, Any]) -> McpServer:
    """The server that a mapping describes, as a flow file has it.

    >>> server_of({"name": "docs", "url": "https://example.org/mcp"}).allow is None
    True
    """
    names = [each.name for each in fields(McpServer)]
    unknown = next((key for key in settings if key not in names), None)
    if unknown is not None:
        raise DefinitionError(
            f"an MCP server has no setting {unknown!r}{did_you_mean(str(unknown), names)} (it has {', '.join(names)})"
        )
    if "name" not in settings:
        raise DefinitionError("an MCP server needs a `name`")
    return McpServer(**settings)


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
    headers: dict[str, str] = {}
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
        headers[header] = value
    return headers
