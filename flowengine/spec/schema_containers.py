"""What a flow file may say about the nodes that hold a flow of their own, and about waiting for a person.

A map runs its body once an item, a loop once a round, a subflow runs another file. Data only; the body's
nodes are of any type, these among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from flowengine.spec.fields import (
    Duration,
    Expression,
    Identifier,
    Maybe,
    Plain,
    Rendered,
    Routes,
    Template,
    Values,
    refuse,
    without_notes,
)
from flowengine.spec.schema_agent import JsonSchema
from flowengine.spec.schema_keys import BoundedKeys, NodeKeys

if TYPE_CHECKING:
    from flowengine.spec.schema_nodes import NodeSpec

__all__ = ["ApprovalNodeSpec", "BodyKeys", "LoopNodeSpec", "MapNodeSpec", "SubflowNodeSpec"]


class BodyKeys(BoundedKeys):
    """What a node with nodes inside may say."""

    nodes: Annotated[dict[Identifier, NodeSpec], BeforeValidator(without_notes)]
    """The nodes of its body, by id."""

    @model_validator(mode="after")
    def _has_nodes(self) -> BodyKeys:
        if not self.nodes:
            raise refuse("FE208", "there is nothing to run in it: give at least one node", at="nodes")
        return self


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
    result: Maybe[Rendered] = None
    """What an item gives; sees the body. Left out: the output of the body's last node, where there is but one."""


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
    """What it means that no round was good enough."""
    best_by: Maybe[Expression] = None
    """A round's mark; of an exhausted loop the round with the highest one is chosen. Left out: the last."""


class SubflowNodeSpec(BoundedKeys):
    """Another flow file runs as one node; the output is that flow's outputs."""

    type: Literal["subflow"]
    """Kind of the node."""
    flow: Plain = Field(min_length=1)
    """Path of the flow file, from this file's folder."""
    with_: Values = Field(default_factory=dict[str, Any], alias="with")
    """Input of that flow → template."""


class ApprovalNodeSpec(NodeKeys):
    """A person decides; the run waits as long as that takes. The output is {choice, comment, by, form}."""

    type: Literal["approval"]
    """Kind of the node."""
    message: Template
    """What the person is asked."""
    form: Maybe[JsonSchema] = None
    """What the person fills in beside the choice: a JSON Schema."""
    routes: Routes
    """Choice → node, {to, description}, or {} for nowhere."""
    expires: Maybe[Duration] = None
    """How long the person has; goes with `on_expire`."""
    on_expire: Maybe[str] = None
    """The choice that is made when nobody made one in time."""

    @model_validator(mode="after")
    def _can_be_answered(self) -> ApprovalNodeSpec:
        if not self.routes:
            raise refuse("FE214", "there is nothing to choose from: give at least one choice", at="routes")
        if (self.expires is None) != (self.on_expire is None):
            given, lacks = ("expires", "on_expire") if self.on_expire is None else ("on_expire", "expires")
            raise refuse("FE202", f"'{given}' goes with '{lacks}', which is missing", at=given)
        if self.on_expire is not None and self.on_expire not in self.routes:
            known = ", ".join(self.routes)
            raise refuse("FE224", f"there is no choice '{self.on_expire}' (there are {known})", at="on_expire")
        return self
