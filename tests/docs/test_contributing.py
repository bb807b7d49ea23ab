"""CONTRIBUTING.md is true: its Python runs, its commands run here or in CI, and its files exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns

import pytest
import yaml

from tests.support.require import require_package

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
SETS_UP = COMMANDS[:3]
RUN = "".join((ROOT / ".ci" / name).read_text("utf-8") for name in ("run", "programs"))


def runs_in_ci(command: str) -> bool:
    """Whether CI runs the command as a line of its own, or as the end of one of the README's commands."""
    lines = [
        line.strip() for name in (".ci/run", ".ci/checks") for line in (ROOT / name).read_text("utf-8").splitlines()
    ]
    readme = (ROOT / "README.md").read_text("utf-8").splitlines()
    lines += [line.removesuffix(" --dearest 10") for line in lines]
    return command in lines or any(line.endswith(f"&& {command}") for line in readme)


RUN_HERE = [each for each in COMMANDS if each not in SETS_UP and not runs_in_ci(each)]


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "python"])
def test_its_python_runs(text: str):
    exec(compile(text, "CONTRIBUTING.md", "exec"), {"__name__": "contributing"})


@pytest.mark.long
def test_its_node_kind_passes_the_checks_where_it_says_that_a_kind_stands(tmp_path: Path):
    for tool in ("importlinter", "pyright", "ruff"):
        require_package(tool, "checks")
    (kind,) = [text for language, text in BLOCKS if language == "python" and "NodeKind(" in text]
    for name in ("flowengine", "visualize"):
        copytree(ROOT / name, tmp_path / name, ignore=ignore_patterns("__pycache__", "images"))
    copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    file = tmp_path / "flowengine" / "flowfile" / "kinds" / "shout_kind.py"
    file.write_text(kind, "utf-8")
    here = {**os.environ, "PYTHONPATH": str(tmp_path)}
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    for command in (["-c", lint, "--no-cache"], ["-m", "pyright", str(file)], ["-m", "ruff", "check", str(file)]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=here, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", RUN_HERE)
def test_a_command_that_ci_does_not_run_runs(command: str):
    program, *arguments = shlex.split(command)
    assert program == "python"
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_most_commands_are_run_by_ci():
    assert {kind for kind, _ in BLOCKS} == {"sh", "python", "toml"}
    assert len(RUN_HERE) == 3
    assert {"pyright", "ruff check .", "python -m pytest -n auto"} <= set(COMMANDS) - set(RUN_HERE)


def test_the_entry_points_that_it_names_are_read():
    (text,) = [text for kind, text in BLOCKS if kind == "toml"]
    code = "".join(path.read_text("utf-8") for path in (ROOT / "flowengine").rglob("*.py"))
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert [group for group in groups if f'"{group}"' not in code] == []
    assert set(re.findall(r"group `(flowengine\.\w+)`", TEXT)) <= set(groups)


def test_setting_up_installs_what_ci_installs():
    assert SETS_UP[:2] == ["python -m venv .venv", ". .venv/bin/activate"]
    _, _, installs = SETS_UP[2].partition("install -e ")
    assert installs.startswith("'.[dev]' ")
    assert installs in RUN


def test_files_that_it_names_exist():
    named = re.findall(r"`((?:flowengine|visualize|tests|flows|\.ci)/[\w./]*)`", TEXT)
    named += [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in link]
    assert len(named) > 20
    assert [each for each in named if not (ROOT / each).exists()] == []


def test_a_version_of_the_changelog_has_at_most_sixty_lines():
    _, *versions = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")
    lines = {version.partition("]")[0]: [line for line in version.splitlines() if line] for version in versions}
    assert len(lines) > 2
    assert {version: len(found) for version, found in lines.items() if len(found) > 60} == {}


def test_pull_requests_run_what_ci_runs_on_every_python_that_is_promised():
    file = (ROOT / ".github" / "workflows" / "pull-request.yml").read_text("utf-8")
    workflow = yaml.safe_load(file)
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in file  # It would hand a stranger's change the keys of the repository.
    for name, job in workflow["jobs"].items():
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands[0] == "python -m pip install '.[dev]' -c tests/constraints.txt"
        parts = [shlex.split(command)[0] for command in commands if command.startswith(".ci/")]
        assert [part for part in parts if not os.access(ROOT / part, os.X_OK) or part not in RUN] == [], name
        assert [each for each in commands[1:] if not each.startswith(".ci/") and not runs_in_ci(each)] == [], name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert set(promised) <= set(workflow["jobs"]["tests"]["strategy"]["matrix"]["python"])
