"""Code of an author that fails with the record of another run fails its node: whatever the code is asked for, the run
ends as failed, and is not left as running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.core.context import Context, NodeResult
from flowengine.errors import RunNotFoundError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.asking_node import Templated
from flowengine.nodes.condition import CasesNode, ConditionNode, SwitchNode
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.routing_node import RoutingNode
from flowengine.nodes.subflow import SubflowNode
from flowengine.nodes.tool_call import ToolNode

pytestmark = pytest.mark.anyio


def look(*args: Any, **named: Any) -> Any:
    raise RunNotFoundError("no run 'nope'")


async def look_async(*args: Any) -> Any:
    look()


def find() -> str:
    """Find it."""
    return look()


def take(**values: Any) -> str:
    return "taken"


def echo(text: str) -> str:
    return text


class Own(FlowNode):
    kind = "own"

    async def run(self, context: Context, /) -> NodeResult:
        return look()


class Model(ScriptedModel):
    async def complete(self, request: Request) -> Reply:
        return look()


def work(context: Context | None = None) -> list[int]:
    return [1]


def inside() -> Mapping[str, FlowNode]:
    return {"work": FunctionNode(work)}


def writer(**parts: Any) -> Agent:
    return Agent("write", "Write.", model=ScriptedModel({"": "a text"}), **parts)


JUDGE = EvaluationAgent("judge", "Judge.", model=ScriptedModel([]))
ROUTER = RoutingAgent("route", "Route.", {"a": "the only one"}, model=ScriptedModel([]))
NODES: Mapping[str, FlowNode] = {
    "a function": FunctionNode(look),
    "an async function": FunctionNode(look_async),
    "an argument of a function": FunctionNode(take, arguments={"value": look}),
    "when": FunctionNode(work, when=look),
    "an async when": FunctionNode(work, when=look_async),
    "set": FunctionNode(work, set={"key": look}),
    "an own kind of node": Own(),
    "a condition": ConditionNode(look, {"a": None}),
    "an async condition": ConditionNode(look_async, {"a": None}),
    "a case": CasesNode([(look, "a", None)]),
    "what a switch looks at": SwitchNode("x", look, {"a": None}),
    "over": MapNode(inside(), over=look),
    "the result of an item": MapNode(inside(), over=work, result=look),
    "until of a map": MapNode(inside(), over=work, until=look),
    "initial": LoopNode(inside(), max_iterations=1, initial={"n": look}),
    "until of a loop": LoopNode(inside(), max_iterations=1, until=look),
    "carry": LoopNode(inside(), max_iterations=2, carry={"n": look}),
    "best_by": LoopNode(inside(), max_iterations=1, best_by=look),
    "an input of a subflow": SubflowNode(Flow("sub", inside()).plan, arguments={"n": look}),
    "an output of a subflow": SubflowNode(Flow("sub", inside(), outputs={"n": look}).plan),
    "a scorer": EvaluationNode(scorer=look),
    "an async scorer": EvaluationNode(scorer=look_async),
    "what is scored": EvaluationNode(scorer=work, target=look),
    "what is judged": EvaluationNode(JUDGE, target=look),
    "what is attached for a judge": EvaluationNode(JUDGE, target=str, attach=look),
    "a templated judge": EvaluationNode(Templated(JUDGE, look)),
    "what is routed": RoutingNode(ROUTER, {"a": None}, target=look),
    "a templated router": RoutingNode(Templated(ROUTER, look), {"a": None}),
    "a prompt": AgentNode(writer(), prompt=look),
    "a shared prompt": AgentNode(writer(), shared_prompt=look),
    "an attachment": AgentNode(writer(), attach=look),
    "a templated agent": AgentNode(Templated(writer(), look)),
    "an input guardrail": AgentNode(writer(input_guardrails=[look])),
    "an output guardrail": AgentNode(writer(output_guardrails=[look])),
    "a model": AgentNode(Agent("write", "Write.", model=Model([]))),
    "a question": ApprovalNode(look, {"yes": None}),
    "an argument of a tool": ToolNode(echo, arguments={"text": look}),
    "a tool": ToolNode(find),
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
async def test_it_ends_its_node_alone(node: FlowNode):
    store = MemoryStore()
    flow = Flow("f", {"node": node})
    run = await flow.run(store=store, run_id="r")
    assert (run.status, run.failed_node) == ("failed", "node")
    assert run.error is not None
    assert "no run 'nope'" in run.error.message
    assert [each.status for each in store.list()] == ["failed"]
    assert not store.abandoned()
