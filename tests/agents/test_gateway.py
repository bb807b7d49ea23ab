"""The direct gateway: calls go through, and each is told about."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flowengine.agents.standalone import DirectGateway
from flowengine.agents.tools.function_tool import tool_of
from flowengine.agents.tools.tool import Effect, ToolResult
from flowengine.core.records import ModelCall, ToolCall
from flowengine.errors import NotJournalableError, PermanentModelError
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request, TokenUsage
from flowengine.models.scripted import ScriptedModel

ASKED = Request("scripted", (Message("user", "Why?"),))


async def test_a_record_holds_what_was_asked_and_what_it_cost(recorder: Any) -> None:
    reply = Reply("So.", (ToolRequest("1", "add", "{}"),), TokenUsage(3, 2, 1), 0.01, "tool_calls", "m", "acme", 2, 0.5)
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


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_stream_that_fails_is_told_about_with_what_it_took(recorder: Any, is_begun: bool) -> None:
    error = PermanentModelError("refused")
    error.reply = Reply("", usage=TokenUsage(3, 2), cost_usd=0.01)

    class Breaking(ScriptedModel):
        @asynccontextmanager
        async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
            async def pieces() -> AsyncGenerator[str | Reply]:
                yield "a "
                raise error

            if not is_begun:
                raise error
            yield pieces()

    with pytest.raises(PermanentModelError):
        async with recorder.stream(Breaking([]), ASKED, purpose="generation") as pieces:
            assert [piece async for piece in pieces] == []
    (call,) = recorder.of(ModelCall)
    assert (call.error, call.prompt_tokens, call.cost_usd, call.content) == ("refused", 3, 0.01, "")


async def test_a_reply_says_who_answered_as_its_record_does(recorder: Any) -> None:
    class Nameless(ScriptedModel):
        async def complete(self, request: Request) -> Reply:
            return Reply("So.")

    reply = await recorder.complete(Nameless([], name="m", provider="acme"), ASKED, purpose="generation")
    assert (reply.model, reply.provider) == ("m", "acme")


def add(a: int, b: int) -> int:
    return a + b


async def test_a_tool_call_is_told_with_its_text_and_its_value(recorder: Any) -> None:
    result = await recorder.call_tool(tool_of(add), {"a": 1, "b": 2})
    assert result == ToolResult("3", 3)
    (call,) = recorder.of(ToolCall)
    assert call == ToolCall("add", {"a": 1, "b": 2}, "3", key=call.key, seconds=call.seconds, value=3)


async def test_equal_tool_calls_are_numbered_whatever_the_order_of_their_arguments(recorder: Any) -> None:
    for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}):
        await recorder.call_tool(tool_of(add), arguments)
    first, second, other = recorder.of(ToolCall)
    assert (first.occurrence, second.occurrence, other.occurrence) == (0, 1, 0)
    assert first.key == second.key != other.key


async def test_a_tool_that_raises_gives_a_result_and_is_told_about(recorder: Any) -> None:
    def broken() -> None:
        raise LookupError("nothing there")

    result = await recorder.call_tool(tool_of(broken), {})
    (call,) = recorder.of(ToolCall)
    assert (result.is_error, call.is_error) == (True, True)
    assert "nothing there" in call.result


@pytest.mark.parametrize(("effect", "told"), [("none", [False]), ("idempotent", [False]), ("external", [True, False])])
async def test_only_an_external_tool_is_told_before_it_begins(recorder: Any, effect: Effect, told: list[bool]) -> None:
    def look() -> int:
        return len(recorder.of(ToolCall))

    result = await recorder.call_tool(tool_of(look, effect=effect), {})
    calls = recorder.of(ToolCall)
    assert [call.started for call in calls] == told
    assert result.value == len(told) - 1
    assert {call.effect for call in calls} == {effect}


async def test_a_value_that_cannot_be_written_down_leaves_its_text() -> None:
    records: list[ToolCall] = []

    async def note(record: ToolCall) -> None:
        if record.value is not None:
            raise NotJournalableError("no")
        records.append(record)

    def lock() -> Any:
        return memoryview(b"x")

    result = await DirectGateway(note).call_tool(tool_of(lock), {})
    assert isinstance(result.value, memoryview)
    assert [(record.result, record.value) for record in records] == [(result.text, None)]


async def test_without_a_listener_nothing_is_kept() -> None:
    assert (await DirectGateway().complete(ScriptedModel(["x"]), ASKED, purpose="generation")).content == "x"
