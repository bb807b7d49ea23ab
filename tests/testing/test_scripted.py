"""Answers by node: for flows from files and from Python, templated agents, judges and routers inside of agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.errors import DefinitionError, ModelConfigError, TransientModelError
from flowengine.flow import Flow
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.function import FunctionNode
from flowengine.testing.model_overrides import seat_names
from flowengine.testing.scripted_answers import Script, scripted


async def test_each_node_gets_its_own_answer_and_no_key_is_needed(tea: Flow, answers: dict[str, Any]) -> None:
    run = await scripted(tea, answers).run()
    assert (run.status, run.outputs) == ("succeeded", {"cup": "A cup of sencha."})


async def test_the_flow_itself_keeps_its_models(tea: Flow, answers: dict[str, Any]) -> None:
    scripted(tea, answers)
    with pytest.raises(ModelConfigError, match="needs a key"):
        await tea.run()


async def test_a_call_without_an_answer_fails_and_shows_the_prompt(tea: Flow, answers: dict[str, Any]) -> None:
    del answers["cool"]
    run = await scripted(tea, answers).run()
    assert run.failed_node == "cool"
    assert run.error is not None
    assert "'cool' asked its model, and there is no answer for it in the script" in run.error.message
    assert "which has answers for: ask, pick. It was asked:\n[system] Brew it at 80 degrees." in run.error.message


def test_a_misspelt_node_is_refused_with_the_nearest_name(tea: Flow) -> None:
    with pytest.raises(DefinitionError, match=r"no agent of that name; did you mean 'cool'\?"):
        scripted(tea, {"col": "x"})


def test_a_node_that_asks_no_model_takes_no_answers() -> None:
    flow = Flow("f", {"work": FunctionNode(lambda context: 1)})
    with pytest.raises(DefinitionError, match="'work', which is a function node here and asks no model"):
        scripted(flow, {"work": "x"})


async def test_a_list_is_used_up_in_order(tea: Flow, answers: dict[str, Any]) -> None:
    answers["pick"] = ["no JSON at all", {"next_route": "none", "confidence": 1}]
    run = await scripted(tea, answers).run()
    assert run.nodes["pick"].output.next_route == "none"
    answers["pick"] = ["no JSON at all"]
    script = Script(answers)
    run = await script.around(tea).run()
    assert run.failed_node == "pick"
    assert len(script.misses) == 1
    assert "call 2, but the script has 1 answers" in script.misses[0]


async def test_a_function_sees_the_request(tea: Flow, answers: dict[str, Any]) -> None:
    def echo(request: Request) -> str:
        return request.messages[-1].content.upper()

    run = await scripted(tea, {**answers, "cool": echo}).run()
    assert run.outputs["cup"].startswith("USER INPUT")


async def test_a_model_may_stand_for_a_node_and_is_never_retried(tea: Flow, answers: dict[str, Any]) -> None:
    model = ScriptedModel([TransientModelError("busy"), "never asked for"])
    run = await scripted(tea, {**answers, "ask": model}).run()
    assert (run.failed_node, len(model.requests)) == ("ask", 1)


async def test_agents_that_are_made_from_the_context_are_scripted_as_well(tmp_path: Path) -> None:
    text = (
        "{flowengine: v1, name: f, inputs: {l: {type: string}, rules: {type: array}}, nodes: {a: {model: openai/x, "
        "prompt: Go, instructions: 'Speak {{ inputs.l }}.', system_message: '{{ inputs.rules }}'}}}"
    )
    seen: list[Request] = []

    def answer(request: Request) -> str:
        seen.append(request)
        return "Oui."

    run = await scripted(Flow.from_text(text, tmp_path / "f.yaml"), {"a": answer}).run(
        {"l": "French", "rules": ["é", True]}
    )
    assert run.outputs == {"a": "Oui."}
    told = "\n".join(each.content for each in seen[0].messages)
    assert "Speak French." in told
    assert '["é", true]' in told  # As a template prints it.


def judged_agent() -> Agent:
    return Agent(
        "draft",
        "Write.",
        model="openai/gpt-4o",
        evaluation_model="openai/o3",
        evaluation_criteria={"short": "Short"},
        routing_instruction="Where to?",
        routes={"up": "", "down": ""},
    )


async def test_judge_and_router_inside_of_an_agent_have_names_of_their_own() -> None:
    flow = Flow("f", {"draft": AgentNode(judged_agent(), targets={"up": None, "down": None})})
    assert list(seat_names(flow)) == ["draft", "draft.evaluation", "draft.routing"]
    answers = {
        "draft": "Text.",
        "draft.evaluation": {"score": 0.4, "criteria_scores": {"short": 0.4}},
        "draft.routing": {"next_route": "down", "confidence": 0.9},
    }
    run = await scripted(flow, answers).run({"x": "go"})
    assert run.outputs == {"draft": "Text."}
    assert run.evaluation_result is not None
    assert (run.evaluation_result.score, run.evaluation_result.passed) == (0.4, False)
    assert run.routing_result is not None
    assert run.routing_result.next_route == "down"


async def test_without_names_of_their_own_they_take_the_next_answers_of_the_node() -> None:
    flow = Flow("f", {"draft": AgentNode(judged_agent(), targets={"up": None, "down": None})})
    in_order = [
        "Text.",
        {"score": 1, "criteria_scores": {"short": 1}},
        {"next_route": "up", "confidence": 1},
    ]
    run = await scripted(flow, {"draft": in_order}).run({"x": "go"})
    assert run.routing_result is not None
    assert run.routing_result.next_route == "up"


async def test_evaluation_nodes_of_python_flows_are_scripted() -> None:
    flow = Flow(
        "f",
        {
            "write": AgentNode(Agent("write", "Write.", model="openai/gpt-4o")),
            "judge": EvaluationNode(EvaluationAgent("judge", model="openai/gpt-4o"), needs=["write"]),
            "score": EvaluationNode(scorer=lambda content: 0.5, needs=["judge"]),
        },
    )
    scores = {"accuracy": 1, "relevance": 1, "completeness": 1}
    run = await scripted(flow, {"write": "T", "judge": {"score": 0.8, "criteria_scores": scores}}).run({"x": "go"})
    assert run.status == "succeeded", run.error
    assert run.nodes["judge"].output.score == 0.8
    assert "score" not in list(seat_names(flow))


async def test_records_and_policies_are_those_of_the_flow(tea: Flow, answers: dict[str, Any]) -> None:
    run = await scripted(tea, answers).run()
    records = [(event.node, event.record) for event in run.events if isinstance(event, NodeRecorded)]
    calls = [(node, record.purpose) for node, record in records if isinstance(record, ModelCall)]
    assert calls == [("ask", "generation"), ("pick", "routing"), ("cool", "generation")]
