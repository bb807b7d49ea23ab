"""Calls a tool as a node: one call, with arguments that are worked out from the context, and no model asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from flowengine.agents.tools import ApprovalRules, ArgumentCheck, Tool, ToolResult, checking, tool_of
from flowengine.agents.tools.mcp import ServerTool, check_library, header_values
from flowengine.core import AwaitsPerson, Context, NodeResult, RunScope, write_json
from flowengine.engine import Ended, Park
from flowengine.errors import DefinitionError, RunError
from flowengine.journal import ASSUMED_DONE
from flowengine.nodes.code_digest import digest_handed
from flowengine.nodes.function import is_async
from flowengine.nodes.gateway import tool_gateway_of
from flowengine.nodes.node import Effect, FlowNode, NodeSettings, Value, work_out

if TYPE_CHECKING:
    from collections.abc import Collection


class ToolNode(FlowNode):
    """Calls one tool; the output is what it returns, of a server's tool the structured value where there is one.

    A call that goes wrong fails the node. `effect` left out is the tool's own: of a function what its `@tool` mark
    says, of a server's tool what the server says, which counts as `external` until it has said so.

    >>> def add(a: int, b: int = 1) -> int:
    ...     return a + b
    >>> ToolNode(add, arguments={"a": lambda context: 2}).tool.name
    'add'
    """

    kind: ClassVar[str] = "tool"
    records_effect: ClassVar[bool] = True
    sees_all = False

    def __init__(
        self,
        tool: Tool | ServerTool | Callable[..., Any],
        *,
        arguments: Mapping[str, Value] | None = None,
        known: Mapping[str, Any] | None = None,
        approve_external: bool = False,
        **settings: Unpack[NodeSettings],
    ) -> None:
        """`known`: the values of arguments that are the same in every run. `approve_external`: a person is asked
        before a call whose effect is `external`, as before that of a tool which says `approve`. `settings`: see
        `FlowNode`."""
        own_tool = tool if isinstance(tool, Tool | ServerTool) else tool_of(tool)
        own: Effect = own_tool.effect if isinstance(own_tool, Tool) else "external"
        effect: Effect | None = settings.get("effect")
        settings["effect"] = effect or own
        super().__init__(**settings)
        if self.effect == "external" and self.cache:
            raise DefinitionError("what has an external effect is done once, so it takes no `cache`")
        if self.cache and isinstance(own_tool, Tool) and own_tool.approve:
            raise DefinitionError("what a person consents to is done in this run alone, so it takes no `cache`")
        self.tool: Tool | ServerTool = own_tool
        self._rules = ApprovalRules(external=approve_external)
        self.arguments = arguments or {}
        self.known = known or {}
        self._effect = effect
        function = own_tool.function if isinstance(own_tool, Tool) else None
        self.in_thread = function is not None and not is_async(function)

    def with_tool(self, tool: Tool) -> ToolNode:
        """This node with another tool, called with the same arguments."""
        changed = copy(self)
        own = self._rules.apply_to(replace(tool, effect=self.effect))
        changed.tool = replace(tool, effect="none", approve=own.approve)
        changed.effect = changed._effect = "none"
        return changed

    @property
    def asks_by_default(self) -> bool:
        tool = self.tool
        return self._rules.external if isinstance(tool, ServerTool) else bool(self._rules.apply_to(tool).approve)

    def find_problems(self, schema: Mapping[str, Any]) -> Sequence[Any]:
        """Lists problems of the arguments that are known before a run."""
        stand_ins: dict[str, Any] = dict.fromkeys(self.arguments) | dict(self.known)
        return ArgumentCheck(schema).problems(stand_ins, unknown=self._unknown)

    @property
    def _unknown(self) -> Collection[str]:
        return self.arguments.keys() - self.known.keys()

    @property
    def remark(self) -> str:
        asks = isinstance(self.tool, Tool) and self._rules.apply_to(replace(self.tool, effect=self.effect)).approve
        return "asks a person" if asks else ""

    def prepare(self) -> None:
        if isinstance(self.tool, ServerTool):
            check_library()
            header_values(self.tool.server, self.tool.environ)

    @property
    def checks_servers(self) -> bool:
        return isinstance(self.tool, ServerTool) and self.when is None

    async def check_servers(self, path: str, scope: RunScope) -> None:
        try:
            tool = await cast(ServerTool, self.tool).open(scope, ahead=True)
        except RunError:
            return  # A server that does not start now is told of by the node, if that runs.
        problems = self.find_problems(tool.parameters)
        if problems:
            raise DefinitionError(f"node '{path}': {ArgumentCheck(tool.parameters).explain(tool.name, problems)}")

    async def run(self, context: Context, /) -> Ended:
        try:
            return await self._call(context)
        except AwaitsPerson:
            return Park()

    async def _call(self, context: Context) -> NodeResult:
        handed = self.handed(context)
        digest = digest_handed(context, handed)
        async with AsyncExitStack() as stack:
            tool = await self._open(context, stack)
            result = await tool_gateway_of(context).call_tool(tool, handed)
        if result.is_error:
            raise RunError(result.text)
        if result.value is ASSUMED_DONE:  # The result of a call that a person took as done is unknown.
            return NodeResult(None, given=digest)
        is_whole = not result.files or result.value != result.text
        return NodeResult(result.value if is_whole else _beside(result), given=digest)

    async def _open(self, context: Context, stack: AsyncExitStack) -> Tool:
        if isinstance(self.tool, Tool):
            tool = self.tool
            if tool.function is None:
                tool = replace(tool, run=checking(tool.name, tool.parameters, tool.run))
        else:
            scope = context.runtime.scope or await stack.enter_async_context(RunScope())
            tool = await self.tool.open(scope)
        effect, timeout = self._effect or tool.effect, tool.timeout if self.timeout is None else None
        return self._rules.apply_to(replace(tool, effect=effect, timeout=timeout))

    def handed(self, context: Context) -> Mapping[str, Any]:
        values = work_out(self.arguments, context)
        if isinstance(self.tool, Tool) and self.tool.function is not None:
            return values
        return json.loads(write_json(values, "a value of `with`"))

    def identity(self) -> Sequence[Any]:
        return (self.tool.name, self.arguments)

    @property
    def code(self) -> Sequence[Any]:
        function = self.tool.function if isinstance(self.tool, Tool) else None
        return () if function is None else (function,)


def _beside(result: ToolResult) -> dict[str, Any]:
    """The output where files came beside a text, and there is no value that has both."""
    return {"text": result.text, "files": list(result.files)}
