"""Keeps an eval from having effects outside that its file does not ask for.

What has an external effect is faked in the words of flow tests, named as `real`, or all of it is run with
`effects: run`; else the eval does not begin. What only reads, or may be done twice, runs as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.agents.tools.mcp import ServerTool
from flowengine.flow import Flow
from flowengine.nodes import AgentNode, FlowNode, HttpNode, ToolNode
from flowengine.testing import (
    Fake,
    Fakes,
    FakesSpec,
    function_names,
    replace_nodes,
    request_names,
    server_names,
    tool_names,
)

_KINDS = ("functions", "tools", "http")


class Unfaked(NamedTuple):
    """Something with an effect outside, and how it would be faked."""

    what: str
    key: str
    name: str

    @property
    def fake(self) -> str:
        return f"{self.key}: {{{self.name}: …}}" if self.key != "real" else f"real: [{self.name}]"


def list_unfaked(flow: Flow, fakes: FakesSpec) -> list[Unfaked]:
    """Lists a flow's external effects that have no fake, by node."""
    effects: dict[Unfaked, None] = {}
    for name, node in flow.plan.all_nodes.items():
        effects.update(dict.fromkeys(_effects_of(name, node, fakes)))
    return list(effects)


def explain_unfaked(unfaked: Sequence[Unfaked]) -> str:
    """Explains why an eval refuses to start, and what helps."""
    names, more = ", ".join(each.what for each in unfaked[:8]), len(unfaked) - 8
    fakes = "; ".join(dict.fromkeys(each.fake for each in unfaked[:8]))
    return (
        f"rows would have effects outside: {names}{f' and {more} more' if more > 0 else ''}. Fake them: "
        f"`fakes: {{{fakes}}}`, or name what is to be had under `fakes: {{real: […]}}`"
    )


def _effects_of(name: str, node: FlowNode, fakes: FakesSpec) -> Iterator[Unfaked]:
    real = set(fakes.real)
    if isinstance(node, AgentNode):
        tooling = node.prototype.tooling
        for tool in (tool for each in tooling.sets for tool in each.tools):
            if tool.effect == "external" and tool.name not in fakes.tools and tool.name not in real:
                yield Unfaked(f"the tool '{tool.name}' of '{name}'", "tools", tool.name)
        for server in tooling.servers:
            if server.name not in real and not any(each.startswith(f"{server.name}_") for each in fakes.tools):
                yield Unfaked(f"the MCP server '{server.name}' of '{name}'", "real", server.name)
    elif node.effect == "external":
        if isinstance(node, ToolNode):
            tool = node.tool
            own = {name, tool.name, tool.server.name if isinstance(tool, ServerTool) else name}
            if tool.name not in fakes.tools and real.isdisjoint(own):
                yield Unfaked(f"node '{name}'", "tools", tool.name)
        elif isinstance(node, HttpNode):
            if name not in fakes.http and name not in real:
                yield Unfaked(f"node '{name}'", "http", name)
        else:
            called = getattr(getattr(node, "function", None), "__name__", name)
            if fakes.functions.keys().isdisjoint({name, called}) and real.isdisjoint({name, called}):
                yield Unfaked(f"node '{name}'", "functions", name)


def has_queues(fakes: FakesSpec) -> bool:
    """Tells whether a fake has one value for each call after the other, and so is used up by a run."""
    values = [value for kind in _KINDS for value in getattr(fakes, kind).values()]
    return any(isinstance(each, Fake) and each.kind == "each" for each in values)


def with_fakes(flow: Flow, fakes: FakesSpec, *, refuses: bool) -> Flow:
    """The flow with its fakes; those that stand for nothing in this version of it are left out.

    `refuses`: external effects that are not known before a server or a context brings them are errors. A node whose
    fake says something else than before is another node: what it gave then does not hold.
    """
    functions, tools, servers = set(function_names(flow)), set(tool_names(flow)), server_names(flow)
    begins = tuple(f"{each}_" for each in servers)
    known_tools = {name: each for name, each in fakes.tools.items() if name in tools or name.startswith(begins)}
    by_kind = {
        "functions": {name: each for name, each in fakes.functions.items() if name in functions},
        "tools": known_tools if begins or tools else {},
        "http": {name: each for name, each in fakes.http.items() if name in request_names(flow)},
    }
    names = {*functions, *tools, *servers, *request_names(flow)}
    real = [each for each in fakes.real if each in names]
    if not refuses:  # Servers without a fake are started.
        real += [each for each in servers if not any(name.startswith(f"{each}_") for name in known_tools)]
    flow_fakes = Fakes(
        by_kind["functions"], by_kind["tools"], real, by_kind["http"], refused=("external",) if refuses else ()
    )

    def define(name: str, node: FlowNode) -> FlowNode:
        node_fakes = _fakes_of(name, node, by_kind)
        return node.defined_with(f"faked: {node_fakes!r}") if node_fakes else node

    return flow_fakes.around(replace_nodes(flow, define))


def _fakes_of(name: str, node: FlowNode, by_kind: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the fakes for a node."""
    if isinstance(node, AgentNode):
        return by_kind["tools"]
    if isinstance(node, ToolNode):
        return {each: value for each, value in by_kind["tools"].items() if each == node.tool.name}
    if isinstance(node, HttpNode):
        return {each: value for each, value in by_kind["http"].items() if each == name}
    called = getattr(getattr(node, "function", None), "__name__", name)
    return {each: value for each, value in by_kind["functions"].items() if each in (name, called)}
