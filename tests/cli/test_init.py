"""`flowengine init`: a project that is valid and tested from the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowengine.cli.main import main
from flowengine.flowfile.project.project import _EXPECTED

FLOWS = sorted((Path(__file__).parents[2] / "flows").glob("*.yaml"))


@pytest.fixture(autouse=True)
def no_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", [path.stem for path in FLOWS if path.stem != "wider_search"])
def test_every_example_is_a_project_that_validates(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert main(["init", str(tmp_path / "new"), "--example", name]) == 0
    monkeypatch.chdir(tmp_path / "new")
    first = Path(f"{name}.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=.flowengine/flow-v1.schema.json"
    assert Path(".flowengine/flow-v1.schema.json").is_file()
    assert main(["validate", *map(str, Path().glob("*.yaml"))]) == 0


def test_the_new_project_is_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert main(["init", str(tmp_path), "--example", "release_approval"]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["test"]) == 0


def test_nothing_that_is_there_is_touched(tmp_path: Path):
    (tmp_path / "hello.yaml").write_text("mine")
    assert main(["init", str(tmp_path)]) == 0
    assert (tmp_path / "hello.yaml").read_text() == "mine"


def test_an_unknown_example_is_named_with_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["init", str(tmp_path), "--example", "helo"]) == 2
    assert "there is no example 'helo'; did you mean 'hello'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_examples_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["init", "--list"]) == 0
    assert "draft_until_good" in capsys.readouterr().out.split()


def test_what_could_be_called_before_can_be_called_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A project file allows only what it lists; without one every module beside the flow may be called."""
    monkeypatch.chdir(tmp_path)
    Path("tools.py").write_text("def f() -> int:\n    return 1\n")
    Path("parts").mkdir()
    Path("parts/__init__.py").write_text("def g() -> int:\n    return 1\n")
    calls = "  a: {type: function, call: 'tools:f'}\n  b: {type: function, call: 'parts:g'}\n"
    Path("mine.yaml").write_text(f"flowengine: v1\nname: mine\nnodes:\n{calls}")
    assert main(["validate", "mine.yaml"]) == 0
    assert main(["init"]) == 0
    assert main(["validate", "mine.yaml"]) == 0


def test_the_new_project_file_points_to_a_list_of_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    [code] = re.findall(r"flowengine explain (FE\d+)", Path("flowengine.toml").read_text())
    capsys.readouterr()
    assert main(["explain", code]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert [key for key in _EXPECTED if f"`{key}`" not in told] == []
