"""Checks the tools that an agent was given, and opens them for a run.

Servers run for as long as the run of the flow, whose agents share them; those of an agent that stands alone for as long
as its own run. How a model calls them is the matter of `tool_loop`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from flowengine.agents.settings import check_count, check_list
from flowengine.agents.tool_loop import Admit, Bringer, CurrentTools, RoundLimits, ToolLoop, without_tools
from flowengine.agents.tools import NO_RULES, ApprovalRules, Offer, Tool, ToolSet
from flowengine.agents.tools.mcp import McpServer, server_of
from flowengine.core import Messages, RunScope
from flowengine.errors import DefinitionError, did_you_mean

if TYPE_CHECKING:
    from flowengine.agents.tools.mcp import Served

ToolChoice: TypeAlias = Callable[..., Any] | Tool | ToolSet
"""The values a user may give as one of `tools`."""

ServerChoice: TypeAlias = McpServer | Mapping[str, Any]
"""The values a user may give as one of `mcp_servers`."""


@dataclass(frozen=True, slots=True)
class Tooling:
    """The tools that an agent may call, with their limits."""

    sets: tuple[ToolSet, ...] = ()
    servers: tuple[McpServer, ...] = ()
    max_rounds: int = 10
    """Rounds of tool calls in one generation."""
    max_parallel: int = 8
    """Calls of one round that run at once."""
    rules: ApprovalRules = NO_RULES
    """Which calls a person is asked about."""

    def __post_init__(self) -> None:
        check_count("max_tool_rounds", self.max_rounds, 1)
        check_count("max_parallel_tools", self.max_parallel, 1)
        Offer(self.sets)  # Two tools of one name are told now.
        names = [each.name for each in self.servers]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DefinitionError(f"two MCP servers are named '{twice}'; rename one of them")

    @asynccontextmanager
    async def open(
        self,
        words: Messages,
        environ: Mapping[str, str],
        *,
        scope: RunScope | None = None,
        admit: Admit | None = None,
        bringer: Bringer | None = None,
    ) -> AsyncGenerator[Callable[[], ToolLoop]]:
        """Start the servers. Each call of what it gives is one generation's loop.

        `environ` is where the servers' secrets are. The servers end with the scope, which may hold some of them
        already; without one, with the block. `admit` is asked about the tools before a model is. `bringer` has
        tools beside the agent's.
        """
        if not self.servers and bringer is None:
            yield self.loops(words)
            return
        async with AsyncExitStack() as stack:
            served: Served | None = None
            if self.servers:
                from flowengine.agents.tools.mcp import serve  # Most agents name no server.

                open_scope = await stack.enter_async_context(RunScope()) if scope is None else scope
                served = await serve(self.servers, open_scope, environ=environ)
            current = CurrentTools(self.sets, self.rules, served, bringer, admit)
            self.check_rules([*self.sets, *current.added])
            yield lambda: ToolLoop(self._limits, current.offer, words, current)

    def __bool__(self) -> bool:
        """Whether there are any tools, or servers that may have some."""
        return bool(self.servers) or any(each.tools for each in self.sets)

    def names(self) -> list[str]:
        """Tools and servers by name."""
        return [*(tool.name for each in self.sets for tool in each.tools), *(each.name for each in self.servers)]

    @property
    def asks(self) -> bool:
        """Whether a person is asked before some of the calls, as far as that is known before the servers run."""
        tools = (tool for each in self.sets for tool in each.tools)
        return bool(self.rules.names) or any(self.rules.apply_to(tool).approve for tool in tools)

    def check_names(self, sets: Iterable[ToolSet]) -> None:
        """`DefinitionError` where a tool of these sets has the name of another one."""
        Offer((*self.sets, *sets))

    def check_rules(self, sets: Iterable[ToolSet]) -> None:
        """`DefinitionError` for a name in `approve` that no tool of these has: it would never be asked about."""
        tools = [tool for each in sets for tool in each.tools]
        if (name := self.rules.find_unknown(tools)) is not None:
            names = [each.qualified or each.name for each in tools]
            hint = did_you_mean(name, names) or f"; the tools are: {', '.join(names) or 'none'}"
            raise DefinitionError(f"there is no tool '{name}', which `approve` names{hint}")

    def loops(self, words: Messages) -> Callable[[], ToolLoop]:
        """Makes the loop of one generation, for an agent without servers: there is nothing to `open`."""
        if not self.sets:
            return without_tools
        offer = Offer(self.sets, self.rules)
        return partial(ToolLoop, self._limits, offer, words) if len(offer) else without_tools

    @property
    def _limits(self) -> RoundLimits:
        return RoundLimits(self.max_rounds, self.max_parallel)


def tooling_of(
    tools: Iterable[ToolChoice],
    mcp_servers: Iterable[ServerChoice],
    max_rounds: int,
    max_parallel: int,
    approve: Iterable[str],
    external: bool,
    approvers: Iterable[str],
) -> Tooling:
    """The tools as users give them, in their order; what is none is a `DefinitionError`."""
    return Tooling(
        tuple(map(_to_tool_set, check_list("tools", tools))),
        tuple(map(_to_server, check_list("mcp_servers", mcp_servers))),
        max_rounds,
        max_parallel,
        ApprovalRules(check_list("approve", approve), external, check_list("approvers", approvers)),
    )


def _to_tool_set(choice: ToolChoice) -> ToolSet:
    if isinstance(choice, ToolSet):
        return choice
    if not callable(cast(object, choice)) and not isinstance(choice, Tool):
        raise DefinitionError(f"one of tools is neither a function nor a Tool nor a ToolSet: {choice!r:.80}")
    return ToolSet("tools", "", [choice], source="a Tool" if isinstance(choice, Tool) else _describe_origin(choice))


def _to_server(choice: ServerChoice) -> McpServer:
    if isinstance(choice, McpServer):
        return choice
    if isinstance(cast(object, choice), Mapping):
        return server_of(choice)
    hint = "; write McpServer(name='…', command='…', args=[…]) or McpServer(name='…', url='…')"
    raise DefinitionError(f"one of mcp_servers is neither an McpServer nor a mapping: {choice!r:.80}{hint}")


def _describe_origin(function: Callable[..., Any]) -> str:
    """Describes where a function comes from, for a message."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or type(function).__module__}:{name}"
