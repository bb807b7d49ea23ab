"""What stands round the body of a node."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from flowengine import FunctionNode
from flowengine.nodes.node import NodeLimits, RetryPolicy
from flowengine.nodes.policy import wrap_node


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
