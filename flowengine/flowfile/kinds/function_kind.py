"""The kind `function`: a function of the project is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from flowengine.core import TRAITS
from flowengine.flowfile.compile import values
from flowengine.flowfile.schema import CodePath, NodeCompiler, NodeKind, Values, WorkKeys

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode


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
    from flowengine.nodes import FunctionNode

    arguments = {key: values(each) for key, each in node.with_.items()} if node.with_ else None
    return FunctionNode(compiler.import_callable(node.call), arguments=arguments, **settings)


KIND: Final = NodeKind(FunctionNodeSpec, make, TRAITS["function"])
