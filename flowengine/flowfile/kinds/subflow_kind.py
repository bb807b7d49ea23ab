"""The kind `subflow`: another flow file runs as one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pydantic import Field

from flowengine.core import TRAITS, Budget
from flowengine.flowfile.compile import is_static, values
from flowengine.flowfile.schema import BoundedKeys, NodeCompiler, NodeKind, Plain, Values

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode, NodeLimits, RunLimits

N = TypeVar("N", int, float)


class SubflowNodeSpec(BoundedKeys):
    """Another flow file runs as one node; the output is that flow's outputs."""

    type: Literal["subflow"]
    """Kind of the node."""
    flow: Plain = Field(min_length=1)
    """Path of the flow file, from this file's folder."""
    with_: Values = Field(default_factory=dict[str, Any], alias="with")
    """Input of that flow → template."""


def make(node: SubflowNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import SubflowNode

    plan = compiler.subflow(node.flow)
    arguments = {name: values(each) for name, each in node.with_.items()}
    says = node.limits is not None and "on_limit" in node.limits.model_fields_set
    limited: dict[str, Any] = {**settings, "limits": _tighter(settings["limits"], plan.limits, says=says)}
    fixed = {name for name, each in node.with_.items() if isinstance(each, str) and is_static(each)}
    return SubflowNode(plan, arguments=arguments, fixed=fixed, **limited)


def _tighter(own: NodeLimits | None, of_file: RunLimits, *, says: bool) -> NodeLimits | None:
    """Returns the tighter of a subflow node's limits and those of its file. `says`: the node says what happens at one;
    else the file does."""
    from flowengine.nodes import NodeLimits

    if of_file.bounds == Budget() and of_file.timeout is None:
        return own
    if own is None:
        return NodeLimits(of_file.bounds, of_file.timeout, of_file.on_limit)
    mine, its = own.bounds, of_file.bounds
    bounds = Budget(
        _least(mine.cost_usd, its.cost_usd),
        _least(mine.tokens, its.tokens),
        _least(mine.model_calls, its.model_calls),
    )
    timeout = _least(own.timeout, of_file.timeout)
    return NodeLimits(bounds, timeout, own.on_limit if says else of_file.on_limit)


def _least(one: N | None, other: N | None) -> N | None:
    return min((each for each in (one, other) if each is not None), default=None)


KIND: Final = NodeKind(SubflowNodeSpec, make, TRAITS["subflow"])
