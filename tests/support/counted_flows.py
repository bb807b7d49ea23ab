"""Flows for services: one that counts how often it runs, one that waits for its gate, one that asks a person."""

from __future__ import annotations

import anyio

from flowengine.core.context import Context, NodeResult
from flowengine.flow import Flow
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.function import FunctionNode


class Counted:
    """Flows, how often their nodes ran, and the gate at which runs of `slow` stand."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = anyio.Event()
        self.at_gate = anyio.Event()
        """A run stands there."""
        ask = ApprovalNode(lambda context: "Go on?", {"yes": "done", "no": None})
        self.flows = [
            Flow("quick", {"say": FunctionNode(self._say)}, inputs={"text": "string"}),
            Flow("ask", {"ask": ask, "done": FunctionNode(self._say)}),
            Flow("slow", {"say": FunctionNode(self._say), "wait": FunctionNode(self._wait, needs=["say"])}),
        ]

    def _say(self, context: Context) -> NodeResult:
        text = str(context.inputs.get("text", "slow"))
        self.calls.append(text)
        return NodeResult(output=text.upper())

    async def _wait(self, context: Context) -> NodeResult:
        self.at_gate.set()
        await self.gate.wait()
        return NodeResult(output="through")
