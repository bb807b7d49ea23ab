"""Which route `routing_result` is: the nearest one that was to be chosen, and an error where that failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.routing import RoutingAgent
from flowengine.core.context import Context
from flowengine.engine.events import Event
from flowengine.errors import DefinitionError, PermanentModelError, RunError
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.routing_node import RoutingNode
from flowengine.runtime.run import Run

pytestmark = pytest.mark.anyio


def router(*answers: Any, **settings: Any) -> RoutingNode:
    agent = RoutingAgent("r", "Choose.", routes={"x": "one", "y": "other"}, model=ScriptedModel(answers))
    return RoutingNode(agent, {"x": None, "y": None}, target=lambda context: "text", **settings)


def test_a_route_without_a_target_is_refused_before_anything_is_paid() -> None:
    agent = RoutingAgent("r", "Which?", {"x": "one", "y": "other"}, model="offline")
    with pytest.raises(DefinitionError, match="no target for the route 'y' of agent 'r'; None, where it leads nowhere"):
        RoutingNode(agent, {"x": None})
    assert RoutingNode(agent, {"x": None}, fallback="z").routes == {"x": None, "fallback": "z"}
    for fallback in (None, "z"):
        with pytest.raises(DefinitionError, match="agent 'r' has no route 'yy'; did you mean 'y'"):
            RoutingNode(agent, {"x": None, "y": None, "yy": "z"}, fallback=fallback)


def choosing(label: str, **settings: Any) -> RoutingNode:
    return router({"next_route": label, "confidence": 1.0, "reasoning": ""}, **settings)


def broken(**settings: Any) -> RoutingNode:
    return router(*[PermanentModelError("down")] * 3, **settings)


async def asked(context: Context) -> str | None:
    chosen = context.routing_result
    return None if chosen is None else chosen.next_route


def never(context: Context) -> bool:
    return False


def flow(second: FlowNode, last: FunctionNode | None = None) -> Flow:
    last = last or FunctionNode(asked, needs=["early", "route"], join="always")
    return Flow("f", {"early": choosing("x"), "route": second, "ship": last})


async def failed(run: Run, why: str = "the routing in node 'route' failed (agent 'r': down)") -> None:
    assert run.status == "failed"
    assert why in str(run.nodes["ship"].error)


async def test_a_routing_that_failed_and_was_skipped_is_no_earlier_ones_result():
    await failed(await flow(broken(needs=["early"], on_error="skip")).run())


async def test_an_agent_whose_routing_failed_leaves_no_earlier_one_in_its_place():
    model = ScriptedModel(["text", *[PermanentModelError("down")] * 3])
    agent = Agent("r", "Write.", model=model, routing_instruction="Choose.", routes={"x": "one", "y": "other"})
    node = AgentNode(agent, prompt=lambda context: "text", needs=["early"], on_error="skip")
    await failed(await flow(node).run(), "the routing in node 'route' failed (agent 'r.routing': down)")


async def test_a_node_that_handles_the_failure_cannot_read_an_earlier_route_either():
    nodes = {"early": choosing("x"), "route": broken(needs=["early"], on_error="ship"), "ship": FunctionNode(asked)}
    await failed(await Flow("f", nodes).run())


async def test_a_clean_up_after_a_routing_that_failed_cannot_read_an_earlier_route():
    await failed(await flow(broken(needs=["early"])).run())


async def test_a_loop_whose_last_round_skipped_its_routing_hands_on_that_it_failed():
    loop = LoopNode({"inner": broken(on_error="skip")}, max_iterations=2, needs=["early"])
    made = flow(loop)
    run = await made.run(store=MemoryStore())
    await failed(run, "node 'route.round[1].inner' failed")
    await failed(await made.resume(run.id, store=await _copy(run.id, run.events)), "node 'route.round[1].inner' failed")


async def test_a_reused_route_is_not_read_in_the_place_of_one_that_failed():
    made, store = flow(broken(needs=["early"], on_error="skip")), MemoryStore()
    first = await made.run(store=store)
    again = await made.run(store=store, reuse=first.id)
    assert "early" in again.reused
    await failed(again)


async def test_a_resumed_run_knows_of_a_routing_that_failed():
    made = flow(broken(needs=["early"], on_error="skip"))
    run = await made.run(store=MemoryStore())
    await failed(await made.resume(run.id, store=await _copy(run.id, run.events)))


async def _copy(run_id: str, events: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    journal = store.create(run_id)
    for event in events:
        journal.append(decode(encode(event)))
    await journal.close()
    return store


async def test_a_later_routing_counts_again():
    nodes = {
        "early": broken(on_error="skip"),
        "route": choosing("y", needs=["early"], join="always"),
        "ship": FunctionNode(asked, needs=["route"]),
    }
    assert (await Flow("f", nodes).run()).nodes["ship"].output == "y"


async def test_a_routing_that_was_not_to_run_leaves_the_one_before_it():
    second = broken(needs=["early"], when=never)
    assert (await flow(second).run()).nodes["ship"].output == "x"


async def test_a_changed_copy_of_a_context_is_made_without_reading_what_failed():
    async def copied(context: Context) -> str:
        changed = context.with_(result="other").with_(messages=())
        with pytest.raises(RunError, match="routing in node 'route' failed"):
            _ = changed.routing_result
        return changed.result

    last = FunctionNode(copied, needs=["early", "route"], join="always")
    run = await flow(broken(needs=["early"], on_error="skip"), last).run()
    assert run.nodes["ship"].output == "other", run.error


async def test_an_expression_that_reads_the_result_of_a_routing_that_failed_fails(tmp_path: Path):
    file = tmp_path / "f.yaml"
    file.write_text(
        """
flowengine: v1
name: t
inputs: {text: {type: string}}
nodes:
  early: {type: routing, instruction: Choose., target: "{{ inputs.text }}", routes: {x: {}, y: {}}}
  route:
    {type: routing, instruction: Choose., target: "{{ inputs.text | from_json }}", routes: {x: {}, y: {}},
     needs: [early], on_error: skip}
  gate: {type: condition, needs: [early, route], if: routing_result.next_route == 'x', then: {}}
"""
    )
    run = await Flow.from_yaml(file, model="offline/demo").run({"text": "x"})
    assert run.failed_node == "gate", run.error
    assert "the routing in node 'route' failed" in str(run.nodes["gate"].error)
