"""The kind `function`: a function of the project is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from flowengine.core.node_traits import TRAITS
from flowengine.flowfile.compile.scope import values
from flowengine.flowfile.schema.fields import CodePath, Values
from flowengine.flowfile.schema.keys import WorkKeys
from flowengine.flowfile.schema.node_kinds import NodeCompiler, NodeKind

if TYPE_CHECKING:
    from flowengine.nodes.node import FlowNode

__all__ = ["KIND", "FunctionNodeSpec"]


class FunctionNodeSpec(WorkKeys):
    """A function of the project is called; the output is what it returns."""

    type: Literal["function"]
    """Kind of the node."""
    call: CodePath
    """`module:function`."""
    with_: Values = Field(default_factory=dict[str, Any], alias="with")
    """Argument → template."""
    untrusted: bool = False
    """Whether it brings untrusted text of its own, from a database, a mailbox, a page."""


def make(node: FunctionNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes.function import FunctionNode

    arguments = {key: values(each) for key, each in node.with_.items()} if node.with_ else None
    return FunctionNode(compiler.import_callable(node.call), arguments=arguments, **settings)


KIND: Final = NodeKind(FunctionNodeSpec, make, TRAITS["function"])
