"""The kind `map`: a body runs once for each item of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from flowengine.core import TRAITS
from flowengine.flowfile.compile import boolean, expression, values
from flowengine.flowfile.schema import BodyKeys, Expression, Identifier, Maybe, NodeCompiler, NodeKind, Rendered

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode


class MapNodeSpec(BodyKeys):
    """The body runs once for each item of a list; the output is the list of the results, in the order of the items."""

    type: Literal["map"]
    """Kind of the node."""
    over: Expression
    """The list."""
    as_: Identifier = Field(default="item", alias="as")
    """The item's name in the body."""
    concurrency: Maybe[Annotated[int, Field(ge=1, le=10_000)]] = None
    """Items in work at once, at most; left out: as many as the run allows."""
    on_item_error: Literal["fail", "collect", "skip"] = "fail"
    """A failed item fails the map, has `{error, index}` in its place, or is dropped."""
    until: Maybe[Expression] = None
    """Looked at after each item that succeeds; sees the body, and in `results` the results so far. Where it is true,
    that is enough: what is in work is cancelled, and nothing more begins. Left out: all items are done."""
    prompt_cache: Literal["auto", "warm"] = "auto"
    """`warm`: the first item goes alone until a model begins to answer it, so that the vendor's cache serves the
    others."""
    result: Maybe[Rendered] = None
    """The result of an item; sees the body. Left out: the output of the body's last node, where there is but one."""

    after_body: ClassVar[frozenset[str]] = frozenset({"result", "until"})

    def names_inside(self) -> tuple[str, ...]:
        return self.as_, "each"


def make(node: MapNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import MapNode

    return MapNode(
        compiler.body(),
        over=expression(node.over),
        name=node.as_,
        concurrency=node.concurrency,
        on_item_error=node.on_item_error,
        is_warm=node.prompt_cache == "warm",
        result=None if node.result is None else values(node.result),
        until=None if node.until is None else boolean(node.until),
        **settings,
    )


KIND: Final = NodeKind(MapNodeSpec, make, TRAITS["map"])
