"""Lists what a flow file may start, ask and run, with the flows that it runs as nodes: to look at before it is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis.flow_levels import nodes_of
from flowengine.flowfile.analysis.named_servers import server_named
from flowengine.flowfile.checks.permissions import code_of, servers_of
from flowengine.flowfile.project.project import Project
from flowengine.flowfile.schema.fields import is_code
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.node_guards import is_code_node, is_http, is_tool

__all__ = ["Reach", "list_reach"]

_SHOWN: Final = 200


class Reach(NamedTuple):
    """One thing that lies outside of the file."""

    kind: str
    """`starts`, `asks`, `sends to`, `calls` or `runs`."""
    what: str


def list_reach(spec: FlowSpec, project: Project) -> list[Reach]:
    """Each once, in the order of their kinds."""
    order = {"starts": 0, "asks": 1, "sends to": 2, "calls": 3, "runs": 4}
    return sorted(dict.fromkeys(_find(spec, project)), key=lambda each: order[each.kind])


def _find(spec: FlowSpec, project: Project) -> Iterator[Reach]:
    for _, server in servers_of(spec):
        yield _of_server(server.name, server.command, tuple(server.args), server.url)
    for _, target in code_of(spec):
        yield Reach("calls", target)
    for path, node in nodes_of(spec):
        if is_tool(node) and not is_code(node.tool):
            try:
                named = server_named(spec, project, node.tool.partition(".")[0])
            except DefinitionError:
                continue
            yield _of_server(named.name, named.command, tuple(named.args), named.url)
        elif is_http(node):
            secrets = ", ".join(node.headers_env.values())
            yield Reach("sends to", f"{node.method} {node.url[:_SHOWN]}{secrets and f' with {secrets}'}")
        elif is_code_node(node):
            yield Reach("runs", f"the code of '{'.'.join(path)}' in the sandbox")
    for each in spec.subflows.values():
        yield from _find(each, project)


def _of_server(name: str, command: str | None, args: tuple[str, ...], url: str | None) -> Reach:
    if url is not None:  # A query may hold a key.
        return Reach("asks", f"{url.partition('?')[0][:_SHOWN]} (server '{name}')")
    return Reach("starts", f"{shlex.join([command or '', *args])[:_SHOWN]} (server '{name}')")
