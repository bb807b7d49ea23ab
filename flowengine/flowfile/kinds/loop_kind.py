"""The kind `loop`: a body runs again until it is good enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from flowengine.core import TRAITS
from flowengine.core.templating import Missing
from flowengine.flowfile.compile import boolean, expression, values
from flowengine.flowfile.schema import BodyKeys, Expression, Maybe, NodeCompiler, NodeKind, Values

if TYPE_CHECKING:
    from flowengine.core import Context
    from flowengine.nodes import FlowNode


class LoopNodeSpec(BodyKeys):
    """The body runs again until it is good enough; the output is the variables of the chosen round. Each round sees the
    shared state that earlier ones wrote, and what every round wrote counts."""

    type: Literal["loop"]
    """Kind of the node."""
    max_iterations: Annotated[int, Field(ge=1, le=10_000)]
    """Rounds, at most."""
    initial: Values = Field(default_factory=dict[str, Any])
    """Variable → its value in the first round, seen there as `round.<variable>`."""
    until: Maybe[Expression] = None
    """Looked at after each round: where it is true, that round was the last and is the chosen one."""
    carry: Values = Field(default_factory=dict[str, Any])
    """Variable → its value in the next round; sees the body."""
    on_exhausted: Literal["fail", "continue"] = "fail"
    """The consequence if no round was good enough."""
    best_by: Maybe[Expression] = None
    """A round's mark; of an exhausted loop the round with the highest one is chosen. Left out: the last."""

    after_body: ClassVar[frozenset[str]] = frozenset({"until", "carry", "best_by"})

    def names_inside(self) -> tuple[str, ...]:
        return ("round",)

    def most_rounds(self) -> int:
        return self.max_iterations


def make(node: LoopNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import LoopNode

    return LoopNode(
        compiler.body(),
        max_iterations=node.max_iterations,
        initial={name: values(each) for name, each in node.initial.items()},
        until=None if node.until is None else boolean(node.until),
        carry={name: values(each) for name, each in node.carry.items()},
        best_by=None if node.best_by is None else _or_none(expression(node.best_by)),
        exhausted_fails=node.on_exhausted == "fail",
        **settings,
    )


def _or_none(value: Callable[[Context], Any]) -> Callable[[Context], Any]:
    """Turns undefined into None."""

    def value_or_none(context: Context) -> Any:
        mark = value(context)
        return None if isinstance(mark, Missing) else mark

    return value_or_none


KIND: Final = NodeKind(LoopNodeSpec, make, TRAITS["loop"])
