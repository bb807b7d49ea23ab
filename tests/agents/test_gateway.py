"""The direct gateway: calls go through, and each is told about."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.gateway import DirectGateway
from flowengine.llm.messages import Message, ToolRequest
from flowengine.llm.model import Reply, Request, Usage
from flowengine.llm.scripted import ScriptedModel
from flowengine.records import ModelCall, ToolCall

ASKED = Request("scripted", (Message("user", "Why?"),))


async def test_a_record_holds_what_was_asked_and_what_it_cost(recorder: Any) -> None:
    reply = Reply("So.", (ToolRequest("1", "add", "{}"),), Usage(3, 2, 1), 0.01, "tool_calls", "m", "acme", 2, 0.5)
    assert await recorder.complete(ScriptedModel([reply]), ASKED, purpose="generation") == reply
    assert recorder.records == [
        ModelCall(
            model="m",
            provider="acme",
            purpose="generation",
            messages=[{"role": "user", "content": "Why?"}],
            content="So.",
            tool_calls=[{"id": "1", "name": "add", "arguments": "{}"}],
            prompt_tokens=3,
            completion_tokens=2,
            cached_tokens=1,
            cost_usd=0.01,
            seconds=0.5,
            key=ASKED.key(),
            occurrence=0,
            attempts=2,
            finish_reason="tool_calls",
            request={"model": "scripted"},
        )
    ]


async def test_a_streamed_call_is_told_about_as_well(recorder: Any) -> None:
    model = ScriptedModel(["a b", "a b"])
    await recorder.complete(model, ASKED, purpose="generation")
    async with recorder.stream(model, ASKED, purpose="generation") as pieces:
        assert [piece async for piece in pieces][:-1] == ["a ", "b"]
    first, second = recorder.of(ModelCall)
    assert second == first._replace(occurrence=1)


async def test_tools_may_be_functions_or_coroutine_functions(recorder: Any) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    async def later(a: int) -> int:
        return a

    assert await recorder.call_tool(add, {"a": 1, "b": 2}) == 3
    assert await recorder.call_tool(later, {"a": 1}) == 1
    assert [(call.name, call.arguments, call.result) for call in recorder.of(ToolCall)] == [
        ("add", {"a": 1, "b": 2}, 3),
        ("later", {"a": 1}, 1),
    ]


async def test_a_tool_that_raises_is_told_about_and_raises(recorder: Any) -> None:
    def broken() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError):
        await recorder.call_tool(broken, {})
    (call,) = recorder.of(ToolCall)
    assert (call.is_error, call.result) == (True, "nothing there")


async def test_without_a_listener_nothing_is_kept() -> None:
    assert (await DirectGateway().complete(ScriptedModel(["x"]), ASKED, purpose="generation")).content == "x"
