"""`approve:` in flow files: which tools wait for a person, what a project adds to them, and how tests answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flowengine import Flow
from flowengine.flowfile.loader import check_file
from flowengine.journal.approvals import open_questions
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.scripted import ScriptedModel
from flowengine.testing.cases import run_case
from flowengine.testing.flowtest import load_flowtest
from flowengine.testing.model_overrides import with_models

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
CODE = """
from flowengine import tool

@tool(effect="external")
def refund(order: str, euros: float) -> str:
    return f"paid {euros}"

@tool(name="find")
def find_order(order: str) -> str:
    return order
"""


def write(folder: Path, agent: str, project: str = "") -> Path:
    (folder / "shop.py").write_text(CODE)
    allowed = json.dumps([str(sys.executable)])
    (folder / "flowengine.toml").write_text(f'allow_calls = ["shop"]\nallow_mcp = {allowed}\n{project}')
    file = folder / "flow.yaml"
    file.write_text(f"flowengine: v1\nname: shop\nnodes:\n  help:\n    prompt: Help.\n{agent}\n")
    return file


CRM = (
    f"    mcp_servers: [{{name: crm, command: {sys.executable}, args: [{SERVER}, plain], allow: [echo, structured]}}]\n"
)
TOOLS = "    tools: [shop:refund, shop:find_order]\n"


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (
            f"{TOOLS}    approve: [refnd]",
            "flow.yaml:7:15: FE525 node 'help': `approve` names 'refnd', and the agent has no such tool; "
            "did you mean 'refund'?",
        ),
        (f"{TOOLS}    approve: [find_order]", "flow.yaml:7:15: FE525 node 'help': `approve` names 'find_order', and"),
        (
            f"{CRM}    approve: [crn.echo]",
            "flow.yaml:7:15: FE525 node 'help': `approve` names the MCP server 'crn', which the agent does not have; "
            "did you mean 'crm'?",
        ),
        (
            f"{CRM}    approve: [crm_echo, crm.ecco]",
            "flow.yaml:7:25: FE525 node 'help': the MCP server 'crm' does not offer 'ecco': its `allow` has echo, "
            "structured; did you mean 'echo'?",
        ),
        ("    approve: [refund]", "flow.yaml:6:15: FE525 node 'help': `approve` names 'refund', and the agent has"),
        (f"{TOOLS}    approve: refund", "flow.yaml:7:14: FE401 node 'help': expected a list"),
        (f"{TOOLS}    aprove: [refund]", "flow.yaml:7:5: FE"),
    ],
)
def test_mistakes(tmp_path: Path, agent: str, expected: str):
    told = [str(each).replace(f"{tmp_path}/", "") for each in check_file(write(tmp_path, agent))]
    assert told[0].startswith(expected), told
    assert sum("FE525" in each for each in told) <= 1


@pytest.mark.parametrize(
    "agent",
    [
        f"{TOOLS}    approve: [refund, find]",
        f"{TOOLS}{CRM}    approve: [crm.echo, crm_structured, 'crm.*', 're*']",
        f"{CRM}    approve: ['*']",
    ],
)
def test_what_is_right(tmp_path: Path, agent: str):
    assert check_file(write(tmp_path, agent)) == []


def test_a_default_of_the_project_is_a_boolean(tmp_path: Path):
    [problem] = check_file(write(tmp_path, TOOLS, 'approve_external = "yes"'))
    assert "'approve_external' is true or false" in str(problem)


def asked_of(file: Path, *calls: ToolRequest) -> list[str]:
    model = ScriptedModel([*calls, "Done."])
    flow = with_models(Flow.from_yaml(file), lambda seat, settings: model)
    run = flow.run_sync(store=MemoryStore())
    assert run.status in ("waiting", "succeeded"), run.error
    return list(open_questions(run.events))


REFUND = ToolRequest("c", "refund", '{"order": "A-1", "euros": 5}')


def test_a_project_may_have_every_external_call_asked_about(tmp_path: Path):
    assert asked_of(write(tmp_path, TOOLS), REFUND) == []
    assert asked_of(write(tmp_path, TOOLS, "approve_external = true"), REFUND) == ["help:refund"]
    free = f"{TOOLS}    approve: []"  # A flow may be a stranger's: it cannot say that nobody is asked.
    assert asked_of(write(tmp_path, free, "approve_external = true"), REFUND) == ["help:refund"]


def test_a_servers_tool_waits_by_its_own_name(tmp_path: Path):
    echo = ToolRequest("c", "crm_echo", '{"text": "hi"}')
    assert asked_of(write(tmp_path, f"{CRM}    approve: [crm.echo]"), echo) == ["help:crm_echo"]
    assert asked_of(write(tmp_path, f"{CRM}    approve: ['*.structured']"), echo) == []


def test_a_flow_test_answers_a_call(tmp_path: Path):
    write(tmp_path, f"{TOOLS}    approve: [refund]")
    case = tmp_path / "shop.flowtest.yaml"
    case.write_text(
        """
flow: ./flow.yaml
cases:
  - name: a refund is changed
    answers: {help: [{tool: refund, arguments: {order: A-1, euros: 50}}, Done.]}
    fakes: {tools: {refund: paid}}
    approvals: {"help:refund": {choice: accept, form: {order: A-1, euros: 5}, by: ann}}
    expect: {status: succeeded, model_calls: 2}
  - name: a refund is refused
    answers: {help: [{tool: refund, arguments: {order: A-1, euros: 50}}, I may not.]}
    fakes: {tools: {refund: paid}}
    approvals: {"help:refund": refuse}
    expect: {status: succeeded, outputs: {help: I may not.}}
"""
    )
    test = load_flowtest(case)
    assert [run_case(test, number) for number in range(2)] == [[], []]


def test_the_file_says_who_alone_may_consent(tmp_path: Path):
    file = write(tmp_path, f"{TOOLS}    approve: [refund]\n    approvers: [ann]")
    flow = with_models(Flow.from_yaml(file), lambda seat, settings: ScriptedModel([REFUND, "Done."]))
    [asked] = open_questions(flow.run_sync(store=MemoryStore()).events).values()
    assert list(asked.approvers) == ["ann"]
