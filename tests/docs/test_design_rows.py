"""What the design of agents, contexts, memory and skills asks for, group by group, as a newcomer would write it.

A test is a group. Where the product differs, the page on moving from Refinire says so.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from pydantic import BaseModel

import flowengine
from flowengine import (
    Agent,
    ConditionNode,
    Context,
    ContextManager,
    ContextProvider,
    ContextProviderFactory,
    ConversationHistoryProvider,
    EvaluationAgent,
    Flow,
    FunctionNode,
    LLMResult,
    RetrievalContext,
    RoutingAgent,
    SkillStore,
    ToolCallResult,
    ToolSet,
    TypedContext,
    get_llm,
)
from flowengine.agents.memory import (
    ChannelMemory,
    ChannelMessage,
    ChannelMessages,
    PromptRecord,
    system_prompt,
)
from flowengine.agents.retrieval.retriever import Document
from flowengine.agents.skills.disclosure import skill_access
from flowengine.errors import FlowEngineError
from flowengine.models.messages import ToolRequest
from flowengine.models.scripted import ScriptedModel
from tests.support.doc_blocks import forget_models

JUDGED: dict[str, Any] = {"criteria_scores": {"accuracy": 0.9, "relevance": 0.9, "completeness": 0.9}}
NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_models(monkeypatch)


def expert(name: str) -> Agent:
    return Agent(name, "Answer.", model=ScriptedModel([name]))


# --- Context management: a flow's context, providers, and the agent that they serve


@pytest.mark.parametrize(
    ("word", "way"), [("技術的な内容です", "technical"), ("ビジネスの話", "business"), ("?", "general")]
)
def test_context_a_function_chooses_the_next_step_by_the_result_of_an_agent(word: str, way: str):
    def choose(context: Context) -> str:
        said = str(context.result)
        return "technical_way" if "技術的" in said else "business_way" if "ビジネス" in said else "general_way"

    steps = {
        "analyze": Agent("analyze", "技術的、ビジネス、一般的のどれかで答える", model=ScriptedModel([word])),
        "route": ConditionNode(
            choose, {"technical_way": "technical", "business_way": "business", "general_way": "general"}
        ),
        **{name: expert(name) for name in ("technical", "business", "general")},
    }
    assert Flow.sequential(steps).run_sync({"text": "x"}).outputs == {way: way}


@pytest.mark.parametrize(("score", "way"), [(0.9, "publish"), (0.5, "improve")])
def test_context_a_score_chooses_between_two_steps(score: float, way: str):
    def is_good(context: Context) -> bool:
        found = context.evaluation_result
        return bool(found) and "score" in found and found.get("score", 0) >= 0.85

    model = ScriptedModel(["a draft", {**JUDGED, "score": score, "feedback": "f"}])
    writer = Agent("write", "Write.", evaluation_instructions="Judge it.", evaluation_threshold=0.75, model=model)
    steps = {
        "write": writer, "check": ConditionNode(is_good, "publish", "improve"),
        "publish": expert("publish"), "improve": expert("improve"),
    }  # fmt: skip
    assert Flow.sequential(steps).run_sync({"text": "x"}).outputs == {way: way}


def test_context_four_providers_as_text_of_yaml_work_one_after_the_other(tmp_path: Path):
    source = tmp_path / "src"
    source.mkdir()
    source.joinpath("invoices.py").write_text("def make_invoice(): ...\n")
    config = f"""
