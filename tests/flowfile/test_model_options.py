"""Options of model calls in flow files: where they hold, how they reach the call, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.builder import FlowBuilder
from flowengine.errors import DefinitionError, ModelConfigError
from flowengine.flow import Flow
from flowengine.flowfile.analysis.flow_nodes import options_of, settings_of
from flowengine.flowfile.checks.agent_sources import check_models
from flowengine.flowfile.estimate.bounds import bound_of
from flowengine.flowfile.loader import check_text, load_flow
from flowengine.flowfile.schema.agent_settings import AgentSpec
from flowengine.flowfile.schema.editor_schema import json_schema
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.models.scripted import ScriptedModel
from flowengine.models.vendors import ProviderSettings
from flowengine.models.worst_case import ModelFacts
from flowengine.runtime.telemetry.spans import spans_of
from flowengine.testing.model_overrides import with_models

HEAD = "flowengine: v1\nname: t\n"

ALL = """\
top_p: 0.5
seed: 7
stop: END
reasoning_effort: low
verbosity: high
thinking: 2048
presence_penalty: 0.5
frequency_penalty: -0.5
service_tier: flex
parallel_tool_calls: false
model_options: {top_k: 5}
"""
EXTRA = {
    "top_p": 0.5,
    "seed": 7,
    "stop": ["END"],
    "reasoning_effort": "low",
    "verbosity": "high",
    "thinking": {"budget_tokens": 2048},
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "service_tier": "flex",
    "parallel_tool_calls": False,
    "top_k": 5,
}


def settings_at(spec: FlowSpec, name: str) -> AgentSpec:
    node: Any = spec.nodes[name]
    return settings_of(spec, node)


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        f"nodes:\n  a:\n    prompt: x\n{indented(ALL, 4)}",
        f"agents:\n  w:\n{indented(ALL, 4)}nodes: {{a: {{agent: w, prompt: x}}}}\n",
        f"defaults:\n  agent:\n{indented(ALL, 4)}nodes: {{a: {{prompt: x}}}}\n",
        f"nodes:\n  a:\n    prompt: x\n    agent:\n{indented(ALL, 6)}",
    ],
    ids=["node", "agent", "defaults", "inline"],
)
def test_options_reach_the_call_from_wherever_they_are_said(text: str, tmp_path: Path) -> None:
    flow = Flow.from_text(HEAD + text, tmp_path / "t.yaml", environ={})
    model = ScriptedModel(["ok"])
    with_models(flow, lambda seat, settings: model).run_sync()
    assert dict(model.requests[0].extra) == EXTRA
    assert model.requests[0].temperature is None  # `top_p` is said, and no temperature.


def test_judges_and_routers_take_options_but_not_those_for_generating() -> None:
    spec = load_flow(
        text=HEAD
        + f"agents:\n  w:\n{indented(ALL, 4)}"
        + "nodes:\n  a: {agent: w, prompt: x}\n  e: {type: evaluation, agent: w, target: t}\n"
        + "  r: {type: routing, agent: w, target: t, instruction: i, routes: {a: {}}, stop: ZZ}\n"
    )
    taken = {
        "seed": 7,
        "reasoning_effort": "low",
        "thinking": 2048,
        "service_tier": "flex",
        "model_options": {"top_k": 5},
    }
    assert options_of(settings_at(spec, "e")) == taken
    assert options_of(settings_at(spec, "r")) == {**taken, "stop": ("ZZ",)}


def test_options_go_with_the_model_that_they_were_given_for() -> None:
    spec = load_flow(
        text=HEAD
        + "agents:\n  w: {model: openai/gpt-5, reasoning_effort: low, max_tokens: 9}\n"
        + "nodes:\n  a: {agent: w, model: openai/gpt-4o, prompt: x}\n  b: {agent: w, model: openai/gpt-5, prompt: x}\n"
    )
    other = settings_at(spec, "a")
    assert (options_of(other), other.max_tokens) == ({}, 9)
    same = settings_at(spec, "b")
    assert options_of(same) == {"reasoning_effort": "low"}
    assert check_models(spec, ModelFacts({})) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("top_p: 1.5", "6:12: FE403 node 'a': expected at most 1, found 1.5"),
        ("top_p: high", "6:12: FE401 node 'a': expected a number, found 'high'"),
        ("seed: 1.5", "6:11: FE401 node 'a': expected a whole number, found 1.5"),
        ("seed: 9223372036854775808", "6:11: FE403 node 'a'"),
        ("stop: 3", "6:11: FE401 node 'a': expected a text or a list of texts, found 3"),
        ("stop: []", "6:11: FE403 node 'a': the value is empty"),
        ("stop: [a, '']", "6:15: FE403 node 'a': the value is empty"),
        ("stop: '{{ inputs.x }}'", "6:12: FE310 node 'a'"),
        ("reasoning_effort: lwo", "FE402 node 'a': expected 'none', 'minimal', 'low'"),
        (
            "reasoning_efort: low",
            "6:5: FE201 node 'a': unknown key 'reasoning_efort'; did you mean 'reasoning_eff",
        ),
        ("verbosity: lo", "6:16: FE402 node 'a': expected 'low', 'medium' or 'high', found 'lo'; did you mean 'low'?"),
        ("thinking: 0", "6:15: FE403 node 'a': expected at least 1, found 0"),
        ("thinking: true", "6:15: FE401 node 'a': expected a map, found true"),
        ("thinking: {budget: 5}", "6:16: FE201 node 'a': unknown key 'budget'; did you mean 'budget_tokens'?"),
        ("presence_penalty: -3", "6:23: FE403 node 'a': expected at least -2, found -3"),
        ("frequency_penalty: .nan", "FE401 node 'a'"),
        ("service_tier: flx", "did you mean 'flex'?"),
        ("parallel_tool_calls: 'no'", "6:26: FE401 node 'a': expected true or false, found 'no'"),
        ("model_options: [top_k]", "6:20: FE401 node 'a': expected a map, found a list"),
        ("model_options: {top_kk: 1}", "6:21: FE413 node 'a': unknown model option 'top_kk'; did you mean 'top_k'?"),
        ("model_options: {api_base: 'http://x'}", "6:21: FE413 node 'a': 'api_base' may not be a model option"),
        ("model_options: {extra_headers: {a: b}}", "6:21: FE413"),
        ("model_options: {messages: []}", "6:21: FE413 node 'a': 'messages' may not be a model option: the engine"),
        ("model_options: {top_p: 1}", "6:21: FE413 node 'a': 'top_p' is a key of its own"),
        ("model_options: {top_k: '{{ inputs.x }}'}", "FE310"),
        ("top_p:", "6:5: FE408"),
    ],
)
def test_what_is_wrong_with_an_option_is_told_with_its_place(line: str, told: str) -> None:
    found = [str(each) for each in check_text(f"{HEAD}nodes:\n  a:\n    prompt: x\n    {line}\n")]
    assert any(told in each for each in found), "\n".join(found)


REFUSED = """\
agents:
  w: {model: openai/gpt-4o, reasoning_effort: low, fallbacks: [anthropic/claude-haiku-4-5], seed: 4}
