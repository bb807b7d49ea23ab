"""Imports flows of Prompt flow that were written for these tests, and runs what came of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flowengine import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.scripted import ScriptedModel
from flowengine.runners.run import Run
from flowengine.testing.model_overrides import with_models

TICKETS = {
    "flow.dag.yaml": """\
inputs:
  text: {type: string, default: The lamp is broken}
  rows: {type: list, default: [{name: a}, {name: b}]}
outputs:
  kind: {type: string, reference: "${tidy.output.kind}"}
nodes:
- name: ask
  type: llm
  source: {type: code, path: ask.jinja2}
  inputs:
    deployment_name: gpt-test
    temperature: '0.1'
    text: ${inputs.text}
    rows: ${inputs.rows}
    tone: dry
  connection: my_connection
  api: chat
- name: tidy
  type: python
  source: {type: code, path: tidy.py}
  inputs: {answer: "${ask.output}", limit: 3}
""",
    "ask.jinja2": """\
# system:
Sort tickets. Be {{tone}}.

# user:
{% for row in rows %}
- {{ row.name }}
{% endfor %}
Ticket: {{text}}
""",
    "tidy.py": """\
from promptflow.core import tool


@tool
def tidy(answer: str, limit: int):
    return {"kind": answer.strip()[:limit]}
""",
}


def run(
    folder: Path, name: str, inputs: dict[str, Any], answers: dict[str, Any]
) -> tuple[Run, dict[str, ScriptedModel]]:
    models = {node: ScriptedModel(given) for node, given in answers.items()}
    flow = with_models(Flow.from_yaml(folder / f"{name}.yaml"), lambda slot, _: models[slot.node])
    return flow.run_sync(inputs, store=MemoryStore()), models


def test_a_flow_asks_what_prompt_flow_asked_and_calls_the_function_that_was_carried_along(import_files) -> None:
    project, written, folder = import_files(TICKETS)
    assert not written.problems
    assert project.ledger.count("lost") == 0
    done, models = run(folder, "source", {"text": "It smells"}, {"ask": [" lamp"]})
    assert done.outputs == {"kind": "lam"}
    [request] = models["ask"].requests
    assert [(each.role, each.content) for each in request.messages] == [
        ("system", "Sort tickets. Be dry."),
        ("user", "User input: - a\n- b\nTicket: It smells"),
    ]
    assert request.temperature == 0.1
