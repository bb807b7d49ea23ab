"""The traits of the kinds of node."""

from __future__ import annotations

from typing import ClassVar

import pytest

from flowengine.core.node_traits import TRAITS, traits_of
from flowengine.flowfile.analysis.references import vertices_of
from flowengine.flowfile.compile import kinds
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.schema.node_types import NODE_TYPES
from flowengine.nodes.agent import AgentNode, EvaluationNode, RoutingNode
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.condition import CasesNode, ConditionNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.subflow import SubflowNode

_CLASSES = [
    AgentNode,
    RoutingNode,
    CasesNode,
    ConditionNode,
    EvaluationNode,
    FunctionNode,
    MapNode,
    LoopNode,
    SubflowNode,
    ApprovalNode,
]


def test_every_kind_of_the_file_has_traits_and_a_maker() -> None:
    assert set(TRAITS) == set(NODE_TYPES)
    assert set(kinds._MAKERS) == set(NODE_TYPES.values())  # pyright: ignore[reportPrivateUsage] - nothing else has them


@pytest.mark.parametrize("node", _CLASSES)
def test_the_class_of_a_node_has_the_traits_of_its_kind(node: type[FlowNode]) -> None:
    traits = traits_of(node.kind)
    assert (node.transparent, node.container) == (traits.transparent, traits.container)


def test_what_passes_its_result_on_is_the_same_for_checks_and_for_runs() -> None:
    text = """
        flowengine: v1
        name: f
        nodes:
          ask: {type: approval, message: Go on?, routes: {yes: tell}}
          tell: {prompt: Tell}
    """
    assert [each.transparent for each in vertices_of(load_flow(text=text))] == [True, False]


def test_a_class_with_a_kind_of_its_own_says_itself_what_it_passes_on() -> None:
    class Quiet(FunctionNode):
        kind: ClassVar[str] = "quiet"
        transparent: ClassVar[bool] = True

    class Plain(FunctionNode):
        kind: ClassVar[str] = "plain"

    assert (Quiet.transparent, Plain.transparent) == (True, False)
    assert traits_of("quiet") == TRAITS["function"]
