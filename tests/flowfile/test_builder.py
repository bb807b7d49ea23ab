"""A flow file, built and run: each key of the format does what it says."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import FlowError
from flowengine.flow import Flow
from flowengine.nodes.node import RetryPolicy
from flowengine.runtime.run import Run

CODE = """
import asyncio
from flowengine import NodeResult

def shout(text):
    return text.upper()

async def whisper(text, context):
    return f"{text.lower()} in {context.current_node}"

def count(context):
    return NodeResult(output="counted", state={"seen": [1]})

def boom():
    raise ValueError("boom")

def which(context):
    return context.inputs["way"]

def score(content):
    return 0.25 if "bad" in str(content) else 0.75

def even(value):
    return len(value) % 2 == 0

tries = []

def third():
    tries.append(1)
    if len(tries) < 3:
        raise ValueError("not yet")
    return len(tries)
"""

HEAD = "flowengine: v1\nname: built\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text(CODE)
    return tmp_path


def flow_of(project: Path, body: str, **options: Any) -> Flow:
    path = project / "flow.yaml"
    path.write_text(HEAD + textwrap.dedent(body))
    return Flow.from_yaml(path, **options)


def run_of(project: Path, body: str, inputs: dict[str, Any] | None = None) -> Run:
    return flow_of(project, body).run_sync(inputs or {})


def problems_of(project: Path, body: str) -> list[str]:
    with pytest.raises(FlowError) as caught:
        flow_of(project, body)
    return [f"{each.code} {each.message}{each.hint}" for each in caught.value.diagnostics]


# --- functions -------------------------------------------------------------------------------------------


def test_a_function_is_given_its_rendered_arguments(project: Path):
    run = run_of(
        project,
        """
        inputs: {text: {type: string}}
        nodes:
          loud: {type: function, call: "steps:shout", with: {text: "{{ inputs.text }}!"}}
          quiet: {type: function, call: "steps:whisper", with: {text: "{{ nodes.loud.output }}"}}
        outputs: {both: ["{{ nodes.loud.output }}", {deep: "{{ nodes.quiet.output }}"}]}
        """,
        {"text": "Hey"},
    )
    assert run.outputs == {"both": ["HEY!", {"deep": "hey! in quiet"}]}


def test_a_lone_placeholder_keeps_its_type(project: Path):
    run = run_of(
        project,
        """
        inputs: {items: {type: array, default: [1, {a: 2}]}}
        nodes:
          a: {type: condition, if: inputs.items | length == 2}
        outputs: {same: "{{ inputs.items }}", text: "are {{ inputs.items }}"}
        """,
    )
    assert run.outputs == {"same": [1, {"a": 2}], "text": 'are [1, {"a": 2}]'}


def test_set_writes_state_beside_the_functions_own_and_wins(project: Path):
    run = run_of(
        project,
        """
        shared_state:
          seen: {type: array, default: [], merge: append}
          last: {type: string, default: none}
        nodes:
          a: {type: function, call: "steps:count", set: {last: "{{ output }}"}}
          b: {type: function, call: "steps:count", needs: [a], set: {seen: ["{{ shared_state.last }}"]}}
        """,
    )
    assert dict(run.shared_state) == {"seen": [1, "counted"], "last": "counted"}


def test_what_fails_to_import_is_told_with_its_place(project: Path):
    (project / "broken.py").write_text("import nothing_like_this\ndef f(): ...\n")
    told = problems_of(project, 'nodes:\n  a: {type: function, call: "broken:f"}\n')
    assert len(told) == 1
    assert told[0].startswith("FE505")
    assert "nothing_like_this" in told[0]


# --- conditions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "ran"), [(1, "small"), (5, "middle"), (9, "large")])
def test_the_first_case_that_holds_is_taken(project: Path, size: int, ran: str):
    run = run_of(
        project,
        """
        inputs: {size: {type: integer}}
        nodes:
          pick:
            type: condition
            cases:
              - {if: inputs.size < 3, then: small}
              - {if: inputs.size < 7, then: middle, label: medium}
            else: large
          small: {type: function, call: "steps:shout", with: {text: s}}
          middle: {type: function, call: "steps:shout", with: {text: m}}
          large: {type: function, call: "steps:shout", with: {text: l}}
        """,
        {"size": size},
    )
    assert [name for name in ("small", "middle", "large") if run.nodes[name].status == "succeeded"] == [ran]
    assert run.nodes["pick"].output == {"small": "small", "middle": "medium", "large": "else"}[ran]


def test_no_case_and_no_else_fails_the_node(project: Path):
    run = run_of(project, "nodes:\n  pick: {type: condition, cases: [{if: 1 > 2, label: never}]}\n")
    assert run.failed_node == "pick"
    assert run.error is not None
    assert "none of the 1 cases holds" in run.error.message


@pytest.mark.parametrize(("way", "status"), [("x", "succeeded"), ("y", "succeeded"), ("z", "failed")])
def test_a_function_chooses_among_declared_routes(project: Path, way: str, status: str):
    run = run_of(
        project,
        """
        inputs: {way: {type: string}}
        nodes:
          pick: {type: condition, call: "steps:which", routes: {x: left, y: {}}}
          left: {type: function, call: "steps:shout", with: {text: l}}
        """,
        {"way": way},
    )
    assert run.status == status
    if status == "failed":
        assert run.error is not None
        assert "'z'; allowed are: x, y" in run.error.message


def test_an_expression_that_is_not_boolean_fails_its_node(project: Path):
    run = run_of(project, "nodes:\n  pick: {type: condition, if: \"'false'\"}\n")
    assert run.error is not None
    assert 'expected true or false, got a string: "false"' in run.error.message


# --- evaluation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "ran", "score"), [("good", "keep", 0.75), ("bad", "drop", 0.25)])
def test_a_scorer_in_code_decides_by_the_threshold(project: Path, text: str, ran: str, score: float):
    run = run_of(
        project,
        """
        inputs: {text: {type: string}}
        nodes:
          judge:
            type: evaluation
            call: steps:score
            target: "{{ inputs.text }}"
            threshold: 0.5
            routes: {pass: keep, fail: drop}
          keep: {type: function, call: "steps:shout", with: {text: k}}
          drop: {type: function, call: "steps:shout", with: {text: d}}
        """,
        {"text": text},
    )
    assert run.nodes[ran].status == "succeeded"
    assert run.nodes["judge"].output.score == score
    assert run.evaluation_result is not None
    assert run.evaluation_result.content == text


# --- policies ----------------------------------------------------------------------------------------------


def test_when_false_skips_and_default_speaks_for_what_was_skipped(project: Path):
    run = run_of(
        project,
        """
        inputs: {go: {type: boolean, default: false}}
        nodes:
          maybe: {type: function, call: "steps:shout", with: {text: x}, when: inputs.go}
        outputs: {said: "{{ nodes.maybe.output | default('nothing') }}"}
        """,
    )
    assert run.nodes["maybe"].cause == "condition_false"
    assert run.outputs == {"said": "nothing"}


def test_printing_what_was_skipped_says_so(project: Path):
    run = run_of(
        project,
        """
        nodes:
          maybe: {type: function, call: "steps:shout", with: {text: x}, when: 1 > 2}
        outputs: {said: "{{ nodes.maybe.output }}"}
        """,
    )
    assert run.status == "failed"
    assert run.error is not None
    assert "nodes.maybe.output is not there" in run.error.message
    assert "skipped" in run.error.message


def test_a_failure_leads_to_its_handler(project: Path):
    run = run_of(
        project,
        """
        nodes:
          risky: {type: function, call: "steps:boom", on_error: {then: mend}}
          mend: {type: function, call: "steps:shout", with: {text: "{{ nodes.risky.error }}"}}
        outputs: {said: "{{ nodes.mend.output }}"}
        """,
    )
    assert run.outputs == {"said": "VALUEERROR: BOOM"}


def test_retry_and_timeout_come_from_the_node_or_the_defaults(project: Path):
    flow = flow_of(
        project,
        """
        defaults: {retry: {attempts: 3, backoff: fixed, initial: 1ms}, timeout: 2s}
        nodes:
          again: {type: function, call: "steps:third"}
          once: {type: function, call: "steps:shout", with: {text: x}, retry: {attempts: 1}, timeout: 1m}
          pick: {type: condition, if: 2 > 1}
        """,
    )
    again, once, pick = (flow.plan.definitions[name] for name in ("again", "once", "pick"))
    assert again.retry == RetryPolicy(3, "fixed", 0.001)
    assert (again.timeout, once.timeout, pick.timeout) == (2.0, 60.0, None)
    assert once.retry is not None
    assert once.retry.attempts == 1
    assert pick.retry is None
    assert flow.run_sync().nodes["again"].output == 3


def test_clean_up_runs_whatever_happened(project: Path):
    run = run_of(
        project,
        """
        nodes:
          risky: {type: function, call: "steps:boom"}
          clean: {type: function, call: "steps:shout", with: {text: done}, needs: [risky], join: always}
        """,
    )
    assert run.status == "failed"
    assert run.nodes["clean"].output == "DONE"


# --- agents ------------------------------------------------------------------------------------------------


def test_a_nodes_settings_go_before_its_agents(project: Path):
    flow = flow_of(
        project,
        """
        agents:
          writer: {system_message: You write., temperature: 0.1, max_tokens: 50, model: offline}
        nodes:
          a: {agent: writer, instructions: Write., prompt: x, temperature: 0.9}
        """,
    )
    agent: Any = flow.plan.definitions["a"]
    assert (agent.agent.settings.temperature, agent.agent.settings.max_tokens) == (0.9, 50)
    assert agent.agent.generation.system_message == "You write."


def test_templated_instructions_are_rendered_for_each_run(project: Path):
    flow = flow_of(
        project,
        """
        inputs: {tone: {type: string}}
        nodes:
          a: {instructions: "Write in a {{ inputs.tone }} tone.", prompt: Go, model: offline}
        """,
    )
    prompts = [flow.run_sync({"tone": tone}).shared_state["_last_prompt"] for tone in ("calm", "{{ 7*7 }}")]
    assert "Write in a calm tone." in prompts[0]
    assert "Write in a {{ 7*7 }} tone." in prompts[1], "a value is rendered once, never twice"


def test_a_structured_output_is_an_object_whose_fields_are_read(project: Path):
    run = run_of(
        project,
        """
        nodes:
          plan:
            model: offline
            prompt: "Tea, coffee and water"
            output:
              type: object
              properties: {drinks: {type: array, items: {type: string}, minItems: 2}}
              required: [drinks]
        outputs: {many: "{{ nodes.plan.output.drinks | length >= 2 }}"}
        """,
    )
    assert run.outputs == {"many": True}


def test_guardrails_of_the_project_are_asked(project: Path):
    run = run_of(
        project,
        """
        nodes:
          a: {model: offline, prompt: odd, guardrails: {input: ["steps:even"]}}
        """,
    )
    assert run.error is not None
    assert run.error.type == "GuardrailError"
    assert "even" in run.error.message


def test_a_model_given_for_the_run_goes_before_every_model_of_the_file(project: Path):
    flow = flow_of(project, "nodes:\n  a: {prompt: x, model: gpt-4o, evaluate: {model: o3}}\n", model="offline")
    assert flow.run_sync().status == "succeeded"


def test_a_fingerprint_changes_with_what_a_node_inherits(project: Path):
    body = "agents: {w: {temperature: %s}}\nnodes:\n  a: {agent: w, prompt: x}\n  b: {prompt: x}\n"
    cool, warm = (flow_of(project, body % value).plan.fingerprints for value in ("0.1", "0.9"))
    assert cool["a"] != warm["a"]
    assert cool["b"] == warm["b"]


def test_environment_values_come_from_the_projects_list_only(project: Path, monkeypatch: pytest.MonkeyPatch):
    (project / "flowengine.toml").write_text('allow_calls = ["steps"]\nallow_env = ["REGION"]\n')
    monkeypatch.setenv("REGION", "eu")
    monkeypatch.setenv("SECRET", "s")
    body = 'nodes:\n  a: {type: function, call: "steps:shout", with: {text: "{{ env.REGION }}"}}\n'
    assert run_of(project, body).nodes["a"].output == "EU"
    assert any("SECRET" in each for each in problems_of(project, body.replace("REGION", "SECRET")))
