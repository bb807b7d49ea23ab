"""Asks whether a node is of one of our kinds, without importing the kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import TypeIs

from flowengine.flowfile.schema.keys import NodeKeys

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    from flowengine.flowfile.kinds.approval_kind import ApprovalNodeSpec
    from flowengine.flowfile.kinds.code_kind import CodeNodeSpec
    from flowengine.flowfile.kinds.condition_kind import ConditionNodeSpec
    from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
    from flowengine.flowfile.kinds.function_kind import FunctionNodeSpec
    from flowengine.flowfile.kinds.http_kind import HttpNodeSpec
    from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec
    from flowengine.flowfile.kinds.map_kind import MapNodeSpec
    from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec
    from flowengine.flowfile.kinds.subflow_kind import SubflowNodeSpec
    from flowengine.flowfile.kinds.tool_kind import ToolNodeSpec

__all__ = [
    "is_agent",
    "is_approval",
    "is_asking",
    "is_code_node",
    "is_condition",
    "is_evaluation",
    "is_function",
    "is_http",
    "is_judging",
    "is_loop",
    "is_map_node",
    "is_routing",
    "is_subflow",
    "is_tool",
    "may_call",
]


def is_agent(node: NodeKeys | None) -> TypeIs[AgentNodeSpec]:
    return node is not None and node.type == "agent"


def is_approval(node: NodeKeys | None) -> TypeIs[ApprovalNodeSpec]:
    return node is not None and node.type == "approval"


def is_routing(node: NodeKeys | None) -> TypeIs[RoutingNodeSpec]:
    return node is not None and node.type == "routing"


def is_evaluation(node: NodeKeys | None) -> TypeIs[EvaluationNodeSpec]:
    return node is not None and node.type == "evaluation"


def is_judging(node: NodeKeys | None) -> TypeIs[RoutingNodeSpec | EvaluationNodeSpec]:
    """Tells whether a model judges a text in it, to choose or to score."""
    return node is not None and node.type in ("routing", "evaluation")


def is_asking(node: NodeKeys | None) -> TypeIs[AgentNodeSpec | RoutingNodeSpec | EvaluationNodeSpec]:
    """Tells whether it names an agent, or may."""
    return node is not None and node.type in ("agent", "routing", "evaluation")


def may_call(node: NodeKeys | None) -> TypeIs[ConditionNodeSpec | EvaluationNodeSpec | FunctionNodeSpec]:
    """Tells whether it may name a function of the project."""
    return node is not None and node.type in ("condition", "evaluation", "function")


def is_condition(node: NodeKeys | None) -> TypeIs[ConditionNodeSpec]:
    return node is not None and node.type == "condition"


def is_function(node: NodeKeys | None) -> TypeIs[FunctionNodeSpec]:
    return node is not None and node.type == "function"


def is_map_node(node: NodeKeys | None) -> TypeIs[MapNodeSpec]:
    return node is not None and node.type == "map"


def is_loop(node: NodeKeys | None) -> TypeIs[LoopNodeSpec]:
    return node is not None and node.type == "loop"


def is_subflow(node: NodeKeys | None) -> TypeIs[SubflowNodeSpec]:
    return node is not None and node.type == "subflow"


def is_tool(node: NodeKeys | None) -> TypeIs[ToolNodeSpec]:
    return node is not None and node.type == "tool"


def is_http(node: NodeKeys | None) -> TypeIs[HttpNodeSpec]:
    return node is not None and node.type == "http"


def is_code_node(node: NodeKeys | None) -> TypeIs[CodeNodeSpec]:
    return node is not None and node.type == "code"
