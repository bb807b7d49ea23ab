"""`[masking]` of a project file: what is masked in every export and span, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.cli.main import main
from flowengine.flowfile.project.project import project_of

FLOW = """\
flowengine: v1
name: staff
inputs: {who: {type: string}}
nodes:
  say: {model: offline, prompt: "About {{ inputs.who }}"}
"""


@pytest.mark.parametrize("command", [["export"], ["telemetry", "--content"], ["runs", "export", "--masked"]])
def test_what_the_project_adds_is_masked_in_every_export(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_STORE", "sqlite:///runs.db")
    Path("flowengine.toml").write_text("[masking.patterns]\nemployee = 'EMP-[0-9]{4}'\n")
    Path("staff.yaml").write_text(FLOW)
    assert main(["run", "staff.yaml", "-i", "who=EMP-1234", "--run-id", "r1"]) == 0
    capfd.readouterr()
    assert main([*command, "r1"]) == 0
    text = capfd.readouterr().out
    assert "EMP-1234" not in text
    assert "<EMPLOYEE:" in text or "&lt;EMPLOYEE:" in text or "\\u003cEMPLOYEE:" in text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[masking]\nrecognisers = []", "unknown key 'recognisers' of `masking`"),
        ("[masking]\nrecognizers = ['phones']", "no recognizer 'phones'; did you mean 'phone'"),
        ("[masking]\nrecognizers = 'presidio'", "is a list of names"),
        ("[masking.patterns]\nx = '('", "the pattern 'x' is no regular expression"),
        ("[masking.patterns]\nx = 'a*'", "matches the empty text"),
        ("[masking.patterns]\n'a b' = 'a'", "is no name of a pattern"),
    ],
)
def test_what_is_wrong_with_the_table_is_told(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text(text)
    _, problems = project_of(tmp_path)
    assert [problem in str(each) for each in problems] == [True]
