"""The chat of an agent with tools: it fits the model's window, and what was taken out can be read again."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.agent import Agent
from flowengine.agents.prompt.prompt_parts import tokens_of
from flowengine.agents.standalone import DirectGateway
from flowengine.agents.tools.tool import Tool, ToolResult
from flowengine.core.records import ModelCall, Notice, Receipt
from flowengine.journal.recorded_gateway import RecordedGateway
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request, read_token_count
from flowengine.models.pricing import context_window, listed_vendor, whole_table
from flowengine.models.scripted import ScriptedModel
from flowengine.models.tokens import count_tokens as count_anew

pytestmark = pytest.mark.anyio

count_tokens = cache(count_anew)
PAGE = "The quick brown fox jumps over the lazy dog near the river bank. " * 77
"""5 KB."""


def read(number: int) -> str:
    """Read a page."""
    return f"Page {number}. {PAGE}"


def ask(*calls: tuple[str, dict[str, Any]]) -> Reply:
    return Reply("", tuple(ToolRequest(f"{name}{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls)))


def size_of(request: Request) -> int:
    """Tokens of all that is sent."""
    return tokens_of(request.messages, count_tokens) + sum(count_tokens(json.dumps(each)) for each in request.tools)


def reading(rounds: int) -> Any:
    """A model that reads a page a round, and keeps no request: they are looked at as they come."""

    def answer(request: Request) -> Any:
        done = answer.calls = answer.calls + 1  # type: ignore[attr-defined]
        answer.sizes.append(size_of(request))  # type: ignore[attr-defined]
        return ask(("read", {"number": done})) if done <= rounds else "Done."

    answer.calls, answer.sizes = 0, []  # type: ignore[attr-defined]
    return answer


async def run_with_tools_alone(provider: str, name: str, rounds: int, recorder: Any = None, **more: Any) -> list[int]:
    answer = reading(rounds)
    model = ScriptedModel(answer, name=name, provider=provider)
    agent = Agent("a", "Read.", model=model, tools=[read], max_tool_rounds=rounds + 1, **more)
    await agent.run_async("Read the pages.", gateway=recorder)
    return answer.sizes


async def test_with_tools_alone_no_request_is_longer_than_the_window_and_cuts_are_told_once(recorder: Any):
    sizes = await run_with_tools_alone("openai", "gpt-4", 40, recorder)
    window = context_window("openai", "gpt-4")
    assert window == 8192
    assert max(sizes) <= window
    assert sizes[-1] > 2000
    receipts = recorder.of(Receipt)
    assert 5 <= len(receipts) <= 20  # Not one before each of the 41 calls.
    assert not recorder.of(Notice)


async def test_an_agent_whose_chat_fits_tells_nothing_and_asks_as_without_a_window(recorder: Any):
    await run_with_tools_alone("openai", "gpt-4o", 2, recorder)
    assert not recorder.of(Receipt)
    first = recorder.of(ModelCall)[0]
    agent = Agent("a", "Read.", model=ScriptedModel(["x"]))
    assert [(each["role"], each["content"]) for each in first.messages] == [
        (each.role, each.content) for each in agent.messages("Read the pages.")
    ]


async def test_schemas_of_tools_count(recorder: Any):
    async def run(arguments: Any) -> ToolResult:
        return ToolResult(PAGE)

    fields = {f"field_{n}": {"type": "string", "description": "What it is about, in a few words"} for n in range(150)}
    wide = Tool("wide", "Look widely", {"type": "object", "properties": fields}, run)
    model = ScriptedModel([*[ask(("wide", {})) for _ in range(6)], "Done."], name="gpt-4", provider="openai")
    await Agent("a", "Look.", model=model, tools=[wide], max_tool_rounds=8).run_async("Go", gateway=recorder)
    assert size_of(model.requests[0]) > 3000
    assert max(map(size_of, model.requests)) <= 8192


async def test_the_window_holds_also_beside_a_greater_budget_of_ones_own():
    assert max(await run_with_tools_alone("openai", "gpt-4", 12, context_budget=50_000)) <= 8192


async def test_what_was_taken_out_can_be_read_again_from_any_character_on(recorder: Any):
    first = f"It is hidden here: {PAGE} THE END."
    seen: list[Request] = []

    def answer(request: Request) -> Any:
        seen.append(request)
        calls = [("read", {"number": n}) for n in range(8)]
        handles = [each.content for each in request.messages if "[left out: recall(" in each.content]
        if len(seen) <= len(calls):
            return ask(calls[len(seen) - 1])
        return ask(("recall", {"id": "r1", "start": 4_000})) if len(seen) == 9 and handles else "Done."

    def read(number: int) -> str:
        "Read a page."
        return first if number == 0 else f"Page {number}. {PAGE}"

    model = ScriptedModel(answer, name="gpt-4", provider="openai")
    agent = Agent("a", "Read.", model=model, tools=[read], max_tool_rounds=12)
    await agent.run_async("Read the pages.", gateway=recorder)
    assert all("recall" not in str(each.tools) for each in seen[:3])
    assert "recall" in str(seen[8].tools)
    assert first not in [each.content for each in seen[8].messages]
    assert seen[-1].messages[-1].content == first[4_000:]


async def test_of_several_results_that_were_just_asked_for_each_keeps_its_part():
    model = ScriptedModel([ask(*(("read", {"number": n}) for n in range(3))), "Done."])
    agent = Agent("a", "Read.", model=model, tools=[read], context_budget=600)
    await agent.run_async("Read the pages.")
    results = [each.content for each in model.requests[1].messages if each.role == "tool"]
    sizes = [count_tokens(each) for each in results]
    assert min(sizes) > 120
    assert max(sizes) - min(sizes) < 40
    assert [each.startswith(f"Page {n}. The quick") for n, each in enumerate(results)] == [True] * 3
    assert tokens_of(model.requests[1].messages, count_tokens) <= 600


async def test_a_small_result_beside_a_great_one_stays_whole():
    def little() -> str:
        "Little."
        return "Only this."

    model = ScriptedModel([ask(("read", {"number": 0}), ("little", {})), "Done."])
    await Agent("a", "Read.", model=model, tools=[read, little], context_budget=500).run_async("Go")
    great, small = (each.content for each in model.requests[1].messages if each.role == "tool")
    assert small == "Only this."
    assert count_tokens(great) > 300


async def test_an_interrupted_node_asks_again_what_it_asked():
    records: list[Any] = []

    async def note(record: Any) -> None:
        records.append(record)

    def agent(model: ScriptedModel) -> Agent:
        return Agent("a", "Read.", model=model, tools=[read], max_tool_rounds=40)

    whole = ScriptedModel(reading(20), name="gpt-4", provider="openai")
    await agent(whole).respond("Read.", gateway=DirectGateway(note))
    half = records[: len(records) // 2]
    rest = reading(20)
    rest.calls = sum(type(each) is ModelCall for each in half)
    again = ScriptedModel(rest, name="gpt-4", provider="openai")
    await agent(again).respond("Read.", gateway=RecordedGateway(DirectGateway(note), half), recorded=half)
    assert [each.messages for each in again.requests] == [each.messages for each in whole.requests][
        rest.calls - len(again.requests) :
    ]


async def test_every_message_of_a_tool_follows_its_request_in_whatever_is_left_of_a_chat():
    model = ScriptedModel(reading(60), name="gpt-4", provider="openai")
    agent = Agent("a", "Read.", model=model, tools=[read], max_tool_rounds=61)
    await agent.run_async("Read the pages.")
    for request in model.requests:
        asked: set[str] = set()
        for message in request.messages:
            asked |= {each.id for each in message.tool_calls}
            assert message.role != "tool" or message.tool_call_id in asked
        assert request.messages[1].role == "user"


@cache
def windows() -> list[tuple[str, str, int]]:
    """Vendor, name and window of a model for each window of the table, the smallest first: the one of all with this
    window whose prompts may be the longest."""
    alike = defaultdict[int, list[tuple[float, str]]](list)
    for name, entry in whole_table().items():
        window = read_token_count(entry.get("max_input_tokens"))
        if window and entry.get("supports_function_calling") and entry.get("mode") in ("chat", "responses"):
            answer = min(read_token_count(entry.get("max_output_tokens")) or window, window // 4)
            is_exact = entry.get("litellm_provider") in ("openai", "azure")
            alike[window].append(((window - answer) * (0.95 if is_exact else 0.8), name))
    found: list[tuple[str, str, int]] = []
    for window, names in sorted(alike.items()):
        known = ((vendor, name) for _, name in sorted(names, reverse=True) if (vendor := listed_vendor(name)))
        found += islice(((*model, window) for model in known if context_window(*model) == window), 1)
    return found


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_rounds_fit_the_smallest_window_of_the_table():
    vendor, name, window = windows()[0]
    assert 0 < max(await run_with_tools_alone(vendor, name, 60)) <= window < 5000


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_two_hundred_rounds_fit_every_window_of_the_table():
    models = [each for each in windows() if each[2] < 300_000]  # 200 rounds have about 250,000 tokens.
    assert len(models) > 30
    rows: list[str] = []
    for vendor, name, window in models:
        longest = max(await run_with_tools_alone(vendor, name, 200))
        rows.append(f"{window:>8,} {longest:>8,} {name}")
        assert longest <= window, rows
    print("\n".join(["  window  longest", *rows]))


def test_messages_are_counted_with_what_holds_them_together():
    assert tokens_of([Message("user", "Hello, world!")], count_tokens) == 8


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 3_000), min_size=1, max_size=4), min_size=1, max_size=12), st.integers(500, 3_000)
)
def test_whatever_tools_say_the_chat_fits_is_whole_and_loses_nothing_for_good(rounds: list[list[int]], budget: int):
    """`rounds`: the characters of the results of each round."""
    said: list[str] = []

    def say(size: int) -> str:
        "Say something."
        said.append(f"{len(said)} " + "word " * (size // 5))
        return said[-1]

    wishes = [ask(*(("say", {"size": size}) for size in each)) for each in rounds]
    recalled = [ask(("recall", {"id": f"r{n}"})) for n in (1, 2)]
    model = ScriptedModel([*wishes, *recalled, "Done."])
    agent = Agent("a", "I", model=model, tools=[say], max_tool_rounds=20, max_parallel_tools=1, context_budget=budget)
    agent.run("Go")
    for request in model.requests:
        assert tokens_of(request.messages, count_tokens) <= budget
        asked = {each.id for message in request.messages for each in message.tool_calls}
        assert all(each.tool_call_id in asked for each in request.messages if each.role == "tool")
        newest = [each for each in request.messages if each.role == "tool" and each.content.strip()]
        assert newest or request is model.requests[0]
    offered = [any("recall" in str(tool) for tool in each.tools) for each in model.requests]
    assert offered == sorted(offered)  # Once offered it stays.
    if offered[len(rounds)]:
        first = model.requests[len(rounds) + 1].messages[-1].content
        assert first.startswith(said[0][:20])
