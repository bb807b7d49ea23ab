"""Permission of MCP servers: a flow file names them, only the project file lets them be started or asked.

A command is matched word by word, with its arguments and the environment that it gets, since these can make any
program run anything; an address by scheme, host and the beginning of its path. Nothing is started or asked.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import cast
from urllib.parse import unquote, urlsplit

from flowengine.extras import install_hint, missing_modules
from flowengine.spec.levels import key_path, nodes_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.project import Project
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_agent import AgentSettings, McpServerSpec
from flowengine.spec.schema_nodes import AgentNodeSpec

__all__ = ["check_servers", "is_allowed", "servers_of"]


def check_servers(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each server that the project does not allow, and whether the library that asks servers is here."""
    servers = list(servers_of(spec))
    if servers and missing_modules("mcp"):
        text = "the extra that asks MCP servers is not installed here"
        report.at_value("FE908", text, servers[0][0], f"; {install_hint('mcp')}")
    for path, server in servers:
        if not is_allowed(server, project.allow_mcp):
            file = project.file or project.root / "flowengine.toml"
            entry = json.dumps(_entry(server), ensure_ascii=False)  # A string of TOML as well.
            hint = f"; add {entry} to `allow_mcp` in {file}"
            report.at_value("FE509", f"the MCP server '{server.name}' is not allowed", path, hint)


def is_allowed(server: McpServerSpec, allowed: Sequence[str]) -> bool:
    """Whether an entry of `allow_mcp` lets a server be used.

    An entry is the beginning of a server's command line, with all of its environment in front as in a shell
    (`TZ=UTC uvx mcp-server-time`; `TZ=*` for any value), or the beginning of its URL.

    >>> time = McpServerSpec(name="time", command="uvx", args=("mcp-server-time", "--local-timezone", "UTC"))
    >>> is_allowed(time, ["uvx mcp-server-time"]), is_allowed(time, ["uvx mcp-server"])
    (True, False)
    """
    if server.url is not None:
        address = _address(server.url)
        return address is not None and any(_begins(address, _address(each)) for each in allowed)
    return any(_runs(server, each) for each in allowed)


def servers_of(spec: FlowSpec) -> Iterator[tuple[KeyPath, McpServerSpec]]:
    """Every server in the file, with the place of its command or URL."""
    for node_path, node in nodes_of(spec):
        path = key_path(node_path)
        if isinstance(node, AgentNodeSpec):
            yield from _of_agent(node, path)
        yield from _of_agent(getattr(node, "agent", None), (*path, "agent"))
    for name, agent in spec.agents.items():
        yield from _of_agent(agent, ("agents", name))
    yield from _of_agent(spec.defaults.agent, ("defaults", "agent"))


def _of_agent(agent: object, path: KeyPath) -> Iterator[tuple[KeyPath, McpServerSpec]]:
    if isinstance(agent, AgentSettings):
        for number, server in enumerate(cast("tuple[McpServerSpec, ...]", agent.mcp_servers or ())):
            yield (*path, "mcp_servers", number, "command" if server.url is None else "url"), server


# --- commands


def _runs(server: McpServerSpec, entry: str) -> bool:
    try:
        words = shlex.split(entry)
    except ValueError:
        return False
    given = dict(server.env)
    while words and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        if value in ("*", given.get(name)):
            given.pop(name, None)
    line = [server.command, *server.args]
    return bool(words) and not given and line[: len(words)] == words


def _entry(server: McpServerSpec) -> str:
    """What allows this server; the values of its environment may be secrets and are not told."""
    if server.url is not None:
        return _address(server.url) or server.url.partition("?")[0]
    environment = [f"{name}=*" for name in server.env]
    return " ".join([*environment, shlex.join([server.command or "", *server.args])])


# --- addresses


def _address(url: str) -> str | None:
    """Scheme, host and path, without user and query, which may be secrets; None for what is no plain address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None
    path = parts.path or "/"
    if parts.scheme not in ("http", "https") or not host or {".", ".."} & {*unquote(path).split("/")}:
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def _begins(address: str, allowed: str | None) -> bool:
    """Whether an address is the allowed one or lies below it."""
    return allowed is not None and (address == allowed or address.startswith(allowed.rstrip("/") + "/"))
