"""Puts a test's functions and tools in the place of real ones, and refuses real ones that have an effect.

In a test a function or a tool with an effect is faked, or named as `real`, or its call is an error. Servers are not
started: an agent is offered those of their tools that are faked. What is faked answers what the test says; the node,
its templates and the model's way to a tool are those of the product.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from flowengine.agents import Agent, Bringer, Tooling, ToolLoop
from flowengine.agents.tools import Tool, ToolResult, ToolSet
from flowengine.agents.tools.mcp import McpServer, ServerTool
from flowengine.core import Messages, Secrets
from flowengine.errors import DefinitionError, RunError, did_you_mean
from flowengine.flow import Flow
from flowengine.models import Message, Request
from flowengine.nodes import (
    AgentNode,
    Answer,
    CodeNode,
    ConditionNode,
    EvaluationNode,
    FlowNode,
    FunctionNode,
    HttpNode,
    HttpRequest,
    SentAnswer,
    ToolNode,
)
from flowengine.testing.model_overrides import replace_agent, replace_nodes

__all__ = [
    "Fake",
    "FakeError",
    "Fakes",
    "brings_tools",
    "faked",
    "function_names",
    "request_names",
    "server_names",
    "tool_names",
]


class FakeError(RunError):
    """Raised by a fake that `fails`, and in place of an effect without a fake."""


class Fake(NamedTuple):
    """The replacement of one function or tool."""

    kind: Literal["returns", "each", "fails", "calls"]
    value: Any
    """What it returns; a list, for each call after the other a value or a `Fake`; the message of its error; a
    function."""


FakeLike: TypeAlias = Any
"""A value that it returns, a function that is called instead, or a `Fake`."""

_NO_SCHEMA: Final[Mapping[str, Any]] = {"type": "object"}


def faked(
    flow: Flow,
    *,
    functions: Mapping[str, FakeLike] | None = None,
    tools: Mapping[str, FakeLike] | None = None,
    http: Mapping[str, FakeLike] | None = None,
    real: Collection[str] = (),
) -> Flow:
    """The flow with fakes in the place of functions and tools; what has an effect and is not faked fails when called.

    `functions`: node or function name → what it returns, or a function to call instead. `tools`: the same by the name
    that the model calls. `http`: node → `{status, headers, body}` of the answer.
    `real`: functions, tools, servers and requests that stay as they are. A `Fake("each", […])` is used up
    once: make the flow anew for each run; `Fake("fails", message)` in its list is a call that fails. Each attempt of
    a node with `retry` is a call.

    >>> from flowengine import Flow, FunctionNode
    >>> def send(context):
    ...     raise OSError("no mail in tests")
    >>> flow = Flow("post", {"send": FunctionNode(send, effect="external")})
    >>> faked(flow, functions={"send": "sent"}).run_sync().outputs
    {'send': 'sent'}
    """
    return Fakes(functions or {}, tools or {}, real, http).around(flow)


def function_names(flow: Flow) -> list[str]:
    """The names by which a flow's functions are faked: the nodes' paths, and the functions' own names."""
    names: list[str] = []
    for name, node in flow.plan.all_nodes.items():
        function = _find_function(node)
        if function is not None:
            names += [name] if isinstance(node, CodeNode) else [name, getattr(function, "__name__", name)]
    return list(dict.fromkeys(names))


def tool_names(flow: Flow) -> list[str]:
    """The names by which a flow's tools are faked, as far as they are known before its servers start."""
    names = [node.tool.name for node in flow.plan.all_nodes.values() if isinstance(node, ToolNode)]
    names += [tool.name for agent in _list_agents(flow) for each in agent.tooling.sets for tool in each.tools]
    names += [f"{server.name}_{name}" for server in _list_servers(flow) for name in server.allow or ()]
    return list(dict.fromkeys(names))


def server_names(flow: Flow, *, open_only: bool = False) -> list[str]:
    """The flow's servers; `open_only`: those whose tools are not known from an allow-list."""
    return list(dict.fromkeys(each.name for each in _list_servers(flow) if not open_only or each.allow is None))


