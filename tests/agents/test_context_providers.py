"""Context providers in an agent: where their text stands, what is told to them, and what fails in them."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.context.conversation import ConversationHistoryProvider
from flowengine.agents.context.packer import BudgetError
from flowengine.agents.context.provider import ContextProvider
from flowengine.agents.prompt.prompt_parts import tokens_of
from flowengine.core.context import Context
from flowengine.core.records import ModelCall, ProviderFailed, Receipt, ToolCall
from flowengine.errors import DefinitionError, GuardrailError, OutputError, PermanentModelError, RunError
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.models.tokens import count_tokens


class Facts(ContextProvider):
    """Says something, and keeps what it is told."""

    provider_name = "facts"

    def __init__(self, text: str = "Tea is green.") -> None:
        self.text = text
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []
        self.told: list[Mapping[str, Any]] = []

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        self.asked.append((query, previous_context, kwargs))
        return self.text

    async def update(self, interaction: Mapping[str, Any]) -> None:
        self.told.append(interaction)

    def clear(self) -> None:
        self.told.clear()


def asked(model: ScriptedModel, call: int = -1) -> str:
    """The last message of one request."""
    return model.requests[call].messages[-1].content


async def streamed(agent: Agent, text: str) -> list[Any]:
    """All pieces of an answer, and the context at its end."""
    async with agent.stream(text) as pieces:
        return [piece async for piece in pieces]


async def test_the_context_stands_between_the_instructions_and_the_sessions_history(recorder: Any):
    model = ScriptedModel(["Fine."])
    agent = Agent(
        "writer",
        "Answer briefly.",
        model=model,
        system_message="You are kind.",
        context_providers=[Facts(), Facts("Coffee is brown.")],
        session_history=["User: Hi\nAssistant: Hello"],
    )
    context = await agent.run_async("Why?", Context(messages=[Message("user", "Hm"), Message("assistant", "Hm?")]))
    system, first, second, question = model.requests[0].messages
    assert system == Message("system", "You are kind.\n\nAnswer briefly.")
    assert (first.content, second.content) == ("Hm", "Hm?")
    assert question.content == (
        "Context:\nTea is green.\n\nCoffee is brown.\n\n"
        "Previous context:\nUser: Hi\nAssistant: Hello\n\n"
        "User input: Why?"
    )
    assert context.shared_state["_last_prompt"].endswith("User input: Why?")
    assert "Tea is green." in context.shared_state["_last_prompt"]


async def test_a_prompt_without_any_context_is_as_if_there_were_no_providers():
    plain, empty = ScriptedModel(["a"]), ScriptedModel(["a"])
    settings: dict[str, Any] = {"system_message": "S", "session_history": ["User: Hi"]}
    await Agent("a", "I", model=plain, **settings).run_async("Why?")
    settings["session_history"] = ["User: Hi"]
    await Agent("a", "I", model=empty, context_providers=[Facts("")], **settings).run_async("Why?")
    assert plain.requests[0].messages == empty.requests[0].messages


async def test_providers_are_asked_with_the_query_what_came_before_and_the_agents_name():
    first, second = Facts("one"), Facts("two")
    await Agent("writer", "I", model=ScriptedModel(["a"]), context_providers=[first, second]).run_async("Why?")
    query, previous, facts = first.asked[0]
    assert (query, previous, facts["agent_name"], facts["locale"]) == ("Why?", "", "writer", "en")
    assert second.asked[0][1] == "one"


async def test_a_provider_that_asks_a_model_does_so_through_the_agents_gateway(recorder: Any):
    class Asking(Facts):
        async def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            request = Request("small", (Message("user", query),))
            reply = await kwargs["gateway"].complete(ScriptedModel(["In short."]), request, purpose="summary")
            return reply.content

    model = ScriptedModel(["Fine."])
    await Agent("a", "I", model=model, context_providers=[Asking()]).run_async("Why?", gateway=recorder)
    assert asked(model).startswith("Context:\nIn short.")
    assert [each.purpose for each in recorder.of(ModelCall)] == ["summary", "generation"]


async def test_every_provider_is_told_of_an_interaction():
    provider = Facts()
    await Agent("writer", "I", model=ScriptedModel(["Fine."]), context_providers=[provider]).run_async("Why?")
    (interaction,) = provider.told
    assert set(interaction) == {"user_input", "result", "success", "metadata", "timestamp"}
    assert (interaction["user_input"], interaction["result"], interaction["success"]) == ("Why?", "Fine.", True)
    assert interaction["metadata"]["model"] == "scripted"
    assert interaction["metadata"]["agent_name"] == "writer"
    assert interaction["timestamp"].endswith("+00:00")


async def test_structured_answers_are_told_as_json():
    provider = Facts()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    agent = Agent("a", "I", model=ScriptedModel([{"n": 1}]), output_model=schema, context_providers=[provider])
    await agent.run_async("Why?")
    assert provider.told[0]["result"] == '{"n": 1}'


async def test_an_agent_that_stands_alone_remembers_its_conversation():
    model = ScriptedModel(["Fine.", "As I said."])
    agent = Agent("a", "I", model=model, context_providers=[ConversationHistoryProvider()])
    await agent.run_async("How are you?")
    await agent.run_async("Sorry?")
    assert asked(model) == "Context:\nUser: How are you?\nAssistant: Fine.\n\nUser input: Sorry?"


def test_clearing_makes_an_agent_forget():
    model = ScriptedModel(["Fine.", "What?"])
    agent = Agent("a", "I", model=model, context_providers_config="- conversation: {max_items: 3}")
    agent.run("How are you?")
    agent.clear_context()
    agent.run("Sorry?")
    assert asked(model) == "User input: Sorry?"
    Agent("plain", "I").clear_context()


def test_the_schemas_of_all_providers_are_told():
    schemas = Agent.get_context_provider_schemas()
    assert schemas["conversation"]["parameters"]["max_items"]["default"] == 10


def test_configuration_may_be_yaml_or_data_and_comes_after_the_instances(tmp_path: Path):
    file = tmp_path / "policies.md"
    file.write_text("Refunds within 30 days.")
    entry = {"fixed_file": {"file_path": str(file), "description": "Policies"}}
    model = ScriptedModel(["a", "b"])
    Agent("a", "I", model=model, context_providers=[Facts()], context_providers_config=[entry]).run("Why?")
    assert asked(model).startswith("Context:\nTea is green.\n\nPolicies:\nRefunds within 30 days.\n\nUser input")
    Agent("a", "I", model=model, context_providers_config=f"- type: fixed_file\n  file_path: {file}").run("Why?")
    assert asked(model).startswith("Context:\nRefunds within 30 days.")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"context_providers": Facts()}, "agent 'a': context_providers must be a list, not Facts"),
        ({"context_providers": ["conversation"]}, "one of context_providers is no ContextProvider: str 'conversation'"),
        ({"context_providers_config": "- conversaton"}, "there is no context provider 'conversaton'; did you mean"),
        ({"contexts": [3]}, "one of contexts is no TypedContext or ContextManager: int 3"),
        ({"context_budget": 0}, "context_budget must be a whole number of at least 1, not 0"),
        ({"context_provider": []}, "unknown argument 'context_provider'; did you mean 'context_providers'?"),
    ],
)
def test_what_cannot_be_a_source_is_an_error_when_the_agent_is_made(settings: dict[str, Any], problem: str):
    with pytest.raises(DefinitionError) as raised:
        Agent("a", "I", **settings)
    assert problem in str(raised.value)


async def test_sources_are_given_when_the_agent_is_made_and_not_for_one_run():
    with pytest.raises(DefinitionError, match="'context_budget' is given when the agent is made"):
        await Agent("a", "I", model=ScriptedModel(["a"])).run_async("Why?", context_budget=100)


# --- failures


async def test_a_provider_that_fails_is_in_the_trace_and_the_run_goes_on(
    recorder: Any, caplog: pytest.LogCaptureFixture
):
    class Failing(Facts):
        provider_name = "failing"

        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            raise LookupError("no such table")

        async def update(self, interaction: Mapping[str, Any]) -> None:
            raise LookupError("no such row")

    model = ScriptedModel(["Fine."])
    agent = Agent("a", "I", model=model, context_providers=[Failing(), Facts()])
    with caplog.at_level(logging.WARNING, "flowengine.agents.context"):
        context = await agent.run_async("Why?", gateway=recorder)
    assert str(context.result) == "Fine."
    assert asked(model).startswith("Context:\nTea is green.\n\n")
    assert [each.error for each in recorder.of(ProviderFailed)] == [
        "LookupError: no such table",
        "LookupError: no such row",
    ]
    assert "no such table" in caplog.text


@pytest.mark.parametrize("streams", [True, False])
async def test_a_run_without_an_answer_is_told_as_a_failure(streams: bool):
    provider = Facts()
    agent = Agent(
        "a", "I", model=ScriptedModel([PermanentModelError("no")]), context_providers=[provider], max_retries=0
    )
    with pytest.raises(PermanentModelError):
        await (streamed(agent, "Why?") if streams else agent.run_async("Why?"))
    (interaction,) = provider.told
    assert (interaction["success"], interaction["result"]) == (False, "")
    assert "PermanentModelError" in interaction["metadata"]["error"]


@pytest.mark.parametrize("side", ["input_guardrails", "output_guardrails"])
async def test_what_a_guardrail_refused_is_told_to_nobody(side: str):
    provider = Facts()
    settings: dict[str, Any] = {side: [lambda value: False]}
    agent = Agent("a", "I", model=ScriptedModel(["a"]), context_providers=[provider], **settings)
    with pytest.raises(GuardrailError):
        await agent.run_async("Why?")
    assert provider.told == []


# --- streams


async def test_a_stream_has_the_context_and_tells_of_the_interaction():
    model, provider = ScriptedModel(["It is fine."]), Facts()
    seen = await streamed(Agent("a", "I", model=model, context_providers=[provider]), "Why?")
    assert "".join(piece for piece in seen if isinstance(piece, str)) == "It is fine."
    assert isinstance(seen[-1], Context)
    assert asked(model).startswith("Context:\nTea is green.")
    assert [each["result"] for each in provider.told] == ["It is fine."]


# --- budget and receipt


async def test_the_receipt_lists_every_fragment(recorder: Any):
    agent = Agent("a", "Be kind.", model=ScriptedModel(["a"]), context_providers=[Facts()], system_message="You.")
    await agent.run_async("Why?", gateway=recorder)
    (receipt,) = recorder.of(Receipt)
    assert [(each["source"], each["tokens"], each["state"]) for each in receipt.fragments] == [
        ("system message", 1, "kept"),
        ("instructions", 2, "kept"),
        ("facts", 4, "kept"),
        ("user input", 1, "kept"),
    ]
    assert receipt.budget is None
    assert all(each["estimated"] for each in receipt.fragments)  # Nothing had to be counted.
    assert type(recorder.records[0]) is Receipt  # before the call that it is about


async def test_an_agent_without_sources_has_no_receipt(recorder: Any):
    await Agent("a", "Be kind.", model=ScriptedModel(["a"])).run_async("Why?", gateway=recorder)
    assert recorder.of(Receipt) == []


async def test_the_oldest_give_way_first_and_no_tool_result_is_without_its_request(recorder: Any):
    call = Message("assistant", "", (ToolRequest("1", "look", '{"at": "' + "x " * 60 + '"}'),))
    earlier = [
        Message("user", "First question, which is long. " * 9),
        call,
        Message("tool", "A result.", tool_call_id="1"),
        Message("assistant", "First answer."),
        Message("user", "Second question."),
        Message("assistant", "Second answer."),
    ]
    model = ScriptedModel(["a"])
    agent = Agent("a", "Be kind.", model=model, context_budget=80)
    await agent.run_async("Why?", Context(messages=earlier), gateway=recorder)
    assert [each.content for each in model.requests[0].messages] == [
        "Be kind.",
        "Second question.",
        "Second answer.",
        "User input: Why?",
    ]
    (receipt,) = recorder.of(Receipt)
    assert [each["state"] for each in receipt.fragments] == ["kept", *["dropped"] * 4, *["kept"] * 3]
    assert receipt.budget == 80


async def test_a_budget_below_the_fixed_parts_is_an_error_that_names_them():
    agent = Agent("a", "Be kind. " * 30, model=ScriptedModel(["a"]), context_budget=40)
    with pytest.raises(
        BudgetError, match=r"agent 'a': a context budget of 40 tokens .* \(instructions \d+, user input"
    ):
        await agent.run_async("Why?")


async def test_results_of_tools_are_cut_down_where_the_chat_outgrows_its_budget(recorder: Any):
    def look(at: str) -> str:
        "Look somewhere."
        return f"{at}: " + "Something is there. " * 60

    def wish(at: str) -> Reply:
        return Reply("", (ToolRequest(at, "look", f'{{"at": "{at}"}}'),))

    model = ScriptedModel([wish("east"), wish("west"), "Seen."])
    agent = Agent("a", "Look.", model=model, tools=[look], context_providers=[Facts()], context_budget=330)
    context = await agent.run_async("Where?", gateway=recorder)
    assert str(context.result) == "Seen."
    last = [each.content for each in model.requests[-1].messages]
    assert last[1].startswith("Context:\nTea is green.")
    assert len(last) == 6
    older, newer = last[3], last[5]
    assert older == '[left out: recall(id="r1", start=0), 1206 characters]'
    assert newer.startswith("west: Something is there.")
    assert [len(each.result) for each in recorder.of(ToolCall)] == [1206, 1206]


@pytest.mark.parametrize("budget", [240, 300, 400])
async def test_no_request_of_a_generation_exceeds_its_budget(budget: int):
    def look(at: str) -> str:
        "Look somewhere."
        return f"{at}: " + "何かがあります。 " * 60

    schema = {
        "type": "object",
        "properties": {"place": {"type": "string", "description": "Where it is, in a word"}},
        "required": ["place"],
    }
    wish = Reply("", tuple(ToolRequest(str(n), "look", f'{{"at": "{n}"}}') for n in range(3)))
    model = ScriptedModel([wish, {"plac": "here"}, wish, {"place": "here"}])
    agent = Agent(
        "a",
        "Look.",
        model=model,
        tools=[look],
        output_model=schema,
        context_providers=[Facts("A sentence of a file. " * 50)],
        session_history=["User: Hi\nAssistant: Hello"] * 3,
        context_budget=budget,
    )
    context = await agent.run_async("Where?")
    assert context.result.content == {"place": "here"}
    assert len(model.requests) == 4
    assert max(tokens_of(each.messages, count_tokens) for each in model.requests) <= budget


async def test_the_models_window_is_the_budget_where_none_is_given(recorder: Any):
    model = ScriptedModel(["a"], name="gpt-4", provider="openai")
    long = Facts("A sentence of a long file. " * 2000)
    await Agent("a", "I", model=model, context_providers=[long], max_tokens=1000).run_async("Why?", gateway=recorder)
    (receipt,) = recorder.of(Receipt)
    assert receipt.budget == int((8192 - 1000) * 0.95)
    assert receipt.fragments[1]["state"] == "shortened"


async def test_a_window_that_seems_too_small_is_left_to_the_vendor(recorder: Any):
    model = ScriptedModel(["a"], name="gpt-4", provider="openai")
    agent = Agent("a", "A long word. " * 3000, model=model, context_providers=[Facts()])
    context = await agent.run_async("Why?", gateway=recorder)
    assert str(context.result) == "a"
    assert "Tea" not in asked(model)
    assert any("more than the" in getattr(each, "text", "") for each in recorder.records)


async def test_improvements_keep_the_context():
    model = ScriptedModel(
        [
            "draft",
            {"score": 0.1, "criteria_scores": {"good": 0.1}, "feedback": "More."},
            "better",
            {"score": 0.9, "criteria_scores": {"good": 0.9}, "feedback": "Good."},
        ]
    )
    provider = Facts()
    agent = Agent(
        "a",
        "I",
        model=model,
        orchestration_mode=True,
        evaluation_criteria={"good": "Good"},
        context_providers=[provider],
    )
    context = await agent.run_async("Why?")
    assert str(context.result) == "better"
    assert len(provider.asked) == 1
    assert "Tea is green." in model.requests[2].messages[1].content
    assert [each["result"] for each in provider.told] == ["better"]


async def test_an_empty_answer_is_a_failure_of_the_interaction():
    provider = Facts()
    with pytest.raises(OutputError):
        await Agent("a", "I", model=ScriptedModel([""]), context_providers=[provider], max_retries=0).run_async("Why?")
    assert [each["success"] for each in provider.told] == [False]


def test_an_agent_without_sources_loads_nothing_of_them():
    code = (
        "import sys; from flowengine import Agent; from flowengine.models.scripted import ScriptedModel;"
        "Agent('a', 'I', model=ScriptedModel(['b'])).run('c');"
        "rooms = tuple(f'flowengine.agents.{each}' for each in ('context', 'memory', 'retrieval', 'typed_contexts'));"
        "print([m for m in sys.modules if m.startswith(rooms) or m in ('yaml', 'tiktoken', 'regex')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_errors_of_messages_are_told_as_before():
    with pytest.raises(RunError, match="the context's messages are no chat messages"):
        Agent("a", "I", model=ScriptedModel(["b"]), context_budget=100).run("c", Context(messages=[3]))
