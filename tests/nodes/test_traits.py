"""The traits of the kinds of node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import ClassVar, Literal

import pytest

from flowengine.core.node_traits import TRAITS
from flowengine.flowfile import kinds
from flowengine.flowfile.analysis.references import vertices_of
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.schema.node_kinds import BodyKeys, kind_of
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.code_script import CodeNode
from flowengine.nodes.condition import CasesNode, ConditionNode
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.http_call import HttpNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.routing_node import RoutingNode
from flowengine.nodes.subflow import SubflowNode
from flowengine.nodes.tool_call import ToolNode

_CLASSES = [
    AgentNode,
    RoutingNode,
    CasesNode,
    ConditionNode,
    EvaluationNode,
    FunctionNode,
    ToolNode,
    HttpNode,
    CodeNode,
    MapNode,
    LoopNode,
    SubflowNode,
    ApprovalNode,
]


@pytest.mark.parametrize("name", TRAITS)
def test_every_kind_has_a_file_that_says_what_it_is(name: str) -> None:
    kind = kind_of(name)
    assert kind.traits is TRAITS[name]
    assert kind.spec.model_fields["type"].annotation == Literal[name]  # pyright: ignore[reportInvalidTypeForm] - compared
    assert issubclass(kind.spec, BodyKeys) == (kind.traits.container and name != "subflow")


def test_every_file_of_a_kind_is_in_the_table() -> None:
    folder = Path(kinds.__file__).parent
    assert {each.stem.removesuffix("_kind") for each in folder.glob("*_kind.py")} == set(TRAITS)


def test_a_flow_imports_only_the_kinds_that_it_has() -> None:
    code = """
        import sys
        from flowengine.flowfile.compile.compiler import load_plan
        load_plan("f.yaml", text="{flowengine: v1, name: f, nodes: {a: {prompt: Hi}}}")
        print(*sorted(each for each in sys.modules if each.endswith("_kind")))
    """
    found = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["flowengine.flowfile.kinds.agent_kind"]


@pytest.mark.parametrize("node", _CLASSES)
def test_the_class_of_a_node_has_the_traits_of_its_kind(node: type[FlowNode]) -> None:
    traits = TRAITS[node.kind]
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
    assert TRAITS["quiet"] == TRAITS["function"]
