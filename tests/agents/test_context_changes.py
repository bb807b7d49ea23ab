"""What parallel calls of tools change in typed contexts, live and after an interruption at any place."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import DirectGateway
from flowengine.agents.tools.function_tool import tool_of
from flowengine.agents.tools.toolset import ToolSet
from flowengine.agents.typed_contexts.typed import TypedContext
from flowengine.core.records import ModelCall, ToolCall
from flowengine.engine.events import NodeRecorded
from flowengine.journal.codec import decode, encode
from flowengine.journal.recorded_gateway import RecordedGateway
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply
from flowengine.models.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


class Cart(BaseModel):
    items: list[str] = []
    total: int = 0


class CartContext(TypedContext[Cart]):
    id = "cart"
    description = "Cart"
    data_schema = Cart

    def __init__(self) -> None:
        super().__init__()
        self.put = defaultdict[str, anyio.Event](anyio.Event)

    def tool_set(self) -> ToolSet:
        return ToolSet("cart", "The cart", [self.add, tool_of(self.slow, timeout=0.05)])

    async def add(self, item: str, after: str = "", then: str = "") -> str:
        "Put an item into the cart, after another one; end when a further one is in it."
        await self._wait_for(after)
        with self.changing() as data:
            data.items.append(item)
            data.total += 10
        self.put[item].set()
        await self._wait_for(then)
        return f"{item} is in"

    async def slow(self, item: str) -> str:
        "Put an item into the cart, and never end."
        self.update_data(items=[*self.get_data().items, item])
        self.put[item].set()
        await anyio.sleep_forever()
        return ""

    async def _wait_for(self, item: str) -> None:
        if item and item not in self.get_data().items:
            await self.put[item].wait()


def call(number: int, **arguments: str) -> ToolRequest:
    return ToolRequest(str(number), "add", json.dumps(arguments))


ROUNDS = [
    # In the first round the call that was asked first changes the data last; in the second it ends last.
    Reply("", (call(0, item="i0", after="i1"), call(1, item="i1"))),
    Reply("", (call(2, item="i2", then="i3"), call(3, item="i3", after="i2"), call(4, item="i4", after="i3"))),
    "Done.",
]


async def respond(answers: list[Any], recorded: list[Any] | None = None) -> tuple[ScriptedModel, Any, list[Any]]:
    records: list[Any] = []

    async def note(record: Any) -> None:
        records.append(decode(encode(NodeRecorded("n", 0.0, record))).record)

    model = ScriptedModel(answers)
    gateway = DirectGateway(note) if recorded is None else RecordedGateway(DirectGateway(note), recorded)
    agent = Agent("a", "I", model=model, contexts=[CartContext()])
    response = await agent.respond("Go", gateway=gateway, kept={}, recorded=recorded or ())
    return model, response.kept["context:cart"], records


async def test_a_node_that_was_interrupted_anywhere_finds_the_data_and_the_prompts_of_its_first_attempt():
    first, whole, records = await respond(list(ROUNDS))
    assert whole == {"items": ["i1", "i0", "i2", "i3", "i4"], "total": 50}
    for served in range(len(records) + 1):
        recorded = records[:served]
        answered = sum(type(each) is ModelCall for each in recorded)
        again, resumed, _ = await respond(list(ROUNDS[answered:]), recorded)
        asked = [each.messages for each in again.requests]
        if served == 0 or type(records[served - 1]) is ModelCall:  # No call ran again beside those on record.
            assert resumed == whole
            assert asked == [each.messages for each in first.requests][answered:]
        assert sorted(resumed["items"]) == sorted(whole["items"])
        assert resumed["total"] == whole["total"]


async def test_a_change_of_a_call_without_a_record_is_in_no_other_calls_record():
    _, _, records = await respond(list(ROUNDS))
    before_the_answer = records[:-1]
    for lost in [each for each in before_the_answer if type(each) is ToolCall][2:]:
        recorded = [each for each in before_the_answer if each is not lost]
        _, resumed, _ = await respond(["Done."], recorded)
        assert sorted(resumed["items"]) == ["i0", "i1", "i2", "i3", "i4"]
        assert resumed["total"] == 50


async def test_what_another_run_is_served_from_is_made_in_the_order_in_which_it_happened():
    _, whole, records = await respond(list(ROUNDS))
    model = ScriptedModel([])
    agent = Agent("a", "I", model=model, contexts=[CartContext()])

    async def forget(record: Any) -> None: ...

    gateway = RecordedGateway(DirectGateway(forget), records)
    response = await agent.respond("Go", gateway=gateway, kept={})  # The agent knows of no interrupted attempt.
    assert response.kept == {"context:cart": whole}


async def test_a_call_that_is_given_up_changes_nothing():
    slow = Reply("", (ToolRequest("0", "slow", '{"item": "late"}'), call(1, item="i1", after="late")))
    _, kept, records = await respond([slow, "Done."])
    assert kept == {"items": ["i1"], "total": 10}
    _, resumed, _ = await respond([], records)
    assert resumed == kept


async def test_records_of_older_journals_give_the_data_back():
    cart = {"context:cart": {"items": ["old"], "total": 10}}
    _, _, records = await respond([Reply("", (call(0, item="old"),)), "Done."])
    (asked, _), (done,) = ([each for each in records if type(each) is kind] for kind in (ModelCall, ToolCall))
    old = done._replace(value={"value": "old is in", "typed_contexts": cart, "by": "another"})
    _, kept, _ = await respond(["Done."], [asked, old])
    assert kept == cart["context:cart"]