def request_names(flow: Flow) -> list[str]:
    """The nodes that send requests, by their paths."""
    return [name for name, node in flow.plan.all_nodes.items() if isinstance(node, HttpNode)]


def brings_tools(flow: Flow) -> bool:
    """Tells whether an agent has typed contexts or skills, which bring tools that are not known before they are
    asked.
    """
    return any(agent.sources is not None for agent in _list_agents(flow))


class Fakes:
    """The replacements in a test; `misses`: calls with an effect that had none."""

    def __init__(
        self,
        functions: Mapping[str, FakeLike],
        tools: Mapping[str, FakeLike],
        real: Collection[str] = (),
        http: Mapping[str, FakeLike] | None = None,
        *,
        refused: Collection[str] = ("idempotent", "external"),
    ) -> None:
        """`refused`: effects that are not had unless they are faked, or named as real."""
        self._refused = frozenset(refused)
        self.misses: list[str] = []
        self._functions = {name: _make_function(name, each) for name, each in functions.items()}
        self._tools = {name: _make_function(name, each) for name, each in tools.items()}
        self._http = {name: _make_function(name, each) for name, each in (http or {}).items()}
        self._real = frozenset(real)

    def around(self, flow: Flow) -> Flow:
        self._check(flow)
        return replace_nodes(flow, self._change)

    def _check(self, flow: Flow) -> None:
        """`DefinitionError` for a fake that stands for nothing."""
        functions, tools, requests = function_names(flow), tool_names(flow), request_names(flow)
        begins, brings = tuple(f"{each}_" for each in server_names(flow, open_only=True)), brings_tools(flow)
        for what, names, existing in (
            ("calls no function", self._functions, functions),
            ("has no tool", [each for each in self._tools if not (brings or each.startswith(begins))], tools),
            ("has no request", self._http, requests),
            (
                "has no function, tool or server",
                () if brings else self._real,
                [*functions, *tools, *server_names(flow), *requests],
            ),
        ):
            for name in names:
                if name not in existing:
                    raise DefinitionError(f"flow '{flow.name}' {what} '{name}'{_format_hint(name, existing)}")

    def _change(self, name: str, node: FlowNode) -> FlowNode:
        if isinstance(node, AgentNode):
            return replace_agent(node, self._around_agent)
        if isinstance(node, ToolNode):
            return self._around_tool_node(name, node)
        if isinstance(node, HttpNode):
            return self._around_request(name, node)
        function = _find_function(node)
        if function is None:
            return node
        called = name if isinstance(node, CodeNode) else getattr(function, "__name__", name)
        fake = self._functions.get(name) or self._functions.get(called)
        if fake is None and node.effect in self._refused and not self._real & {name, called}:
            fake = self._refusal(f"node '{name}' has an effect ({node.effect})", f"functions: {{{name}: …}}", name)
        return node if fake is None else _replace_function(node, fake)

    def _around_agent(self, agent: Any) -> Any:
        if not isinstance(agent, Agent):
            return agent
        changed, tooling = copy(agent), agent.tooling
        sets = [self.around_set(each) for each in tooling.sets]
        sets += [self._set_of(server) for server in tooling.servers if server.name not in self._real]
        servers = tuple(each for each in tooling.servers if each.name in self._real)
        changed.tooling = _FakedTooling(
            tuple(sets), servers, tooling.max_rounds, tooling.max_parallel, tooling.rules, self
        )
        return changed

    def around_set(self, tools: ToolSet) -> ToolSet:
        """The set with fakes among its tools."""
        around = [self._around_tool(each) for each in tools.tools]
        return ToolSet(tools.name, tools.description, around, tools.active, tools.source)

    def _set_of(self, server: McpServer) -> ToolSet:
        """Returns the fakes for a server that is not started."""
        fakes = {name: fake for name, fake in self._tools.items() if name.startswith(f"{server.name}_")}
        tools = [
            Tool(
                name,
                "",
                _NO_SCHEMA,
                _make_tool_run(fake),
                qualified=f"{server.name}.{name.removeprefix(server.name)[1:]}",
            )
            for name, fake in fakes.items()
        ]
        return ToolSet(server.name, "", tools, source=f"fakes of the MCP server '{server.name}'")

    def _around_tool(self, tool: Tool) -> Tool:
        fake = self._find_fake(tool.name, tool.effect)
        return tool if fake is None else replace(tool, run=_make_tool_run(fake))

    def _find_fake(self, tool: str, effect: str, *names: str) -> Callable[..., Any] | None:
        """What stands for a tool, which may be named as real by other names too; None: the tool itself."""
        fake = self._tools.get(tool)
        if fake is None and effect in self._refused and not self._real & {tool, *names}:
            return self._refusal(f"the tool '{tool}' has an effect ({effect})", f"tools: {{{tool}: …}}", tool)
        return fake

    def _around_tool_node(self, path: str, node: ToolNode) -> ToolNode:
        """The node with a tool that stands for its own; a server that is not named as real is not started."""
        tool = node.tool
        if isinstance(tool, Tool):
            fake = self._find_fake(tool.name, node.effect, path)
            return node if fake is None else node.with_tool(replace(tool, run=_make_tool_run(fake)))
        fake = self._tools.get(tool.name)
        if fake is None:
            if self._real & {path, tool.name, tool.server.name} or self._runs(node):
                return node
            what = f"the tool '{tool.name}' is one of an MCP server"
            fake = self._refusal(what, f"tools: {{{tool.name}: …}}", tool.server.name)
        offered = re.sub(r"[^A-Za-z0-9_-]", "_", tool.name)[:64]
        return node.with_tool(Tool(offered, "", _NO_SCHEMA, _make_tool_run(fake)))

    def _runs(self, node: FlowNode) -> bool:
        """Tells whether a node that is not faked has its effect: where servers and requests are not kept out
        altogether.
        """
        return "idempotent" not in self._refused and node.effect not in self._refused

    def _around_request(self, path: str, node: HttpNode) -> HttpNode:
        """The node with an answer that is made up; without one nothing is sent."""
        fake = self._http.get(path)
        if fake is None:
            if path in self._real or self._runs(node):
                return node
            fake = self._refusal(f"node '{path}' sends a request", f"http: {{{path}: {{body: …}}}}", path)
        return node.with_sender(_FakedSender(path, fake))

    def _refusal(self, what: str, how: str, name: str) -> Callable[..., Any]:
        async def refuse(*_: Any, **__: Any) -> Any:
            self.misses.append(f"{what} and is not faked; write `fakes: {{{how}}}`, or `fakes: {{real: [{name}]}}`")
            raise FakeError(self.misses[-1])

        return refuse


