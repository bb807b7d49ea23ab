"""What agents of a flow draw on: `context`, `contexts` and `context_budget` in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine.agents.skills.sandbox import sandbox
from flowengine.core.records import ModelCall, ProviderFailed, Receipt, ToolCall
from flowengine.engine.events import NodeRecorded
from flowengine.errors import FlowChangedError, FlowError
from flowengine.flow import Flow
from flowengine.flowfile.loader import check_file
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.model_overrides import with_models

HEAD = "flowengine: v1\nname: sample\ninputs: {message: {type: string}}\nnodes:\n"

CODE = """
from pydantic import BaseModel
from flowengine.agents.typed_contexts.typed import TypedContext


class Guest(BaseModel):
    name: str = "Ann"


class GuestContext(TypedContext[Guest]):
    id = "guest"
    description = "Who is here"
    data_schema = Guest


guest = GuestContext(Guest(name="Ben"))
NUMBER = 3


def stock(query, unit):
    return {"tea": f"12 {unit}", "query": query}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with knowledge and code, and a file beside it that is none of its."""
    folder = tmp_path / "project"
    (folder / "knowledge").mkdir(parents=True)
    (folder / "knowledge" / "policies.md").write_text("Refunds within 30 days.")
    (folder / "shop.py").write_text(CODE)
    (folder / "flowengine.toml").write_text('allow_calls = ["shop"]')
    (tmp_path / "secret.md").write_text("secret")
    return folder


def written(project: Path, nodes: str) -> Path:
    path = project / "sample.yaml"
    path.write_text(HEAD + nodes)
    return path


def run_of(project: Path, nodes: str, message: str = "Hi") -> Run:
    return Flow.from_yaml(written(project, nodes), model="offline").run_sync({"message": message}).raise_for_status()


def asked(run: Run, node: str = "a") -> str:
    """The last message of a node's first call."""
    calls = [each.record for each in run.events if isinstance(each, NodeRecorded) and each.node == node]
    return next(each for each in calls if isinstance(each, ModelCall)).messages[-1]["content"]


def problems(project: Path, nodes: str) -> list[str]:
    path = written(project, nodes)
    return [str(each).removeprefix(f"{path}:") for each in check_file(path)]


def test_the_providers_of_a_node_bring_its_context_in_the_order_of_the_file(project: Path):
    run = run_of(
        project,
        """
  a:
    prompt: "{{ inputs.message }}"
    context:
      - custom_data: {data_source: "shop:stock", config: {unit: kg}}
      - fixed_file: {file_path: knowledge/policies.md, description: Policies}
      - {type: conversation_history, max_items: 3}
""",
    )
    assert asked(run) == ("Context:\ntea: 12 kg\n\nquery: Hi\n\nPolicies:\nRefunds within 30 days.\n\nUser input: Hi")


def test_nodes_share_the_providers_of_their_agent_and_each_has_its_own(project: Path):
    run = run_of(
        project,
        """
  a: {agent: writer, prompt: First.}
  b: {agent: writer, prompt: Second., needs: [a]}
  c: {agent: writer, prompt: Third., needs: [b], context: []}
agents:
  writer: {context: [conversation]}
""",
    )
    assert "Context" not in asked(run, "a")
    assert asked(run, "b").startswith("Context:\nUser: First.\nAssistant: ")
    assert asked(run, "c") == "User input: Third."


def test_typed_contexts_are_objects_or_classes_of_the_projects_code(project: Path):
    run = run_of(project, '  a: {prompt: x, contexts: ["shop:guest"]}')
    assert asked(run) == 'Context:\nWho is here\n{"name":"Ben"}\n\nUser input: x'
    run = run_of(project, '  a: {prompt: x, contexts: ["shop:GuestContext"]}')
    assert '{"name":"Ann"}' in asked(run)


