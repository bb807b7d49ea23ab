"""Texts of agents that stand in files of their own: read, told with their own places, refused, taken along."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import FlowError
from flowengine.flowfile.compile.compiler import load_plan
from flowengine.flowfile.loader import check_file, is_flow_file, load_flow
from flowengine.flowfile.project.project import find_project
from flowengine.flowfile.run_bundle import unpack_bundle
from flowengine.flowfile.schema.editor_schema import json_schema

HEAD = "flowengine: v1\nname: f\ninputs: {message: {type: string}}\nnodes:\n"
NODE = HEAD + "  a: {prompt: {file: prompts/a.md}, model: offline}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one prompt."""
    root = tmp_path / "project"
    (root / "prompts").mkdir(parents=True)
    (root / "flowengine.toml").touch()
    (root / "prompts" / "a.md").write_bytes(b"Dear you,\r\n{{ inputs.message }}\r\n")
    return root


def told(root: Path, text: str) -> list[str]:
    (root / "flow.yaml").write_text(text)
    return [str(each).replace(f"{root}{os.sep}", "") for each in check_file(root / "flow.yaml")]


def test_the_text_of_a_file_is_the_prompt(root: Path) -> None:
    (root / "flow.yaml").write_text(NODE)
    spec = load_flow(root / "flow.yaml")
    inline = load_flow(
        root / "flow.yaml", text=HEAD + '  a: {prompt: "Dear you,\\n{{ inputs.message }}", model: offline}'
    )
    assert spec.nodes == inline.nodes
    assert is_flow_file(root / "flow.yaml")


@pytest.mark.parametrize(
    "node",
    [
        "prompt: x, instructions: FILE",
        "prompt: x, system_message: FILE",
        "prompt: x, agent: {instructions: FILE}",
        "prompt: x, improve: {instructions: FILE}",
        "prompt: x, evaluate: {instructions: FILE}",
        "prompt: x, routing: {instruction: FILE, routes: {l: {}}}",
        "type: routing, target: x, instruction: FILE, routes: {l: {}}",
        "type: evaluation, target: x, instructions: FILE",
        "type: map, over: '[1]', nodes: {b: {prompt: FILE}}",
    ],
)
def test_every_text_of_an_agent_may_stand_in_a_file(root: Path, node: str) -> None:
    text = HEAD + f"  a: {{{node}}}\n"
    (root / "prompts" / "tone.md").write_text("Dear you,")
    assert told(root, text.replace("FILE", "{file: prompts/a.md}")) == []
    [found] = [each for each in told(root, text.replace("FILE", "{file: prompts/tune.md}")) if "FE9" not in each]
    assert "FE229 node 'a" in found
    assert "there is no file 'prompts/tune.md'; did you mean 'tone.md'?" in found
    [found] = [each for each in told(root, text.replace("FILE", "{file: prompt}")) if "FE9" not in each]
    assert found.endswith("there is no file 'prompt'")  # The folder `prompts` is none.


def test_shared_agents_and_defaults_may_name_files(root: Path) -> None:
    parts = (
        "agents: {one: {instructions: {file: prompts/a.md}}}\ndefaults: {agent: {instructions: {file: prompts/a.md}}}\n"
    )
    assert told(root, HEAD.replace("nodes:", parts + "nodes:") + "  a: {prompt: x, agent: one}\n  b: {prompt: x}") == []


def test_a_mistake_in_the_file_is_told_with_its_name_and_place(root: Path) -> None:
    (root / "prompts" / "a.md").write_text("Dear you,\n  {{ inputs.mesage }}\n")
    assert told(root, NODE + "  b: {prompt: '{{ x }}'}") == [
        "flow.yaml:6:19: FE302 node 'b': unknown name 'x'",
        "prompts/a.md:2:6: FE303 node 'a': unknown input 'mesage'; did you mean 'message'?",
    ]
    (root / "prompts" / "a.md").write_text("One\ntwo {% if %}")
    assert told(root, NODE)[0].startswith("prompts/a.md:2:11: FE301 node 'a'")


