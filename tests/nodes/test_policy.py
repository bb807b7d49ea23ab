"""What stands round the body of a node."""

from __future__ import annotations

import asyncio
import math
from typing import ClassVar

import anyio
import pytest

from flowengine import Agent, AgentNode, Flow, FunctionNode, LoopNode
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.node import NodeLimits, RetryPolicy
from flowengine.nodes.policy import wrap_node


@pytest.mark.parametrize("is_inside", [False, True])
async def test_loading_a_models_library_is_no_part_of_a_nodes_time(
    is_inside: bool,
) -> None:
    """Its import takes seconds, and is begun before the run."""
    order: list[str] = []

    class Loading(ScriptedModel):
        def preload(self) -> None:
            order.append("preload")

        async def ready(self) -> None:
            assert anyio.current_effective_deadline() == math.inf
            order.append("ready")

        async def complete(self, request: Request) -> Reply:
            assert anyio.current_effective_deadline() < math.inf
            order.append("asked")
            return await super().complete(request)

    agent = AgentNode(Agent("a", "Say it.", model=Loading(["x"])), **({} if is_inside else {"timeout": 60.0}))
    node = LoopNode({"a": agent}, max_iterations=1, until=lambda context: True, timeout=60.0) if is_inside else agent
    run = await Flow("f", {"n": node}).run()
    assert run.status == "succeeded", run.error
    assert order == ["ready", "asked"]


class Shout(FunctionNode):
    kind: ClassVar[str] = "shout"


@pytest.mark.parametrize(
    "node",
    [
        FunctionNode(asyncio.sleep),
        FunctionNode(print),
        FunctionNode(asyncio.sleep, timeout=1.0),
        FunctionNode(asyncio.sleep, retry=RetryPolicy()),
        FunctionNode(asyncio.sleep, limits=NodeLimits()),
        FunctionNode(asyncio.sleep, when=lambda context: True),
        FunctionNode(asyncio.sleep, set={"key": lambda context, output: output}),
        FunctionNode(asyncio.sleep, effect="external"),
        Shout(asyncio.sleep),
    ],
)
def test_a_node_says_whether_policies_stand_round_its_body(node: FunctionNode) -> None:
    assert node.has_policies == (wrap_node(node) is not node)
