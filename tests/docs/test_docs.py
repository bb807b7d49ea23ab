"""The documentation is true: the reference is that of the models, and every block of the tutorial runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import flowengine
from flowengine.cli.main import main
from flowengine.spec.reference import reference
from tests.support.postgres import empty_database

DOCS = Path(flowengine.__file__).parent / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_reference_is_that_of_the_models():
    assert (DOCS / "reference.md").read_text("utf-8") == reference(), "run python -m flowengine.spec.reference"


def test_every_node_type_and_key_is_in_the_reference_with_a_description():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.rstrip(" |").endswith(("`", "|"))] == []


def test_the_tutorial_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert _run_blocks("tutorial.md", monkeypatch, capfd) >= 14


def test_the_page_of_the_queue_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FLOWENGINE_STORE", empty_database())
    monkeypatch.chdir(tmp_path)
    assert _run_blocks("queue.md", monkeypatch, capfd) >= 7


def _run_blocks(page: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> int:
    """How many commands were run."""
    ran = 0
    for kind, text in BLOCK.findall((DOCS / page).read_text("utf-8")):
        if kind == "yaml":
            first, _, rest = text.partition("\n")
            Path(first.removeprefix("# file: ")).write_text(rest, "utf-8")
        elif kind == "python":
            exec(compile(text, page, "exec"), {})
        else:
            assert kind == "sh"
            for line in text.splitlines():
                ran += _run(line, monkeypatch, capfd)
    return ran


def _run(line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> int:
    command, _, remark = line.partition("  # exit code ")
    words = shlex.split(command)
    if words[0] == "mkdir":
        Path(words[1]).mkdir()
        return 0
    if words[0] == "cd":
        monkeypatch.chdir(words[1])
        return 0
    assert words[0] == "flowengine"
    code = main(words[1:])
    assert code == int(remark or 0), (line, capfd.readouterr())
    return 1
