"""The kind `code`: a few lines of Python in the sandbox."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from flowengine.core import TRAITS
from flowengine.flowfile.compile import values
from flowengine.flowfile.schema import NodeCompiler, NodeKind, Values, WorkKeys, refuse

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode


class CodeNodeSpec(WorkKeys):
    """A few lines of Python run in the sandbox: no network, no files of the project. The output is what they return."""

    type: Literal["code"]
    """Kind of the node."""
    code: Annotated[str, Field(max_length=100_000)]
    """The body of a function; `return` gives the output. It is never rendered: values come by `with`."""
    with_: Values = Field(default_factory=dict[str, Any], alias="with")
    """Name in the code → template. Values go in and come out as JSON."""

    @model_validator(mode="after")
    def _names_can_be_read(self) -> CodeNodeSpec:
        for name in self.with_:
            if iskeyword(name):
                raise refuse("FE206", f"'{name}' is a word of Python, so no code can read it", at="with")
        return self


def make(node: CodeNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import CodeNode

    arguments = {key: values(each) for key, each in node.with_.items()}
    return CodeNode(node.code, arguments=arguments, root=compiler.root, **settings)


KIND: Final = NodeKind(CodeNodeSpec, make, TRAITS["code"])
