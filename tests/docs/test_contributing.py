"""CONTRIBUTING.md is true: its Python runs, its commands run here or in CI, and its files exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
SETS_UP = COMMANDS[:3]


def runs_in_ci(command: str) -> bool:
    """Whether CI runs the command as a line of its own, or as the end of one of the README's commands."""
    script, readme = ((ROOT / name).read_text("utf-8").splitlines() for name in (".ci/run", "README.md"))
    return command in map(str.strip, script) or any(line.endswith(f"&& {command}") for line in readme)


RUN_HERE = [each for each in COMMANDS if each not in SETS_UP and not runs_in_ci(each)]


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "python"])
def test_its_python_runs(text: str):
    exec(compile(text, "CONTRIBUTING.md", "exec"), {"__name__": "contributing"})


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


def test_setting_up_installs_what_the_readme_installs():
    assert SETS_UP[:2] == ["python -m venv .venv", ". .venv/bin/activate"]
    installs = SETS_UP[2].replace("install -e ", "install ")
    assert any(line.startswith(f"{installs} &&") for line in (ROOT / "README.md").read_text("utf-8").splitlines())


def test_files_that_it_names_exist():
    named = re.findall(r"`((?:flowengine|visualize|tests|flows|\.ci)/[\w./]*)`", TEXT)
    named += [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in link]
    assert len(named) > 20
    assert [each for each in named if not (ROOT / each).exists()] == []
