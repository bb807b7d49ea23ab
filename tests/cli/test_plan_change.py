"""`flowengine plan --against git:REV`: what a change of a flow does to its worst case, and the action for CI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.require import require

Command = Callable[..., Any]
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PRICES = '[tool.flowengine.prices."openai/%s"]\ninput = %s\noutput = %s\n'
TEAS = """
flowengine: v1
name: teas
inputs: {teas: {type: array, default: [a, b]}}
agents: {w: {model: openai/ours, max_tokens: 100, max_retries: 0}}
nodes:
  each:
    type: map
    over: inputs.teas
    nodes: {describe: {agent: w, prompt: "Describe {{ item }}."}}
  sub: {type: subflow, flow: ./inner.yaml}
  gone: {agent: w, prompt: x}
  same: {agent: w, prompt: Say it in a line.}
"""
INNER = """
flowengine: v1
name: inner
nodes: {deep: {model: openai/ours, max_tokens: 50, max_retries: 0, prompt: x}}
"""
CHANGED = TEAS.replace("gone: {", "come: {").replace("over: inputs.teas", "over: inputs.teas + ['c|`d']")


def git(folder: Path, *words: str) -> None:
    require("git", "apt-get install git")
    who = ("-c", "user.name=us", "-c", "user.email=us@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def teas(folder: Path) -> Path:
    git(folder, "init", "-q", "-b", "main")
    (folder / "flowengine.toml").write_text(PRICES % ("ours", "1.0", "10.0"))
    (folder / "teas.yaml").write_text(TEAS)
    (folder / "inner.yaml").write_text(INNER)
    git(folder, "add", "teas.yaml", "inner.yaml", "flowengine.toml")
    git(folder, "commit", "-qm", "one")
    return folder


def test_a_flow_that_is_as_it_was_costs_what_it_cost(flowengine: Command, teas: Path) -> None:
    said = flowengine("plan", "teas.yaml", "--against", "git:main")
    assert (said.code, len(said.out.splitlines())) == (0, 1)
    assert said.out.endswith("tokens, as at git:main\n")


def test_each_node_is_told_with_the_change_that_is_the_cause(flowengine: Command, teas: Path) -> None:
    (teas / "teas.yaml").write_text(CHANGED)
    (teas / "inner.yaml").write_text(INNER.replace("max_tokens: 50", "max_tokens: 80"))
    found = json.loads(flowengine("plan", "teas.yaml", "--against", "git:HEAD", "--json").out)
    causes = {each["node"]: each["causes"] for each in found["nodes"]}
    assert causes["sub.deep"] == ["max_tokens: 50 → 80"]
    assert causes["each.describe"] == ["each.over: inputs.teas → inputs.teas + ['c|`d']"]
    assert causes["come"] == causes["gone"] == []
    ends = {each["node"]: (each["before"] is None, each["after"] is None) for each in found["nodes"]}
    assert (ends["come"], ends["gone"]) == ((True, False), (False, True))
    assert "same" not in ends
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])


def test_what_only_costs_more_elsewhere_is_said_so(flowengine: Command, teas: Path) -> None:
    (teas / "flowengine.toml").write_text(PRICES % ("ours", "1.0", "20.0"))
    said = flowengine("plan", "teas.yaml", "--against", "git:main")
    assert "its models' prices or bounds, or what it reads" in said.out
    assert "(+$" in said.out


def test_text_of_a_file_is_no_markdown(flowengine: Command, teas: Path) -> None:
    (teas / "teas.yaml").write_text(TEAS.replace("Say it in a line.", "Say it <b>in</b> a | ` line. $x$"))
    said = flowengine("plan", "teas.yaml", "--against", "git:main", "--markdown")
    assert "| `same` | \\$" in said.out
    assert "`prompt: Say it in a line. → Say it <b>in</b> a \\| ' line. $x$`" in said.out


def test_a_new_flow_is_compared_with_nothing(flowengine: Command, teas: Path) -> None:
    (teas / "more.yaml").write_text(TEAS)
    said = flowengine("plan", "more.yaml", "--against", "git:main")
    assert "git:main has no such flow" in said.out
    assert said.out.count("the node is new") == 4


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--against", "main"], "--against takes a revision, as in git:main; found 'main'"),
        (["--against", "git:nowhere"], "has no such revision in git"),
        (["--markdown"], "--markdown goes with --against, and not with --json"),
        (["--against", "git:main", "--risks"], "--risks follows from the file alone"),
    ],
)
def test_mistakes_are_told(flowengine: Command, teas: Path, options: list[str], told: str) -> None:
    said = flowengine("plan", "teas.yaml", *options)
    assert said.code == 2
    assert told in said.err


def test_the_page_shows_what_the_command_prints(flowengine: Command, folder: Path) -> None:
    page = (ROOT / "flowengine" / "docs" / "pull-requests.md").read_text("utf-8")
    old, new, _ = BLOCK.findall(page)
    git(folder, "init", "-q", "-b", "main")
    (folder / "reply.yaml").write_text(old)
    git(folder, "add", "reply.yaml")
    git(folder, "commit", "-qm", "one")
    (folder / "reply.yaml").write_text(new)
    said = flowengine("plan", "reply.yaml", "--against", "git:main")
    assert all(f"    {line}" in page for line in said.out.splitlines() if line)


@pytest.mark.long
def test_the_action_writes_the_summary_and_fails_where_it_is_told_to(teas: Path) -> None:
    (teas / "teas.yaml").write_text(
        CHANGED.replace("prompt: Say it in a line.", "prompt: Say it in as many as twelve long lines.")
    )
    action = yaml.safe_load((ROOT / ".github" / "actions" / "flow-cost" / "action.yml").read_text("utf-8"))
    [script] = [step["run"] for step in action["runs"]["steps"] if step.get("id") == "compare"]
    assert "${{" not in script
    given = {"FLOWS": "te*.yaml inner.yaml", "AGAINST": "main", "INPUTS": "", "DENY_RISKS": "true"}
    files = {name: str(teas / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **given, **files, "PATH": path}
    done = subprocess.run(["bash", "-c", script], cwd=teas, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = Path(files["GITHUB_STEP_SUMMARY"]).read_text("utf-8")
    assert summary.count("### `") == 2
    assert "prompt: Say it in a line. → Say it in as many as twelve long lines." in summary
    report = Path(files["GITHUB_OUTPUT"]).read_text("utf-8").strip().removeprefix("report=")
    assert Path(report).read_text("utf-8") == summary
    Path(report).unlink()
