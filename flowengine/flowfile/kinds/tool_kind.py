"""The kind `tool`: a tool of a server or of the project is called, and no model asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import Field, model_validator

from flowengine.core import TRAITS
from flowengine.errors import MisplacedKeyError
from flowengine.flowfile.compile import is_static, values
from flowengine.flowfile.schema import Effect, Maybe, NodeCompiler, NodeKind, Values, WorkKeys, is_code, refuse

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode

_TOOL: Final = r"^(?:[a-z][a-z0-9_]*\.\S+|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)$(?!\n)"


class ToolNodeSpec(WorkKeys):
    """A tool is called, and no model asks for it. The output is what it returns: of a server's tool the structured
    value where there is one, else the text. A call that goes wrong fails the node."""

    type: Literal["tool"]
    """Kind of the node."""
    tool: Annotated[str, Field(pattern=_TOOL)]
    """`server.tool` of an MCP server that the file or the project names, or `module:function`."""
    with_: Values = Field(default_factory=dict[str, Any], alias="with")
    """Argument → template; checked against the tool's schema before the call."""
    effect: Maybe[Effect] = None
    """Its effect outside. Left out, the tool says it: a function by `@tool(effect=…)`, a server's tool by the
    hints of a server with `trust_hints`, else it is `external`."""

    @model_validator(mode="after")
    def _may_be_repeated(self) -> ToolNodeSpec:
        for key in () if self.effect is not None or is_code(self.tool) else ("retry", "cache"):
            if getattr(self, key):
                message = f"'{key}' goes with `effect: none` or `effect: idempotent`: say which one it is"
                raise refuse("FE209", f"{message}, for what a server's tool does is not known before a run", at=key)
        return self


def make(node: ToolNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.agents.tools import Tool
    from flowengine.nodes import ToolNode

    arguments = {key: values(each) for key, each in node.with_.items()}
    constants = {key: each for key, each in node.with_.items() if _is_known(each)}
    approves = compiler.approve_external
    tool_node = ToolNode(
        compiler.tool(node.tool), arguments=arguments, known=constants, approve_external=approves, **settings
    )
    if isinstance(tool_node.tool, Tool):
        for each in tool_node.find_problems(tool_node.tool.parameters):
            place = ("with", each.name) if each.is_given and each.name else ("tool",)
            raise MisplacedKeyError(f"wrong arguments for the tool: {each.text}", place)
    return tool_node


def _is_known(value: Any) -> bool:
    """Tells whether there is nothing to render in a value."""
    if isinstance(value, str):
        return is_static(value)
    if isinstance(value, dict):
        return all(_is_known(each) for each in cast("dict[str, Any]", value).values())
    return not isinstance(value, list | tuple) or all(_is_known(each) for each in cast("list[Any]", value))


KIND: Final = NodeKind(ToolNodeSpec, make, TRAITS["tool"])
