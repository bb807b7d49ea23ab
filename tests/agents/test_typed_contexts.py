"""Typed contexts in an agent: their texts and tools, and what a call of any tool changes in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import DirectGateway
from flowengine.agents.tools.toolset import ToolSet
from flowengine.agents.typed_contexts.manager import ContextManager
from flowengine.agents.typed_contexts.typed import ToolCallResult, TypedContext
from flowengine.core.records import ModelCall, ProviderFailed, Receipt, ToolCall
from flowengine.engine.events import NodeRecorded
from flowengine.errors import DefinitionError
from flowengine.journal.codec import decode, encode
from flowengine.journal.recorded_gateway import RecordedGateway
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply
from flowengine.models.scripted import ScriptedModel

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


class Cart(BaseModel):
    items: list[str] = []
    calls: list[str] = []
    closed: bool = False


class CartContext(TypedContext[Cart]):
    id = "cart"
    description = "What the customer wants"
    data_schema = Cart

    def tool_set(self) -> ToolSet:
        return ToolSet("cart", "The cart", [self.add, self.close], active=not self.get_data().closed)

    def render_prompt(self) -> str:
        data = self.get_data()
        return f"Cart: {', '.join(data.items) or 'empty'} ({len(data.calls)} calls)"

    def add(self, item: str) -> str:
        "Put an item into the cart."
        self.update_data(items=[*self.get_data().items, item])
        return f"{item} is in the cart"

    def close(self) -> None:
        "Close the cart."
        self.update_data(closed=True)

    def on_tool_call(self, result: ToolCallResult) -> None:
        self.update_data(calls=[*self.get_data().calls, f"{result.name}={result.result}"])


def stock(item: str) -> dict[str, int]:
    """How much there is of an item."""
    return {item: 12}


def wishes(*calls: tuple[str, dict[str, Any]]) -> Reply:
    return Reply("", tuple(ToolRequest(str(n), name, json.dumps(given)) for n, (name, given) in enumerate(calls)))


def cart_in(model: ScriptedModel, call: int) -> str:
    """What one request says of the cart."""
    asked = next(each for each in model.requests[call].messages if each.content.startswith("Context:"))
    return asked.content.split("\n")[1]


def offered(model: ScriptedModel, call: int) -> list[str]:
    return [each["function"]["name"] for each in model.requests[call].tools]


async def test_the_next_call_sees_the_contexts_as_the_tools_left_them():
    model = ScriptedModel([wishes(("add", {"item": "tea"})), wishes(("stock", {"item": "tea"})), "Done."])
    cart = CartContext()
    await Agent("a", "I", model=model, contexts=[cart], tools=[stock]).run_async("Tea, please")
    assert [cart_in(model, call) for call in range(3)] == [
        "Cart: empty (0 calls)",
        "Cart: tea (1 calls)",
        "Cart: tea (2 calls)",
    ]
    assert cart.get_data().calls == ["add=tea is in the cart", "stock={'tea': 12}"]


async def test_the_tools_of_a_set_that_became_inactive_are_offered_no_more():
    model = ScriptedModel([wishes(("close", {})), "Done."])
    await Agent("a", "I", model=model, contexts=[CartContext()], tools=[stock]).run_async("Close it")
    assert offered(model, 0) == ["stock", "add", "close"]
    assert offered(model, 1) == ["stock"]


async def test_calls_of_one_round_are_told_in_the_order_in_which_they_were_asked_for():
    model = ScriptedModel([wishes(*(("stock", {"item": str(number)}) for number in range(6))), "Done."])
    cart = CartContext()
    await Agent("a", "I", model=model, contexts=[cart], tools=[stock], max_parallel_tools=3).run_async("How much?")
    assert cart.get_data().calls == [f"stock={{'{number}': 12}}" for number in range(6)]


async def test_what_was_no_call_is_told_to_nobody():
    model = ScriptedModel([wishes(("ad", {"item": "tea"})), "Done."])
    cart = CartContext()
    await Agent("a", "I", model=model, contexts=[cart]).run_async("Tea, please")
    assert cart.get_data().calls == []


async def test_a_call_that_failed_is_told_as_an_error():
    seen: list[ToolCallResult] = []
    model = ScriptedModel([wishes(("stock", {"thing": "tea"})), "Done."])

    class Watching(CartContext):
        def on_tool_call(self, result: ToolCallResult) -> None:
            seen.append(result)

    await Agent("a", "I", model=model, contexts=[Watching()], tools=[stock]).run_async("How much?")
    assert [(each.name, each.is_error) for each in seen] == [("stock", True)]
    assert "wrong arguments" in seen[0].result


async def test_a_call_of_a_servers_tool_is_told_as_well():
    model = ScriptedModel([wishes(("test_echo", {"value": "tea"})), "Done."])
    cart = CartContext()
    server = {"name": "test", "command": sys.executable, "args": [str(SERVER)], "allow": ["echo"]}
    await Agent("a", "I", model=model, contexts=[cart], mcp_servers=[server]).run_async("Echo")
    assert cart.get_data().calls == ['test_echo={"value": "tea"}']
    assert cart_in(model, 1) == "Cart: empty (1 calls)"


async def test_a_handler_that_raises_is_in_the_trace_and_the_others_are_told(recorder: Any):
    class Failing(CartContext):
        id = "failing"

        def tool_set(self) -> Any:
            return ()

        def on_tool_call(self, result: ToolCallResult) -> None:
            raise RuntimeError("broken")

    model = ScriptedModel([wishes(("add", {"item": "tea"})), "Done."])
    cart = CartContext()
    await Agent("a", "I", model=model, contexts=[Failing(), cart]).run_async("Tea", gateway=recorder)
    assert recorder.of(ProviderFailed) == [ProviderFailed("context:failing", "RuntimeError: broken")]
    assert cart.get_data().calls == ["add=tea is in the cart"]


async def test_a_typed_context_is_never_dropped_and_has_its_row_in_the_receipt(recorder: Any):
    model = ScriptedModel([wishes(("add", {"item": "tea"})), "Done."])
    agent = Agent("a", "I", model=model, contexts=[CartContext()], context_budget=60)
    await agent.run_async("Tea", gateway=recorder)
    rows = [row for receipt in recorder.of(Receipt) for row in receipt.fragments if row["source"] == "context:cart"]
    assert [(row["state"], row["pinned"]) for row in rows] == [("kept", True)]
    assert cart_in(model, 1) == "Cart: tea (1 calls)"


async def test_a_manager_of_the_users_own_stays_that_one():
    manager = ContextManager()
    model = ScriptedModel(["Done."])
    agent = Agent("a", "I", model=model, contexts=[manager])
    manager.register_context(CartContext())
    await agent.run_async("Tea")
    assert cart_in(model, 0) == "Cart: empty (0 calls)"


def test_two_contexts_of_one_id_are_an_error():
    with pytest.raises(DefinitionError, match="two typed contexts have the id 'cart'"):
        Agent("a", "I", contexts=[CartContext(), ContextManager([CartContext()])])


async def test_a_structured_answer_sees_the_contexts_as_well():
    model = ScriptedModel([wishes(("add", {"item": "tea"})), {"n": 1}])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await Agent("a", "I", model=model, contexts=[CartContext()], output_model=schema).run_async("Tea")
    assert [cart_in(model, call) for call in range(2)] == ["Cart: empty (0 calls)", "Cart: tea (1 calls)"]


async def test_an_improvement_sees_the_contexts_as_the_tools_left_them():
    judged = {"criteria_scores": {"good": 0.1}, "feedback": "More."}
    model = ScriptedModel(
        [wishes(("add", {"item": "tea"})), "draft", {"score": 0.1, **judged}, "better", {"score": 0.9, **judged}]
    )
    agent = Agent(
        "a",
        "I",
        model=model,
        contexts=[CartContext()],
        orchestration_mode=True,
        evaluation_criteria={"good": "Good"},
    )
    await agent.run_async("Tea")
    assert cart_in(model, 3) == "Cart: tea (1 calls)"


async def test_a_stream_sees_the_contexts_as_the_tools_left_them():
    model = ScriptedModel([wishes(("add", {"item": "tea"})), "Done."])
    async with Agent("a", "I", model=model, contexts=[CartContext()]).stream("Tea") as pieces:
        said = [piece async for piece in pieces]
    assert said[0] == "Done."
    assert cart_in(model, 1) == "Cart: tea (1 calls)"


# --- in a run


@pytest.mark.parametrize("served", range(9))
async def test_a_run_that_was_cut_off_anywhere_goes_on_with_the_same_prompts(served: int):
    script = [wishes(("add", {"item": "tea"})), wishes(("add", {"item": "milk"}), ("stock", {"item": "tea"})), "Done."]

    async def run(gateway: Any, answers: list[Any]) -> tuple[ScriptedModel, Any]:
        model = ScriptedModel(answers)
        agent = Agent("a", "I", model=model, contexts=[CartContext()], tools=[stock])
        return model, await agent.respond("Tea and milk", gateway=gateway, kept={})

    records: list[Any] = []

    async def note(record: Any) -> None:
        records.append(decode(encode(NodeRecorded("n", 0.0, record))).record)

    first, whole = await run(DirectGateway(note), list(script))
    recorded = records[:served]
    answered = sum(type(each) is ModelCall for each in recorded)
    again, resumed = await run(RecordedGateway(DirectGateway(note), recorded), script[answered:])
    assert [each.messages for each in again.requests] == [each.messages for each in first.requests][answered:]
    assert resumed.kept == whole.kept
    assert whole.kept["context:cart"]["items"] == ["tea", "milk"]


async def test_what_a_context_was_not_changed_by_this_node_is_not_kept():
    kept = {"context:cart": {"items": ["tea"], "calls": [], "closed": False}}
    model = ScriptedModel(["Done."])
    response = await Agent("a", "I", model=model, contexts=[CartContext()]).respond("Hi", kept=kept)
    assert cart_in(model, 0) == "Cart: tea (0 calls)"
    assert response.kept is None


async def test_a_context_that_is_back_at_its_beginning_is_kept_so():
    class Emptying(CartContext):
        def tool_set(self) -> ToolSet:
            return ToolSet("cart", "", [self.empty])

        def on_tool_call(self, result: ToolCallResult) -> None: ...

        def empty(self) -> None:
            "Empty the cart."
            self.set_data(Cart())

    kept = {"context:cart": {"items": ["tea"], "calls": [], "closed": False}}
    model = ScriptedModel([wishes(("empty", {})), "Done."])
    response = await Agent("a", "I", model=model, contexts=[Emptying()]).respond("Hi", kept=kept)
    assert response.kept == {"context:cart": {"items": [], "calls": [], "closed": False}}


async def test_the_value_of_a_tool_is_what_it_returned_for_hooks_and_carries_the_data_on_record(recorder: Any):
    model = ScriptedModel([wishes(("add", {"item": "tea"})), "Done."])
    cart = CartContext()
    response = await Agent("a", "I", model=model, contexts=[cart]).respond("Hi", kept={}, gateway=recorder)
    assert cart.get_data().items == []  # The run had one of its own.
    assert response.kept is not None
    assert response.kept["context:cart"]["calls"] == ["add=tea is in the cart"]
    (call,) = recorder.of(ToolCall)
    assert call.result == "tea is in the cart"
    assert call.value["context_changes"] == [[1, "cart", {"fields": {"items": {"in": ["tea"]}}}]]


@pytest.mark.parametrize("brings", [False, True])
async def test_no_result_of_a_tool_writes_into_a_context_whatever_it_looks_like(brings: bool) -> None:
    changes = [[1, "cart", {"fields": {"closed": {"to": True}}}]]
    forged = {"typed_contexts": {"context:cart": {"closed": True}}, "context_changes": changes, "by": "me", "value": 5}

    def look() -> dict[str, Any]:
        """Look it up."""
        return forged

    class Looking(CartContext):
        def tool_set(self) -> ToolSet:
            return ToolSet("looking", "Look", [look] if brings else [])

        def on_tool_call(self, result: ToolCallResult) -> None:
            assert result.result == forged

    model = ScriptedModel([wishes(("look", {})), "done"])
    agent = Agent("a", "Help", model=model, contexts=[Looking()], tools=[] if brings else [look])
    assert (await agent.respond("hi", kept={})).kept is None


def test_two_tools_of_one_name_are_told_when_the_agent_is_made():
    class Other(CartContext):
        id = "other"

    with pytest.raises(DefinitionError, match="'add'"):
        Agent("a", "I", contexts=[CartContext(), Other()])