@pytest.mark.parametrize("is_allowed", [False, True])
def test_only_the_project_file_lets_scripts_run_without_a_sandbox(
    project: Path, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    skill = project / "skills" / "refunds"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: refunds\ndescription: How to refund.\n---\nRun it.\n")
    (skill / "count.py").write_text("print(6 * 7)")
    if is_allowed:
        (project / "flowengine.toml").write_text("allow_unconfined_scripts = true")
    monkeypatch.setattr(sandbox, "verdict", lambda root: sandbox.Verdict(False, "there is none"))
    wish = ToolRequest("1", "run_skill_script", json.dumps({"name": "refunds", "path": "count.py"}))
    flow = Flow.from_yaml(written(project, "  a: {prompt: x, skills: [skills]}"))
    flow = with_models(flow, lambda seat, settings: ScriptedModel([Reply("", (wish,)), "done"]))
    records = [each.record for each in flow.run_sync({"message": "Hi"}).events if isinstance(each, NodeRecorded)]
    *_, call = [each for each in records if isinstance(each, ToolCall)]
    assert ("42" in call.result) is is_allowed
    assert ("there is none" in call.result) is not is_allowed


def test_folders_of_skills_are_below_the_projects_root(project: Path):
    skill = project / "skills" / "refunds"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: refunds\ndescription: How to refund.\n---\nRefund at once.\n")
    nodes = "  a: {prompt: x, skills: [skills]}\n  b: {prompt: x, skills: [skills], needs: [a]}"
    run = run_of(project, nodes)
    calls = [each.record for each in run.events if isinstance(each, NodeRecorded)]
    call = next(each for each in calls if isinstance(each, ModelCall))
    assert "- refunds: How to refund." in call.messages[0]["content"]


def test_memory_may_depend_on_the_runs_inputs(project: Path):
    (project / "flowengine.toml").write_text('[memory]\nstore = "memory.db"\nscope = "channel"\nthreshold = 0.1')
    nodes = '  a: {prompt: "My teapot is green", memory: {scope_id: "{{ inputs.message }}"}}'
    assert "Context" not in asked(run_of(project, nodes, "C1"))
    assert "User: My teapot is green" in asked(run_of(project, nodes, "C1"))
    assert "Context" not in asked(run_of(project, nodes, "C2"))
    assert (project / "memory.db").is_file()


def test_memory_of_nobody_is_refused(project: Path):
    nodes = """  a: {prompt: x, memory: {store: m.db, scope: channel, scope_id: "{{ {'id': none}.id }}"}}"""
    failure = Flow.from_yaml(written(project, nodes), model="offline").run_sync({"message": "Hi"}).error
    assert "`scope_id` of the memory gives null" in str(failure)


def test_checking_a_flow_opens_no_memory(project: Path):
    assert problems(project, "  a: {prompt: '{{ inputs.message }}', memory: {store: sub/memory.db}}") == []
    assert not (project / "sub").exists()


def test_a_budget_is_kept(project: Path):
    (project / "knowledge" / "policies.md").write_text("Refunds within 30 days. " * 100)
    run = run_of(
        project, "  a: {prompt: x, context: [fixed_file: {file_path: knowledge/policies.md}], context_budget: 60}"
    )
    (receipt,) = [each.record for each in run.events if isinstance(each, NodeRecorded) and type(each.record) is Receipt]
    assert receipt.budget == 60
    assert receipt.fragments[0]["state"] == "shortened"
    assert asked(run).endswith("days. […]\n\nUser input: x")


def test_an_agent_with_templates_has_its_providers_made_once(project: Path):
    nodes = '  a: {instructions: "Say {{ inputs.message }}", prompt: x, context: [fixed_file: {file_path: shop.py}]}'
    flow = Flow.from_yaml(written(project, nodes), model="offline")
    (project / "shop.py").unlink()
    run = flow.run_sync({"message": "Hi"}).raise_for_status()
    records = [each.record for each in run.events if isinstance(each, NodeRecorded)]
    assert [each.error for each in records if isinstance(each, ProviderFailed)] == [
        "MissingFileError: the file 'shop.py' cannot be read: No such file or directory"
    ]
    assert asked(run) == "User input: x"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            "  a: {prompt: x, context: [fixed_file: {file_path: ../secret.md}]}",
            "5:52: FE503 node 'a': context provider 'fixed_file': the path '../secret.md' leaves the project's root",
        ),
        (
            "  a: {prompt: x, context: [fixed_file: {file_path: /etc/passwd}]}",
            "5:52: FE503 node 'a': context provider 'fixed_file': the path '/etc/passwd' leaves the project's root",
        ),
        (
            "  a: {prompt: x, context: [fixed_file: {file_path: knowledge}]}",
            "5:52: FE510 node 'a': context provider 'fixed_file': the file 'knowledge' cannot be read: Is a directory",
        ),
        (
            "  a: {prompt: x, context: [custom_data: {data_source: 'os:getcwd'}]}",
            "5:28: FE504 node 'a': the module 'os' is not allowed",
        ),
        (
            "  a: {prompt: x, context: [custom_data: {data_source: 'shop:stok'}]}",
            "5:28: FE506 node 'a': the module 'shop' defines no 'stok'; did you mean 'stock'?",
        ),
        (
            "  a: {prompt: x, contexts: ['shop:gest']}",
            "5:29: FE506 node 'a': the module 'shop' defines no 'gest'; did you mean 'guest'?",
        ),
        (
            "  a: {prompt: x, context: [fixed_file: {file_path: '{{ inputs.message }}'}]}",
            "5:53: FE310 node 'a': 'file_path' is not rendered, so it takes no template",
        ),
        (
            "  a: {prompt: x, memory: {store: ../m.db}}",
            "5:34: FE503 node 'a': the path '../m.db' leaves the project's root",
        ),
        ("  a: {prompt: x, memory: {scope: thread, scope_id: x}}", "5:52: FE412 node 'a': memory: "),
        ("  a: {prompt: x, memory: {scop: thread}}", "5:27: FE201 node 'a': unknown key 'scop'; did you mean"),
        ("  a: {prompt: x, memory: {scope_id: '{{ inputs.mesage }}'}}", "5:41: FE303 node 'a': unknown input 'mesage'"),
        ("  a: {prompt: x, skills: [nowhere]}", "5:27: FE510 node 'a': there is no folder 'nowhere'"),
        ("  a: {prompt: x, skills: [../..]}", "5:27: FE503 node 'a': the path '../..' leaves the project's root"),
        ("  a: {prompt: x, context: [3]}", "5:28: FE401 node 'a': expected a provider such as {conversation:"),
        ("  a: {prompt: x, context: [{}]}", "5:28: FE401 node 'a': expected a provider such as {conversation:"),
        ("  a: {prompt: x, context: {conversation: {}}}", "5:27: FE401 node 'a': expected a list, found a map"),
        ("  a: {prompt: x, context_budget: 0}", "5:34: FE403"),
        (
            "  a: {type: evaluation, criteria: {c: x}, target: x, context: [conversation]}",
            "5:54: FE201 node 'a': unknown key 'context'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place_before_anything_runs(project: Path, nodes: str, expected: str):
    found = problems(project, nodes)
    assert any(each.startswith(expected) for each in found), found


def test_what_is_no_typed_context_is_told_when_the_flow_is_built(project: Path):
    (project / "shop.py").write_text((project / "shop.py").read_text() + "\nOTHER = int('3')\n")
    path = written(project, "  a: {prompt: x, contexts: ['shop:OTHER']}")
    with pytest.raises(FlowError, match="FE508 node 'a': 'shop:OTHER' is no typed context: int 3"):
        Flow.from_yaml(path)


async def test_a_run_is_not_resumed_once_what_its_node_draws_on_has_changed(project: Path):
    store = f"sqlite:///{project / 'runs.db'}"
    flow = Flow.from_yaml(written(project, "  a: {prompt: x, context: [conversation]}"), model="offline")
    run = await flow.run({"message": "Hi"}, store=store)
    changed = Flow.from_yaml(written(project, "  a: {prompt: x}"), model="offline")
    with pytest.raises(FlowChangedError, match="changed nodes: a"):
        await changed.resume(run.id, store=store)


def test_runs_of_one_loaded_flow_share_nothing(project: Path):
    nodes = """
  a: {prompt: '{{ inputs.message }}', context: [conversation]}
  b: {prompt: y, needs: [a], context: [conversation]}
"""
    flow = Flow.from_yaml(written(project, nodes), model="offline")
    for message in ("one", "two"):
        run = flow.run_sync({"message": message})
        assert asked(run, "b").startswith(f"Context:\nUser: {message}\n")


def test_history_size_shows_earlier_exchanges_unless_there_is_a_conversation_of_its_own(project: Path):
    run = run_of(
        project,
        """
  a: {prompt: First., history_size: 5}
  b: {prompt: Second., history_size: 5, needs: [a]}
  c: {prompt: Third., history_size: 1, needs: [b]}
  d: {prompt: Fourth., history_size: 5, context: [{conversation: {max_items: 1}}], needs: [c]}
  e: {prompt: Fifth., needs: [d]}
""",
    )
    told = {
        node: [line.removeprefix("User: ") for line in asked(run, node).splitlines() if line.startswith("User: ")]
        for node in "abcde"
    }
    assert told == {"a": [], "b": ["First."], "c": ["Second."], "d": ["Third."], "e": []}
