"""An agent's node that failed goes on where it failed: what was answered and done stays, what failed is asked anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from flowengine import Agent, Flow, tool
from flowengine.core.budget import Budget
from flowengine.errors import GuardrailError, PermanentModelError
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import NodeLimits, RetryPolicy

pytestmark = pytest.mark.anyio

ROUNDS = 4


class Sum(BaseModel):
    total: int


class World:
    """A model that words each request for a tool differently, whatever was said before; and what its tools did."""

    def __init__(self, answer: Callable[[int], Any], *, hangs: bool = False) -> None:
        """`answer`: what comes after the rounds of tools, by how often it was asked for before."""
        self.done: list[str] = []
        self.asked = 0
        self._last = Counter[str]()
        self._answer = answer
        self.hangs = hangs
        self.model = ScriptedModel(self._reply)

    def _reply(self, request: Request) -> Any:
        self.asked += 1
        rounds = sum(message.role == "tool" for message in request.messages) // 3
        if rounds < ROUNDS:
            names = ("pay", "note", "look")
            wishes = [ToolRequest(f"{rounds}{each}", each, f'{{"x": {self.asked}}}') for each in names]
            return Reply("", tool_calls=tuple(wishes))
        prompt = next(message.content for message in request.messages if message.role == "user")
        self._last[prompt] += 1
        return self._answer(self._last[prompt] - 1)

    def agent(self, **settings: Any) -> Agent:
        @tool(effect="external")
        async def pay(x: int) -> str:
            self.done.append(f"pay {x}")
            return f"paid {x}"

        @tool(effect="idempotent")
        async def note(x: int) -> str:
            self.done.append(f"note {x}")
            return f"noted {x}"

        async def look(x: int) -> str:
            self.done.append(f"look {x}")
            if self.hangs and x == ROUNDS:
                await anyio.sleep_forever()
            return f"seen {x}"

        return Agent("a", "Do it.", model=self.model, tools=[pay, note, look], **settings)

    def node(self, **settings: Any) -> AgentNode:
        own = {
            name: settings.pop(name)
            for name in ("output_model", "output_guardrails", "max_retries")
            if name in settings
        }
        return AgentNode(self.agent(**own), prompt=lambda context: "Go.", **settings)


def refuse(text: Any) -> Any:
    if text == "bad":
        raise GuardrailError("not that")
    return text


FAILS: dict[str, tuple[Callable[[int], Any], dict[str, Any], int]] = {
    "the vendor refuses": (lambda n: "Done." if n else PermanentModelError("400"), {}, 1),
    "the vendor's filter takes the answer": (
        lambda n: "Done." if n else Reply("", finish_reason="content_filter"),
        {},
        1,
    ),
    "an answer stays unusable": (
        lambda n: '{"total": 3}' if n > 1 else "no sum",
        {"output_model": Sum, "max_retries": 1},
        2,
    ),
    "an answer stays empty": (lambda n: "Done." if n > 1 else "", {}, 2),
    "a guardrail refuses": (lambda n: "Done." if n else "bad", {"output_guardrails": [refuse]}, 1),
}


@pytest.mark.parametrize(("answer", "settings", "last"), FAILS.values(), ids=FAILS)
async def test_resume_asks_only_what_failed(answer: Callable[[int], Any], settings: dict[str, Any], last: int):
    world, store = World(answer), MemoryStore()
    flow = Flow("f", {"a": world.node(**settings)})
    assert (await flow.run(run_id="r", store=store)).status == "failed"
    assert world.asked == ROUNDS + last
    done = [*world.done]
    run = await flow.resume("r", store=store)
    assert (run.status, world.asked, world.done) == ("succeeded", ROUNDS + last + 1, done)
    assert len(done) == 3 * ROUNDS


async def test_resume_after_the_nodes_timeout_calls_only_what_had_no_answer():
    world, store = World(lambda n: "Done.", hangs=True), MemoryStore()
    flow = Flow("f", {"a": world.node(timeout=0.3)})
    assert (await flow.run(run_id="r", store=store)).status == "failed"
    world.hangs = False
    run = await flow.resume("r", store=store)
    assert (run.status, world.asked) == ("succeeded", ROUNDS + 1)
    assert (world.done.count(f"look {ROUNDS}"), len(world.done)) == (2, 3 * ROUNDS + 1)


async def test_resume_after_a_limit_of_the_node_keeps_what_it_has():
    world, store = World(lambda n: "Done."), MemoryStore()

    def flow(most: int) -> Flow:
        limits = NodeLimits(Budget(model_calls=most))
        return Flow("f", {"a": world.node(limits=limits, fingerprint=lambda: "the same")})

    assert (await flow(2).run(run_id="r", store=store)).status == "failed"
    run = await flow(9).resume("r", store=store)
    assert (run.status, world.asked, len(world.done)) == ("succeeded", ROUNDS + 1, 3 * ROUNDS)


async def test_resume_after_the_nodes_own_values_failed_asks_nothing():
    world, store, broken = World(lambda n: "Done."), MemoryStore(), [True]

    def note(context: Any, output: Any) -> Any:
        if broken:
            raise ValueError("no such key")
        return output

    flow = Flow("f", {"a": world.node(set={"k": note})}, shared_state={"k": None})
    assert (await flow.run(run_id="r", store=store)).status == "failed"
    broken.clear()
    run = await flow.resume("r", store=store)
    assert (run.status, world.asked, len(world.done)) == ("succeeded", ROUNDS + 1, 3 * ROUNDS)


@pytest.mark.parametrize("on_item_error", ["fail", "collect", "skip"])
async def test_items_that_failed_keep_what_they_were_given(on_item_error: Any):
    world, store = World(lambda n: "Done." if n else PermanentModelError("400")), MemoryStore()
    node = AgentNode(world.agent(), prompt=lambda context: f"Go {context.variables['item']}.")
    flow = Flow("f", {"m": MapNode({"w": node}, over=lambda context: [0, 1], on_item_error=on_item_error)})
    first = await flow.run(run_id="r", store=store)
    assert first.status == ("failed" if on_item_error == "fail" else "succeeded")
    run = await flow.resume("r", store=store, repeat_failed_items=on_item_error != "fail")
    assert run.outputs == {"m": ["Done.", "Done."]}
    assert (world.asked, len(world.done)) == (2 * (ROUNDS + 2), 2 * 3 * ROUNDS)


async def test_a_second_attempt_of_retry_is_asked_everything_anew_and_its_failure_keeps_the_last_one():
    calls: list[str] = []

    def reply(request: Request) -> Any:
        calls.append(request.messages[-1].role)
        if len(calls) in (2, 4):
            return PermanentModelError("400")
        has_looked = any(message.role == "tool" for message in request.messages)
        return "Done." if has_looked else Reply("", tool_calls=(ToolRequest("1", "look", "{}"),))

    async def look() -> str:
        return "seen"

    agent = Agent("a", "Do it.", model=ScriptedModel(reply), tools=[look])
    node = AgentNode(agent, prompt=lambda context: "Go.", retry=RetryPolicy(attempts=2, initial=0))
    flow, store = Flow("f", {"a": node}), MemoryStore()
    assert (await flow.run(run_id="r", store=store)).status == "failed"
    assert calls == ["user", "tool"] * 2
    assert (await flow.resume("r", store=store)).status == "succeeded"
    assert calls == [*["user", "tool"] * 2, "tool"]
