"""Runs the blocks of a page of the documentation, one after the other, in the working folder and in this process.

A block whose first line is `# file: NAME` is that file. Of commands each line is run; `# exit code N` behind one says
that it ends so. Other Python is run as it stands, other settings go into the project file.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

import flowengine
from flowengine.cli.main import main
from flowengine.flowfile.project.project import project_of

__all__ = ["BLOCK", "DOCS", "forget_models", "run_blocks"]

DOCS: Final = Path(flowengine.__file__).parent / "docs"
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIABLES: Final = ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")


def run_blocks(page: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> int:
    """How many commands were run."""
    ran = 0
    for kind, text in BLOCK.findall((DOCS / page).read_text("utf-8")):
        if kind == "toml" and not text.startswith("# file: "):
            check_settings(text)
        elif kind in ("yaml", "toml") or text.startswith("# file: "):
            first, _, rest = text.partition("\n")
            file = Path(first.removeprefix("# file: "))
            file.parent.mkdir(exist_ok=True)
            file.write_text(rest, "utf-8")
        elif kind == "python":
            exec(compile(text, page, "exec"), {})
        else:
            assert kind == "sh"
            for line in text.splitlines():
                ran += _run(line, monkeypatch, capfd)
    return ran


def check_settings(text: str) -> None:
    """What goes into the project file beside what is there already is accepted."""
    there = Path("flowengine.toml")
    folder = Path("with_settings")
    folder.mkdir(exist_ok=True)
    (folder / there.name).write_text(f"{text}\n{there.read_text('utf-8') if there.is_file() else ''}", "utf-8")
    assert project_of(folder)[1] == []


def forget_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no model and no store of this machine takes part."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


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
