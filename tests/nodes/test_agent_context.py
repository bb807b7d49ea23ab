"""Providers and typed contexts of agents in a flow: each run and node has its own, and sees its ancestors' changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.context.conversation import ConversationHistoryProvider
from flowengine.agents.context.provider import ContextProvider
from flowengine.agents.tools.toolset import ToolSet
from flowengine.agents.typed_contexts.typed import TypedContext
from flowengine.core.records import ProviderFailed, Receipt
from flowengine.engine.events import Event, NodeRecorded
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.map import MapNode


class Notes(BaseModel):
    lines: list[str] = []


class NotesContext(TypedContext[Notes]):
    id = "notes"
    description = "Notes"
    data_schema = Notes
    merge = "changes"

    def tool_set(self) -> ToolSet:
        return ToolSet("notes", "", [self.write])

    def write(self, line: str) -> None:
        "Write a line."
        self.update_data(lines=[*self.get_data().lines, line])


class Counter(ContextProvider):
    """Counts what it was told, and says how often that was."""

    provider_name = "counter"

    def __init__(self) -> None:
        self.told = 0

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return f"told {self.told}"

    def update(self, interaction: Any) -> None:
        self.told += 1

    def dump(self) -> Any:
        return self.told

    def load(self, value: Any) -> None:
        self.told = value


def answer(request: Request) -> Any:
    """Writes one line into the notes, where there are any, and then answers its own question."""
    question = next(each.content for each in request.messages if "User input: " in each.content)
    asked = question.rpartition("User input: ")[2]
    if request.tools and request.messages[-1].role != "tool":
        return Reply("", (ToolRequest("1", "write", json.dumps({"line": asked})),))
    return f"answer to {asked}"


def prompts(model: ScriptedModel) -> dict[str, str]:
    """Question → the context that its first request had."""
    seen: dict[str, str] = {}
    for request in model.requests:
        text = next(each.content for each in request.messages if "User input: " in each.content)
        context, _, asked = text.partition("User input: ")
        seen.setdefault(asked, context.strip().removeprefix("Context:\n"))
    return seen


def diamond(model: ScriptedModel, **sources: Any) -> Flow:
    """One agent in all four nodes: a, then b and c, then d."""
    agent = Agent("one", "I", model=model, **sources)
    after: dict[str, Sequence[str]] = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
    return Flow("diamond", {name: AgentNode(agent, prompt=_asking(name), needs=needs) for name, needs in after.items()})


def _asking(name: str) -> Any:
    return lambda context: name


async def test_a_node_sees_the_conversation_of_its_ancestors_and_of_nobody_else():
    model = ScriptedModel(answer)
    history = ConversationHistoryProvider()
    run = await diamond(model, context_providers=[history]).run()
    run.raise_for_status()
    first = "User: a\nAssistant: answer to a"
    seen = prompts(model)
    assert (seen["a"], seen["b"], seen["c"]) == ("", first, first)
    both = ["User: b\nAssistant: answer to b", "User: c\nAssistant: answer to c"]
    assert seen["d"].split("\n\n") == [first, *both]
    assert history.get_context("") == ""  # The agent's own was not touched.


async def test_typed_contexts_and_providers_of_ones_own_are_each_nodes():
    model = ScriptedModel(answer)
    run = await diamond(model, context_providers=[Counter()], contexts=[NotesContext()]).run()
    run.raise_for_status()
    seen = prompts(model)
    assert seen["a"] == 'told 0\n\nNotes\n{"lines":[]}'
    assert seen["b"] == seen["c"] == 'told 1\n\nNotes\n{"lines":["a"]}'
    assert seen["d"].startswith("told 2")


async def test_concurrent_runs_share_nothing():
    model = ScriptedModel(answer, latency=0.001)
    flow = diamond(model, context_providers=[ConversationHistoryProvider(), Counter()], contexts=[NotesContext()])
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(flow.run)
    for request in model.requests:
        text = next(each.content for each in request.messages if "User input: " in each.content)
        if text.endswith("User input: b"):
            assert text.count("User: ") == 1
            assert "told 1" in text


def _cut(events: Sequence[Event], at: int) -> MemoryStore:
    store = MemoryStore()
    journal = store.create("r1")
    for event in events[:at]:
        journal.append(decode(encode(event)))
    store.close()
    return store


async def test_a_run_that_is_killed_anywhere_goes_on_with_the_same_prompts():
    def flow(model: ScriptedModel) -> Flow:
        providers = [ConversationHistoryProvider(), Counter()]
        return diamond(model, context_providers=providers, contexts=[NotesContext()])

    model = ScriptedModel(answer)
    run = (await flow(model).run(run_id="r1", store=MemoryStore())).raise_for_status()
    whole = {str(each.messages) for each in model.requests}
    assert len(whole) == 8
    for at in range(2, len(run.events)):
        again = ScriptedModel(answer)
        resumed = await flow(again).resume("r1", store=_cut(run.events, at))
        assert resumed.status == "succeeded", resumed.error
        # The time of day in a conversation is no part of a prompt, so all of them are equal.
        assert {str(each.messages) for each in again.requests} <= whole, at
        assert resumed.outputs == run.outputs


async def test_the_receipts_and_failures_of_a_node_are_in_its_trace():
    class Failing(Counter):
        provider_name = "failing"

        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            raise ValueError("no")

        def dump(self) -> Any:
            return {1, 2}

        def load(self, value: Any) -> None:
            raise KeyError("never kept")

    model = ScriptedModel(answer)
    run = await diamond(model, context_providers=[Failing(), Counter()]).run()
    run.raise_for_status()
    records = [event.record for event in run.events if isinstance(event, NodeRecorded) and event.node == "b"]
    assert [type(each) for each in records].count(Receipt) == 1
    told = [each.error for each in records if isinstance(each, ProviderFailed)]
    assert told == ["ValueError: no", "TypeError: Object of type set is not JSON serializable"]
    assert prompts(model)["b"] == "told 1"


async def test_a_provider_that_cannot_be_made_anew_is_told_and_left_out():
    class Locked(Counter):
        provider_name = "locked"

        def __init__(self) -> None:
            super().__init__()
            self.events = (each for each in ())  # A generator cannot be copied.

    model = ScriptedModel(answer)
    run = await diamond(model, context_providers=[Locked(), Counter()]).run()
    run.raise_for_status()
    told = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    failures = [each for each in told if isinstance(each, ProviderFailed)]
    assert {each.provider for each in failures} == {"locked"}
    assert "cannot pickle 'generator' object" in failures[0].error


async def test_a_second_provider_of_a_name_keeps_its_own():
    class Named(Counter):
        def __init__(self, start: int) -> None:
            self.told = start

    model = ScriptedModel(answer)
    run = await diamond(model, context_providers=[Named(0), Named(10)]).run()
    run.raise_for_status()
    assert prompts(model)["b"] == "told 1\n\ntold 11"


async def test_an_agent_without_sources_keeps_nothing():
    model = ScriptedModel(answer)
    agent = Agent("plain", "I", model=model)
    run = await Flow("plain", {"a": AgentNode(agent, prompt=_asking("a"))}).run()
    run.raise_for_status()
    assert (await agent.respond("a", kept={})).kept is None


async def test_providers_that_bring_something_else_each_time_are_not_asked_again_when_a_run_is_resumed():
    class Clock(ContextProvider):
        provider_name = "clock"

        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            moments.append(query)
            return f"moment {len(moments)}"

    def flow(model: ScriptedModel) -> Flow:
        agent = Agent("one", "I", model=model, context_providers=[Clock()], contexts=[NotesContext()])
        return Flow("clock", {"a": AgentNode(agent, prompt=_asking("a"))})

    moments: list[str] = []
    model = ScriptedModel(answer)
    run = (await flow(model).run(run_id="r1", store=MemoryStore())).raise_for_status()
    first = next(n for n, each in enumerate(run.events) if isinstance(each, NodeRecorded))
    for at in range(first + 1, len(run.events)):
        again = ScriptedModel(answer)
        resumed = await flow(again).resume("r1", store=_cut(run.events, at))
        assert resumed.outputs == run.outputs
        assert len(again.requests) <= 2
        assert all("moment 1\n" in each.messages[1].content for each in again.requests)
    assert moments == ["a"]


class OrderedNotes(NotesContext):
    merge = "error"


def writers(contexts: Any, model: ScriptedModel) -> dict[str, Any]:
    """`c` comes after `a` and `b`, which come in no order; each writes its own name."""
    agent = Agent("writer", "I", model=model, contexts=[contexts])
    after = {"a": [], "b": [], "c": ["a", "b"]}
    return {name: AgentNode(agent, prompt=lambda _, name=name: name, needs=needs) for name, needs in after.items()}


async def test_nodes_in_no_order_that_change_one_context_are_an_error():
    run = await Flow("f", writers(OrderedNotes(), ScriptedModel(answer))).run(store=MemoryStore())
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.message == (
        "typed context 'notes' was changed by 'a' and by 'b', and neither comes before the other; order them with "
        '`needs`, or declare `merge = "changes"` in its class'
    )


async def test_changes_of_nodes_in_no_order_are_all_made_where_the_context_says_so():
    store, model = MemoryStore(), ScriptedModel(answer)
    flow = Flow("f", writers(NotesContext(), model))
    for _ in range(2):
        run = await flow.run(store=store, session="s")
        assert run.status == "succeeded"
    assert prompts(model)["c"].count('"a","b"') == 1
    stored = store.recall("session", "s")
    assert stored is not None
    assert stored["context:notes"] == {"lines": ["a", "b", "c", "a", "b", "c"]}
    assert not any(name.startswith("changes:") for name in stored)


async def test_changes_of_a_maps_items_are_all_made_in_their_order():
    store, model = MemoryStore(), ScriptedModel(answer)
    agent = Agent("writer", "I", model=model, contexts=[NotesContext()])
    body = {"write": AgentNode(agent, prompt=lambda context: context.variables["item"])}
    flow = Flow("f", {"all": MapNode(body, over=lambda _: ["x", "y", "z"])})
    (await flow.run(store=store, session="s")).raise_for_status()
    stored = store.recall("session", "s")
    assert stored is not None
    assert stored["context:notes"] == {"lines": ["x", "y", "z"]}