@pytest.mark.parametrize("name", ["../other.md", "/etc/passwd", ".env", "prompts/key.pem", "link.md", "pipe.md"])
def test_a_file_that_a_flow_may_not_name(root: Path, name: str) -> None:
    for secret in (root.parent / "other.md", root / ".env", root / "prompts" / "key.pem"):
        secret.write_text("secret")
    (root / "link.md").symlink_to(root / ".env")
    os.mkfifo(root / "pipe.md")
    [found] = told(root, NODE.replace("prompts/a.md", name))
    assert "flow.yaml:5:22: FE503 node 'a'" in found


def test_a_file_that_holds_no_text(root: Path) -> None:
    for data, code in ((b"\xff", "FE103"), (b"a\x00b", "FE114"), (b"x" * 1_000_001, "FE102")):
        (root / "prompts" / "a.md").write_bytes(data)
        [found] = told(root, NODE)
        assert f"prompts/a.md:1:{2 if code == 'FE114' else 1}: {code}" in found
    assert told(root, NODE.replace("prompts/a.md", "prompts")) == [
        "flow.yaml:5:22: FE229 node 'a': 'prompts' is no file"
    ]


def test_texts_of_files_are_bounded_together(root: Path) -> None:
    (root / "prompts" / "a.md").write_text("x" * 600_000)
    [found] = told(root, NODE + "  b: {prompt: {file: prompts/a.md}}")
    assert "flow.yaml:6:15: FE102 node 'b': the texts that the flow takes from files have more than" in found


def test_a_map_that_is_no_file_is_refused(root: Path) -> None:
    assert told(root, HEAD + "  a: {prompt: {fiel: a.md}}") == [
        "flow.yaml:5:15: FE401 node 'a': expected a text, or {file: path} alone, found a map"
    ]
    other = told(root, HEAD + "  a: {type: function, call: 'm:f', with: {prompt: {file: a.md}}}")
    assert [each.split()[1] for each in other] == ["FE504"], "an argument's value is none of an agent's texts"


def test_the_text_goes_along_with_the_run_and_counts_for_the_node(root: Path, tmp_path: Path) -> None:
    inner = NODE.replace("name: f", "name: inner").replace("prompts/a.md", "../prompts/b.md")
    (root / "parts").mkdir()
    (root / "parts" / "inner.yaml").write_text(inner)
    (root / "prompts" / "b.md").write_text("{{ inputs.message }}!")
    text = NODE + "  s: {type: subflow, flow: parts/inner.yaml, with: {message: x}}\n"
    (root / "flow.yaml").write_text(text)
    here = load_plan(root / "flow.yaml")
    bag: Any = json.loads(json.dumps(here.baggage))
    assert set(bag["files"]) == {"prompts/a.md", "prompts/b.md", "parts/inner.yaml"}

    away = tmp_path / "away"
    (away / "prompts").mkdir(parents=True)
    (away / "prompts" / "a.md").write_text("Not this one.")
    path, project, files = unpack_bundle(bag, away / "flow.yaml", find_project(away))
    assert load_plan(path, text=text, project=project, files=files).fingerprints == here.fingerprints
    del bag["files"]["prompts/a.md"]
    path, project, files = unpack_bundle(bag, away / "flow.yaml", find_project(away))
    with pytest.raises(FlowError, match=r"FE229 node 'a': the run has brought no file 'prompts/a\.md'"):
        load_plan(path, text=text, project=project, files=files)

    (root / "prompts" / "a.md").write_text("{{ inputs.message }}, please.")
    then, now = here.fingerprints, load_plan(root / "flow.yaml").fingerprints
    assert {name for name in now if now[name] != then[name]} == {"a"}


def test_editors_are_told_of_files() -> None:
    told = json.dumps(json_schema())
    assert '"properties": {"file": {"type": "string"}}' in told