nodes:
  a: {agent: w, prompt: x}
  b: {model: openai/o3, temperature: 0.2, prompt: x, model_options: {top_k: 4}}
"""


def test_an_option_that_the_model_refuses_is_told_where_it_stands() -> None:
    told = [str(each) for each in check_models(load_flow(text=HEAD + REFUSED), ModelFacts({}))]
    assert [each.split(": ")[0] for each in told] == ["4:29", "4:93", "7:70", "7:25"]
    assert "FE513 model 'openai/gpt-4o' refuses `reasoning_effort`: it does not think" in told[0]
    assert "model 'anthropic/claude-haiku-4-5' refuses `seed`" in told[1]
    assert "node 'b': model 'openai/o3' refuses `top_k`" in told[2]
    assert "node 'b': model 'openai/o3' refuses `temperature`" in told[3]
    assert check_models(load_flow(text=HEAD + REFUSED), ModelFacts({}), "offline") == []


def test_a_run_does_not_begin_with_an_option_that_a_model_refuses(tmp_path: Path) -> None:
    text = HEAD + "nodes: {a: {model: openai/gpt-4o, reasoning_effort: low, prompt: x}}"
    flow = Flow.from_text(text, tmp_path / "t.yaml", environ={"OPENAI_API_KEY": "k"})
    with pytest.raises(ModelConfigError) as refused:
        flow.run_sync()
    assert "t.yaml:3:35: FE513 node 'a': model 'openai/gpt-4o' refuses `reasoning_effort`: it" in str(refused.value)
    assert [str(each) for each in check_models(load_flow(tmp_path / "t.yaml", text=text), ModelFacts({}))] == [
        str(refused.value)
    ]
    run = Flow.from_text(text, tmp_path / "t.yaml", environ={}, model="offline").run_sync()
    assert run.status == "succeeded"


def test_what_a_model_would_be_asked_without_is_refused_before_a_run_but_not_in_one_that_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    text = HEAD + "nodes: {a: {model: openai/o3, temperature: 0.2, prompt: x}}"
    flow = Flow.from_text(text, tmp_path / "t.yaml", environ={"OPENAI_API_KEY": "k"})
    with pytest.raises(
        ModelConfigError, match=r"t\.yaml:3:31: FE513 node 'a': model 'openai/o3' refuses `temperature`"
    ):
        flow.run_sync()
    flow.plan.prepare()
    with pytest.raises(ModelConfigError, match="refuses `temperature`"):
        Agent("a", "Write.", model="openai/o3", temperature=0.2).run("x")


def test_tools_decide_what_a_model_takes(tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text('allow_mcp = ["https://mcp.example/"]')
    servers = "[{name: s, url: 'https://mcp.example'}]"
    asked = "model: openai/gpt-5.5, seed: 4, prompt: x"
    text = f"{HEAD}nodes: {{a: {{{asked}}}, b: {{{asked}, mcp_servers: {servers}}}}}"
    spec = load_flow(tmp_path / "t.yaml", text=text)
    (told,) = check_models(spec, ModelFacts({}))
    assert "node 'b': model 'openai/gpt-5.5' refuses `seed`: OpenAI's Responses API" in str(told)


def test_a_vendor_that_litellm_asks_takes_more(tmp_path: Path) -> None:
    spec = load_flow(text=HEAD + "nodes: {a: {model: google/gemini-2.5-flash, frequency_penalty: 1, prompt: x}}")
    assert len(check_models(spec, ModelFacts({}))) == 1
    through = {"google": ProviderSettings(adapter="litellm")}
    assert check_models(spec, ModelFacts({}, providers=through)) == []


def test_an_agent_alone_is_told_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(ModelConfigError, match="refuses `thinking`"):
        Agent("a", "Write.", model="openai/gpt-4o", thinking=2048).run("x")


@pytest.mark.parametrize(
    ("kind", "given"),
    [(Agent, ("a", "Write.")), (EvaluationAgent, ("a",)), (RoutingAgent, ("a", "Where to?", {"x": ""}))],
)
def test_agents_in_python_take_and_check_options(kind: Any, given: tuple[Any, ...]) -> None:
    agent = kind(*given, stop="END", thinking=2048, model_options={"top_k": 5})
    assert agent.settings.extra == {"stop": ["END"], "thinking": {"budget_tokens": 2048}, "top_k": 5}
    for wrong, told in (
        ({"top_p": 2}, "top_p must be a number from 0 to 1"),
        ({"reasoning_efort": "low"}, "did you mean 'reasoning_effort'"),
        ({"model_options": {"api_key": "sk-1"}}, "'api_key' may not be a model option"),
    ):
        with pytest.raises(DefinitionError, match=told):
            kind(*given, **wrong)


def test_options_of_one_run_are_checked_too() -> None:
    agent = Agent("a", "Write.", model=ScriptedModel(["x"]), seed=1)
    with pytest.raises(DefinitionError, match="verbosity must be one of"):
        agent.run("x", verbosity="loud")


def test_a_temperature_gives_way_to_what_else_decides_unless_it_is_said() -> None:
    assert Agent("a", "Write.").settings.temperature == 0.7
    cases: list[tuple[dict[str, Any], float | None]] = [
        ({}, 0.7),
        ({"seed": 1}, 0.7),
        ({"top_p": 0.5}, None),
        ({"thinking": 2048}, None),
        ({"reasoning_effort": "low", "temperature": 0.7}, 0.7),
    ]
    for said, expected in cases:
        model = ScriptedModel(["ok"])
        Agent("a", "Write.", model=model, **said).run("x")
        assert model.requests[0].temperature == expected
    model = ScriptedModel(["ok"])
    Agent("a", "Write.", model=model).run("x", top_p=0.5)
    assert model.requests[0].temperature is None


def test_an_agents_judge_goes_without_the_options_for_generating() -> None:
    agent = Agent("a", "Write.", orchestration_mode=True, stop="END", top_p=0.5, seed=7)
    assert agent.evaluator is not None
    assert (agent.evaluator.settings.extra, agent.evaluator.settings.temperature) == ({"seed": 7}, 0.2)


def test_the_builder_takes_options() -> None:
    flow = FlowBuilder("t")
    flow.agent("a", prompt="x", top_p=0.5, thinking=2048, stop=["END"], model_options={"top_k": 3}, model="offline")
    assert load_flow(text=flow.to_yaml()).nodes["a"].model_dump(exclude_unset=True)["thinking"] == {
        "budget_tokens": 2048
    }
    assert flow.build().run_sync().status == "succeeded"


def test_an_editor_takes_what_the_loader_takes() -> None:
    validator: Any = Draft7Validator(json_schema())
    shorthand: dict[str, Any] = yaml.safe_load(ALL)

    def takes(given: dict[str, Any]) -> bool:
        return validator.is_valid({"flowengine": "v1", "name": "t", "nodes": {"a": {"prompt": "x", **given}}})

    assert takes(shorthand)
    assert takes({**shorthand, "stop": ["a", "b"], "thinking": {"budget_tokens": 5}})
    assert not takes({"thinking": 0})
    assert not takes({"stop": []})
    assert not takes({"top_p": 2})
    assert not takes({"verbosity": "x"})
    assert not takes({"model_options": {"api_base": "x"}})


def test_a_plan_reckons_with_the_price_of_the_tier_and_the_tokens_for_thinking(tmp_path: Path) -> None:
    def most(more: str, model: str = "openai/gpt-5-mini") -> Any:
        text = f"{HEAD}limits: {{tokens: 100000000}}\nnodes: {{a: {{model: {model}, prompt: x, max_retries: 0{more}}}}}"
        facts = ModelFacts({"OLLAMA_HOST": "here"})
        return bound_of(load_flow(text=text), facts).unlimited

    assert most(", max_tokens: 100, service_tier: priority").cost_usd > most(", max_tokens: 100").cost_usd
    unknown = "ollama/a-model-of-my-own"
    assert most(", thinking: 5000", unknown).tokens - most("", unknown).tokens == 5000 * most("", unknown).calls


@pytest.mark.anyio
async def test_options_are_attributes_of_a_calls_span() -> None:
    agent = Agent("a", "Write.", model=ScriptedModel(["ok"]), top_p=0.5, seed=7, stop="END", model_options={"top_k": 3})
    run = await Flow("t", {"a": agent}).run({"x": "hi"})
    (span,) = [each for each in spans_of(run.events) if each.name == "chat scripted"]
    said = {name.rpartition(".")[2]: value for name, value in span.attributes.items() if "gen_ai.request" in name}
    assert {name: said[name] for name in ("top_p", "seed", "stop_sequences", "top_k")} == {
        "top_p": 0.5,
        "seed": 7,
        "stop_sequences": ["END"],
        "top_k": 3,
    }