- conversation: {{max_items: 10}}
- source_code: {{codebase_path: {source}, max_files: 5}}
- filter: {{relevance_threshold: 0.2, max_sections: 3}}
- compressor: {{max_tokens: 6000, compression_ratio: 0.8}}
"""
    agent = Agent("coder", "Help.", model=(model := ScriptedModel(["Yes.", "No."])), context_providers_config=config)
    agent.run("Where is make_invoice?")
    agent.run("And what did I ask of make_invoice?")
    assert "def make_invoice" in (asked := json.dumps([each.messages for each in model.requests], default=str))
    assert "User: Where is make_invoice?\\nAssistant: Yes." in asked
    agent.clear_context()


def test_context_an_agent_without_providers_has_no_section_of_context():
    agent = Agent("plain", "Help.", model=(model := ScriptedModel(["Yes."])))
    agent.run("Hello")
    assert "Context:" not in model.requests[0].messages[-1].content


def test_context_every_provider_says_how_it_is_configured_and_its_example_works():
    schemas = Agent.get_context_provider_schemas()
    assert {"conversation", "fixed_file", "source_code", "compressor", "filter"} <= set(schemas)
    for schema in schemas.values():
        assert schema["description"]
        assert "parameters" in schema
    assert ContextProviderFactory.create_from_yaml(schemas["compressor"]["example"])
    assert schemas == ContextProviderFactory.get_available_providers()


def test_context_a_provider_of_ones_own_is_registered_asked_told_and_cleared():
    happened: list[Any] = []

    class Weather(ContextProvider):
        provider_name = "weather_of_a_test"

        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            happened.append((query, previous_context, kwargs["agent_name"]))
            return "It rains."

        def update(self, interaction: Any) -> None:
            happened.append(interaction["result"])

        def clear(self) -> None:
            happened.append("cleared")

    ContextProviderFactory.register_provider("weather_of_a_test", Weather)
    config = [{"type": "weather_of_a_test"}]
    agent = Agent("a", "Help.", model=ScriptedModel(["Take a coat."]), context_providers_config=config)
    agent.run("Coat?")
    agent.clear_context()
    assert happened == [("Coat?", "", "a"), "Take a coat.", "cleared"]


def test_context_a_conversation_begins_with_a_history_and_keeps_what_was_answered():
    history = ConversationHistoryProvider(max_items=2, history=[{"user_input": "Hi", "result": "Hello"}])
    for answer in ("One.", None, "Two."):
        history.update({"user_input": "Next?", "result": answer})
    assert history.get_context("") == "User: Next?\nAssistant: One.\n\nUser: Next?\nAssistant: Two."


def test_context_the_session_history_enters_the_prompt_and_is_trimmed():
    said = ["User: old", "User: newer", "User: newest"]
    agent = Agent("a", "Help.", model=(model := ScriptedModel(["x"])), session_history=said, history_size=2)
    agent.run("Hi")
    prompt = model.requests[0].messages[-1].content
    assert "User: newest" in prompt
    assert "User: old" not in prompt
    assert len(said) == 2


# --- Agents: one that does all, a router and a judge


def test_agents_what_a_run_leaves_in_the_context():
    model = ScriptedModel(["Tea.", {"next_route": "end", "confidence": 0.8, "reasoning": "r"}])
    agent = Agent("a", "Answer.", routing_instruction="Done?", routes={"end": "yes", "go": "no"}, model=model)
    context = agent.run("What is it?")
    assert isinstance(context.result, LLMResult)
    assert "What is it?" in context.shared_state["_last_prompt"]
    assert context.shared_state.get("_last_generation", "N/A") == "Tea."
    assert context.routing_result is not None
    assert {"next_route", "confidence"} <= set(context.routing_result.keys())
    again = Agent("b", "Answer.", model=(second := ScriptedModel(["Still tea."])))
    again.run("And now?", context)
    assert "What is it?" in json.dumps(second.requests[0].messages, default=str), "the talk goes on"


def test_agents_an_improvement_keeps_the_best_text():
    def judged(score: float) -> dict[str, Any]:
        return {**JUDGED, "score": score, "feedback": "shorter"}

    script = ["one", judged(0.4), "two", judged(0.6), "three", judged(0.5), "four", judged(0.3)]
    agent = Agent(
        "a", "Write.", model=ScriptedModel(script), orchestration_mode=True, evaluation_instructions="Judge.",
        improvement_patience=None, improvement_callback=lambda result, evaluation: f"Mend: {evaluation.feedback}",
    )  # fmt: skip
    result = agent.run("Go").result
    assert (result.content, result.attempts, result.evaluation_score) == ("two", 4, 0.6)


def test_agents_a_router_and_a_judge_stand_alone():
    before = Agent("a", "Answer.", model=ScriptedModel(["Tea."])).run("What?")
    answers = [{"next_route": way, "confidence": 1, "reasoning": ""} for way in ("nowhere", "end")]
    router = RoutingAgent("r", "Where to?", {"end": "done", "go": "more"}, model=ScriptedModel(answers))
    routed = router.run("", before).routing_result
    assert routed is not None
    assert routed.next_route == "end"
    said = {**JUDGED, "score": 0.6, "passed": True, "feedback": "f"}
    judge = EvaluationAgent("e", "Judge.", model=ScriptedModel([said]))
    judged = judge.run("", before).evaluation_result
    assert judged is not None
    assert judged.passed is False, "computed, whatever the judge says"


def test_agents_a_flow_of_ones_own_class_follows_the_router():
    class Drafts(Flow):
        def __init__(self, way: str) -> None:
            model = ScriptedModel(["A draft.", {"next_route": way, "confidence": 1, "reasoning": ""}])
            super().__init__(
                steps={
                    "main": Agent("main", "Write.", model=model),
                    "routing": RoutingAgent("routing", "Ready?", {"next_step": "no", "stop": "yes"}, model=model),
                    "next_step": FunctionNode(lambda context: "more"),
                    "stop": FunctionNode(lambda context: "stopped"),
                }
            )

    assert Drafts("stop").run_sync({"text": "x"}).outputs == {"stop": "stopped"}
    assert Drafts("next_step").run_sync({"text": "x"}).outputs == {"next_step": "more"}


@pytest.mark.parametrize(
    ("name", "key", "vendor"),
    [
        ("gpt-4o-mini", "OPENAI_API_KEY", "openai"),
        ("o3-mini", "OPENAI_API_KEY", "openai"),
        ("claude-3-5-sonnet", "ANTHROPIC_API_KEY", "anthropic"),
        ("gemini-2.0-flash", "GEMINI_API_KEY", "google"),
        ("ollama:llama3.2:3b", "", "ollama"),
    ],
)
def test_agents_a_models_name_says_its_vendor(name: str, key: str, vendor: str, monkeypatch: pytest.MonkeyPatch):
    if key:
        monkeypatch.setenv(key, "test")
    assert get_llm(name).provider == vendor


# --- Typed contexts


class Recent(BaseModel):
    recent: list[str] = []
    last_query: str | None = None
    enabled: bool = True


def test_typed_contexts_a_handler_changes_the_data_that_the_next_prompt_shows():
    def look(word: str) -> str:
        """Look a word up."""
        return f"{word} is green"

    def keep(context: TypedContext[Recent], result: ToolCallResult) -> None:
        if result.name == "look":
            context.set_data({"recent": [*context.get_data().recent, result.result]})

    made = TypedContext[Recent].create(
        "my-context", "What was found", Recent, {"last_query": "kept"},
        render_prompt=lambda context: f"# Found\nEnabled: {context.get_data().enabled}\n{context.get_data().recent}",
        tool_set=ToolSet("words", "Look words up", [look]), on_tool_call=keep,
    )  # fmt: skip
    model = ScriptedModel([ToolRequest("1", "look", '{"word": "tea"}'), "Green."])
    manager = ContextManager()
    manager.register_context(made)
    Agent("a", "Answer.", model=model, contexts=manager).run("What is tea?")
    assert "# Found\nEnabled: True\n['tea is green']" in json.dumps(
        [each.content for each in model.requests[1].messages], ensure_ascii=False
    ).replace("\\n", "\n")
    found = manager.find_context_by_id("my-context")
    assert found is not None
    found.set_data({"recent": []})
    assert found.get_data().last_query == "kept"


async def test_typed_contexts_with_retrieval_add_what_fits_the_query():
    made = RetrievalContext[Recent].create("m", "The manual", Recent, render_prompt=lambda context: "Manual:")
    made.register_rag("pages", documents=[Document("p7", "Press the red button."), Document("p9", "Oil it.")])
    assert [each.id for each in await made.query_context_rag("red button")] == ["p7"]
    assert await made.load_rag_for_prompt("red button") == "[pages: p7]\nPress the red button."
    assert await ContextManager([made]).render_prompt("oil") == "Manual:\n\n[pages: p9]\nOil it."


# --- Scoped memory


def test_memory_the_prompt_goes_from_the_widest_scope_to_the_conversation():
    said = ChannelMessages("C1", "general", (ChannelMessage("1", "user1", "メッセージ1", NOW),))
    record = PromptRecord(
        *("あなたはボットです。", said, "長い歴史", "最近"),
        *({"C1": ChannelMemory("C1", "general", "歴史", None)}, {"1": "要約"}, "1"),
    )
    text = system_prompt(record, locale="ja")
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "## 記憶", "### ワークスペースの歴史", "### ワークスペースの最近の出来事", "## チャンネル情報",
        "## 各チャンネルの記憶", "### #general", "#### 歴史", "## 現在のスレッド一覧", "### スレッド: 1",
        "## 現在の会話", "### #general", "#### スレッド: 1",
    ]  # fmt: skip
    assert text.endswith("---\n\n上記の情報をもとに、現在の会話に返答してください。")
    judged = system_prompt(record, "judge", locale="ja")
    assert judged.endswith("上記の情報を元に、この会話に返答すべきかどうかを判断してください。")


# --- Skills, level by level


async def test_skills_are_listed_loaded_and_read_level_by_level(tmp_path: Path):
    folder = tmp_path / "tea"
    folder.joinpath("references").mkdir(parents=True)
    folder.joinpath("SKILL.md").write_text("---\nname: tea\ndescription: Brews tea.\n---\nSee references/times.md.\n")
    folder.joinpath("references/times.md").write_text("Three minutes.\n")
    loads: list[Any] = []

    async def note(record: Any) -> None:
        loads.append(record)

    access = skill_access(SkillStore(tmp_path), note=note)
    first = "".join(each.text for each in await access.fragments("brew"))
    assert "Brews tea." in first
    assert "references/times.md" not in first
    assert "See references/times.md." in await access.load_skill("tea")
    assert "Three minutes." in await access.read_skill_file("tea", "references/times.md")
    assert [(each.skill, each.level) for each in loads] == [("*", 1), ("tea", 2), ("tea", 3)]
    assert all(each.tokens > 0 and each.memory > 0 and each.seconds >= 0 for each in loads)


# --- The graph of a flow and of a run


def test_pictures_and_graphs_are_had_from_python():
    flow = Flow.sequential({"one": FunctionNode(lambda context: 1), "two": FunctionNode(lambda context: 2)}, name="f")
    run = flow.run_sync()
    assert nx.dag_longest_path(nx.DiGraph(flow.graph)) == ["one", "two"]
    assert run.graph.nodes["two"]["status"] == "succeeded"
    assert "one" in run.graphviz().source
    assert run._repr_mimebundle_()


# --- A reader's first attempts, each answered with what to write


def no_op(context: Any) -> bool:
    return True


ATTEMPTS = {
    'ConditionNode("route", no_op, {})': "its name is its key in the flow",
    'ConditionNode(no_op, if_true="a")': "did you mean 'then'",
    'Flow({"a": FunctionNode(no_op)})': "Flow.sequential",
    'Flow(start="a", steps={})': "the first of `steps` is where a flow begins",
    'Agent("n", "g", "judge it")': "write the rest as name=value",
    'Agent("n", "g", threshold=75.0)': "did you mean 'evaluation_threshold'",
    'Agent("n", "g", evaluation_threshold=75.0)': "did you mean 0.75",
    'EvaluationAgent("e", "j", pass_threshold=85)': "did you mean 0.85",
    'Agent("n", "g", routing_instruction="r")': "routes={'label'",
    'RoutingAgent("r", "choose")': "RoutingAgent needs routes",
    'EvaluationAgent("e", "j", {"clear": {"weight": 0.5}})': "is text, not dict",
    'Agent("n", "g", improvement_callback=lambda result, evaluation: "")': "set orchestration_mode",
    'Agent("n", "g", mcp_servers=["python server.py"])': "write McpServer(name=",
    'Agent("n", "g", lang="ja")': "locale='ja'",
    'Agent("n", "g", context_providers_config=[{"type": "custom_data", "data_source": "external_api"}])': "module:name",
    'Agent("n", "g", context_providers_config="- source_code:")': "the folder './src' is not there",
    'ContextProviderFactory.create_from_yaml("- conversation: {}\\n  filter: {}")': "{name: {parameter: value}}",
    'TypedContext.create("a", "b", dataSchema=Recent)': "did you mean 'data_schema'",
    "ContextManager().contextList()": "did you mean 'context_list'",
    'TypedContext.create("a", "b", Recent).data': "get_data()",
    'TypedContext.create("a", "b", Recent).setData({})': "did you mean 'set_data'",
    'ChannelMemory("c", "n", long_term_memory="x")': "did you mean 'long_term'",
    'flowengine.agents.memory.Memory("channel", "c", "long_term", "t", NOW).content': "did you mean 'text'",
    'PromptRecord(object(), ChannelMessages("c", "n", ()))': "a persona is the text",
    'Flow("f", {"a": FunctionNode(no_op)}).run_sync("text")': "are a mapping",
    "set_state()": "return NodeResult(state=",
    'get_llm("llama3.2")': "ollama/llama3.2",
}
"""What somebody writes who comes from elsewhere → a part of the answer."""


def set_state() -> None:
    def assign(context: Context) -> None:
        state: Any = context.shared_state
        state["count"] = 1

    Flow("f", {"a": FunctionNode(assign)}).run_sync().raise_for_status()


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_first_attempt_is_answered_with_what_to_write(attempt: str):
    with pytest.raises((TypeError, AttributeError, FlowEngineError), match=re.escape(ATTEMPTS[attempt])):
        eval(attempt, globals())


@pytest.mark.parametrize(
    "name", ["RefinireAgent", "ConditionStep", "IContext", "GenerateMemoryUseCase", "ScriptedModel"]
)
def test_a_foreign_class_is_answered_with_ours(name: str):
    with pytest.raises(ImportError, match="write "):
        getattr(flowengine, name)
