"""The README is true: every block of it is run, every file and name in it exists."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from flowengine.cli.main import main
from flowengine.flowfile.loader import check_text
from flowengine.flowfile.project.project import find_project

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the sample flows, in which the blocks may leave files."""
    (tmp_path / "flows").symlink_to(ROOT / "flows")
    monkeypatch.chdir(tmp_path)
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_every_block_is_of_a_kind_that_is_run():
    assert {kind for kind, _ in BLOCKS} <= {"sh", "yaml", "python", "toml"}


@pytest.mark.parametrize("text", [text for text in blocks("yaml") if text.startswith("flow:")])
def test_a_flow_test_in_the_readme_passes(text: str, checkout: Path):
    (checkout / "flows").unlink()
    shutil.copytree(ROOT / "flows", checkout / "flows")
    (checkout / "flows" / "tests" / "readme.flowtest.yaml").write_text(text)
    assert main(["test", str(checkout / "flows" / "tests" / "readme.flowtest.yaml")]) == 0


@pytest.mark.parametrize("text", [text for text in blocks("yaml") if not text.startswith("flow:")])
def test_a_flow_in_the_readme_has_neither_errors_nor_warnings(text: str):
    assert [str(each) for each in check_text(text, "README.yaml")] == []


@pytest.mark.parametrize("text", blocks("python"))
def test_python_in_the_readme_runs(text: str, checkout: Path):
    exec(compile(text, "README.md", "exec"), {})


@pytest.mark.parametrize("text", blocks("toml"))
def test_a_project_file_in_the_readme_is_accepted(text: str, tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(text)
    project = find_project(tmp_path / "flow.yaml")
    assert project.allow_calls == ("research_tools",)
    assert set(project.providers) == {"openai"}


def test_commands_in_the_readme_run(checkout: Path, capfd: pytest.CaptureFixture[str]):
    """The installing ones are run by the continuous integration, from the README as they stand."""
    commands = [line for text in blocks("sh") for line in text.splitlines() if line.startswith("flowengine ")]
    assert len(commands) >= 8
    for command in commands:
        code = main(shlex.split(command)[1:])
        assert code == 0, (command, capfd.readouterr())
    assert (checkout / "run.svg").read_bytes().lstrip().startswith(b"<")


def test_the_answer_that_the_readme_shows_is_the_one_that_is_given(checkout: Path, capfd: pytest.CaptureFixture[str]):
    command, shown = re.findall(r"^```sh\n(flowengine run .*)\n```\n\n((?:    .*\n)+)", README, re.MULTILINE)[0]
    assert main(shlex.split(command)[1:]) == 0
    assert capfd.readouterr().out == dedent(shown)


def test_the_first_flow_of_the_readme_is_the_sample_without_its_descriptions():
    sample, shown = ((ROOT / "flows" / "hello.yaml").read_text(), blocks("yaml")[0])
    assert len(shown.splitlines()) == 10
    described = re.sub(r"^(#|description:).*\n|, description: [^}]*", "", sample, flags=re.MULTILINE)
    assert shown == described


def test_paths_in_the_readme_exist():
    folders = [each.name for each in (ROOT / "flowengine").iterdir() if (each / "__init__.py").exists()]
    named = re.findall(rf"`((?:{'|'.join(folders)}|visualize|flows)/[\w./]*)`", README)
    missing = [each for each in named if not any((root / each).exists() for root in (ROOT / "flowengine", ROOT))]
    assert missing == []
    assert {f"{each}/" for each in folders} - set(named) <= {"engine/"}
    assert [each for each in re.findall(r"\]\(([\w./-]+)\)", README) if not (ROOT / each).exists()] == []


def test_the_module_map_has_no_folder_that_is_gone():
    developers = README.partition("## For developers")[2]
    folders = re.findall(r"`(\w+)/`", developers)
    assert len(folders) > 15
    roots = (ROOT, ROOT / "flowengine", *(ROOT / "flowengine").iterdir())
    assert [each for each in folders if not any((root / each).is_dir() for root in roots)] == []