def _format_hint(name: str, existing: Sequence[str]) -> str:
    return did_you_mean(name, existing) or f"; there are: {', '.join(existing) or 'none'}"


def _make_function(name: str, stand_in: FakeLike) -> Callable[..., Any]:
    """The function that stands in: it takes any arguments; what it returns may be awaited."""
    fake = stand_in if isinstance(stand_in, Fake) else Fake("calls" if callable(stand_in) else "returns", stand_in)
    if fake.kind == "calls":
        return fake.value
    values = iter(fake.value) if fake.kind == "each" else None

    async def answer(*arguments: Any, **keywords: Any) -> Any:
        if fake.kind == "fails":
            raise FakeError(str(fake.value))
        if values is None:
            return fake.value
        for each in values:
            reply = _make_function(name, each)(*arguments, **keywords) if isinstance(each, Fake) else each
            return await reply if hasattr(reply, "__await__") else reply
        raise FakeError(f"the fake of '{name}' has answers for {len(fake.value)} calls, and it was called once more")

    return answer


def _make_tool_run(fake: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    async def run(arguments: Mapping[str, Any]) -> ToolResult:
        reply = fake(**arguments)
        value = await reply if hasattr(reply, "__await__") else reply
        return ToolResult(_to_text(value), value)

    return run


class _FakedSender(NamedTuple):
    """Answers as a test says it."""

    name: str
    fake: Callable[..., Any]

    async def send(self, request: HttpRequest, seconds: float | None, /) -> SentAnswer:
        reply = self.fake(request)
        parts = await reply if hasattr(reply, "__await__") else reply
        if not isinstance(parts, Mapping) or not {*cast("Mapping[str, Any]", parts)} <= {"status", "headers", "body"}:
            raise FakeError(f"the fake of '{self.name}' is a map with `status`, `headers` and `body`")
        answer = cast("Mapping[str, Any]", parts)
        status, extra_headers, body = answer.get("status", 200), answer.get("headers", {}), answer.get("body")
        if type(status) is not int or not isinstance(extra_headers, Mapping):
            raise FakeError(f"the fake of '{self.name}' has a whole number as `status`, and a map as `headers`")
        media_type = "application/json"
        if isinstance(body, bytes | str):
            media_type = "text/plain" if isinstance(body, str) else "application/octet-stream"
        content = b"" if body is None else body if isinstance(body, bytes) else _to_text(body).encode()
        headers = {"content-type": media_type, **cast("Mapping[str, Any]", extra_headers)}
        return SentAnswer(Answer(status, headers, content), request.url, Secrets(()))


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _find_function(node: FlowNode) -> Callable[..., Any] | None:
    """Returns the function of a node that a fake can replace."""
    if isinstance(node, FunctionNode):
        return node.function
    if isinstance(node, CodeNode):
        return node.with_function
    if isinstance(node, EvaluationNode):
        return node.scorer
    return node.function if type(node) is ConditionNode else None


def _replace_function(node: FlowNode, function: Callable[..., Any]) -> FlowNode:
    if isinstance(node, FunctionNode | CodeNode | ConditionNode):
        return node.with_function(function)
    changed = copy(cast(EvaluationNode, node))
    changed.scorer = function
    return changed


def _list_agents(flow: Flow) -> Iterator[Agent]:
    return (node.prototype for node in flow.plan.all_nodes.values() if isinstance(node, AgentNode))


def _list_servers(flow: Flow) -> Iterable[McpServer]:
    yield from (server for agent in _list_agents(flow) for server in agent.tooling.servers)
    for node in flow.plan.all_nodes.values():
        if isinstance(node, ToolNode) and isinstance(node.tool, ServerTool):
            # Of a server that only such nodes name, other tools belong to no node.
            yield (
                node.tool.server
                if node.tool.server.allow is not None
                else replace(node.tool.server, allow=(node.tool.tool,))
            )


@dataclass(frozen=True, slots=True)
class _FakedTooling(Tooling):
    """Tools among which some are faked; those that typed contexts and skills bring, too."""

    fakes: Fakes = field(default_factory=lambda: Fakes({}, {}))

    def check_rules(self, sets: Iterable[ToolSet]) -> None:
        """A server's tool that is not faked is not there, and may be named all the same."""

    @asynccontextmanager
    async def open(
        self,
        words: Messages,
        environ: Mapping[str, str],
        *,
        bringer: Bringer | None = None,
        **settings: Any,
    ) -> AsyncGenerator[Callable[[], ToolLoop]]:
        around = None if bringer is None else _FakedBringer(bringer, self.fakes)
        async with Tooling.open(self, words, environ, bringer=around, **settings) as loops:
            yield loops


class _FakedBringer:
    """Wraps a source of tools and replaces some of them by fakes."""

    def __init__(self, bringer: Bringer, fakes: Fakes) -> None:
        self._bringer = bringer
        self._fakes = fakes

    def tool_sets(self) -> Sequence[ToolSet]:
        return [self._fakes.around_set(each) for each in self._bringer.tool_sets()]

    async def refresh_messages(self, request: Request) -> tuple[Message, ...]:
        return await self._bringer.refresh_messages(request)

    def begin_round(self, calls: Iterable[tuple[Tool, Mapping[str, Any]]]) -> None:
        self._bringer.begin_round(calls)

    def take_result(self, tool: Tool, result: ToolResult) -> ToolResult:
        return self._bringer.take_result(tool, result)

    async def note_call(self, name: str, arguments: Mapping[str, Any], result: ToolResult) -> None:
        await self._bringer.note_call(name, arguments, result)
