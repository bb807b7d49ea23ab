"""`flowengine init`: a project that is valid and tested from the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flowengine
from flowengine.cli.main import COMMANDS, main
from flowengine.core.node_traits import TRAITS
from flowengine.flowfile.checks.codes import CODES
from flowengine.flowfile.compile.scope import DESCRIBED
from flowengine.flowfile.project.project import _EXPECTED
from tests.flows.test_samples import PATTERNS

FLOWS = sorted((Path(__file__).parents[2] / "flows").glob("*.yaml"))


@pytest.fixture(autouse=True)
def no_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=pytest.mark.long if path.stem in PATTERNS else ())
        for path in FLOWS
        if path.stem != "wider_search"
    ],
)
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


def test_a_file_is_no_folder_for_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "notes.txt").touch()
    assert main(["init", str(tmp_path / "notes.txt")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'notes.txt'} is no folder\n"


def test_what_would_not_be_read_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "pyproject.toml").write_text("[tool.flowengine]\nallow_calls = []\n")
    (tmp_path / "hello.yaml").symlink_to("nowhere.yaml")
    assert main(["init", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert f"wrote no {tmp_path / 'flowengine.toml'}: the project file is [tool.flowengine] of" in told
    assert f"left {tmp_path / 'hello.yaml'} as it is, a link that leads to nothing" in told
    assert not (tmp_path / "flowengine.toml").exists()
    assert main(["init", ""]) == 2
    assert "FOLDER is empty" in capsys.readouterr().err


def test_a_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["runs", "list"]) == 2
    assert capsys.readouterr().err == (
        "error: the folder that this command was started in is gone; go to another one\n"
    )


def test_what_to_do_next_can_be_typed_as_it_stands(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    assert capsys.readouterr().err.endswith("next: flowengine validate hello.yaml; flowengine test\n")
    assert main(["init", "my flows"]) == 0
    assert "next: cd 'my flows'; flowengine validate hello.yaml" in capsys.readouterr().err


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


# --- `--agents`

SKILL = Path(".agents/skills/flowengine-flows")


@pytest.fixture(scope="module")
def for_agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("agents")
    assert main(["init", str(root), "--agents"]) == 0
    return root


def test_the_file_for_agents_has_what_the_code_has_and_can_be_read(for_agents: Path):
    text = (for_agents / "AGENTS.md").read_text("utf-8")
    assert len(text.encode()) <= 32 * 1024  # What some agents read of it.
    wanted = [*(f"- {code} {each.title}: " for code, each in CODES.items()), *(f"| `{each}` |" for each in TRAITS)]
    assert [each for each in (*wanted, *(f"| `{each}` |" for each in DESCRIBED)) if each not in text] == []
    assert [each for each in COMMANDS if not re.search(rf"^\| `{each}[ `]", text, re.MULTILINE)] == []
    rules = re.findall(r"^(\d+)\. \*\*", text.partition("## Rules")[2], re.MULTILINE)
    assert [int(each) for each in rules] == list(range(1, len(rules) + 1))
    assert len(rules) > 20
    assert "](" not in text


def test_the_skill_is_faultless_and_holds_the_reference(for_agents: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["skills", "check", "--strict", str(for_agents / ".agents/skills")]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "1 skills: 0 errors and 0 warnings" in told.err
    folder = for_agents / SKILL
    assert len((folder / "SKILL.md").read_text("utf-8").encode()) <= 8 * 1024
    pages = {each.name: each.read_text("utf-8") for each in (folder / "references").iterdir()}
    assert sorted(pages) == ["commands.md", "errors.md", "format.md", "rules.md", "tests.md"]
    docs = Path(flowengine.__file__).parent / "docs"
    rows = re.findall(r"^\| `\w+` \|", (docs / "reference.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 100
    assert pages["format.md"].count("\n| `") >= len(rows)
    assert "### `conversation`" in pages["format.md"]
    links = {link for text in pages.values() for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link}
    assert links <= pages.keys()


def test_the_flow_and_the_test_that_agents_are_shown_hold(for_agents: Path, tmp_path: Path):
    flow, test = re.findall(r"^```yaml\n(.*?)^```$", (for_agents / "AGENTS.md").read_text("utf-8"), re.M | re.S)
    (tmp_path / "tests").mkdir()
    (tmp_path / "reviewed_reply.yaml").write_text(flow)
    (tmp_path / "tests" / "reviewed_reply.flowtest.yaml").write_text(test)
    assert main(["validate", str(tmp_path / "reviewed_reply.yaml")]) == 0
    assert main(["test", str(tmp_path)]) == 0


def test_files_for_agents_are_written_over_only_by_force(
    for_agents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    skill = tmp_path / ".claude/skills/flowengine-flows/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("mine")
    command = ["init", str(tmp_path), "--agents", "--skills-folder", ".claude/skills"]
    assert main(command) == 2
    assert f"{skill} is there already; --force writes over it" in capsys.readouterr().err
    assert (skill.read_text(), (tmp_path / "AGENTS.md").exists()) == ("mine", False)
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("mine")
    (tmp_path / "AGENTS.md").symlink_to(elsewhere)
    assert main([*command, "--force"]) == 0
    assert skill.read_text("utf-8") == (for_agents / SKILL / "SKILL.md").read_text("utf-8")
    assert ".claude/skills/flowengine-flows/references/" in (tmp_path / "AGENTS.md").read_text("utf-8")
    assert elsewhere.read_text() == "mine"


@pytest.mark.parametrize("wrong", [["--agents", "--skills-folder", "../out"], ["--force"]])
def test_files_for_agents_stay_in_the_project(wrong: list[str], tmp_path: Path):
    assert main(["init", str(tmp_path / "new"), *wrong]) == 2
    assert not (tmp_path / "new").exists()


def test_an_example_that_is_asked_for_is_written_beside_the_files_for_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--agents", "--example", "helo"]) == 2
    assert list(tmp_path.iterdir()) == []
    assert main(["init", "--agents", "--example", "hello"]) == 0
    assert {"AGENTS.md", "hello.yaml", "flowengine.toml"} <= {path.name for path in tmp_path.iterdir()}
    assert main(["validate", "hello.yaml"]) == 0, capsys.readouterr().err


def test_nothing_is_written_where_a_link_leads_out_of_the_folder(tmp_path: Path, capsys) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (root / ".agents").symlink_to(outside)
    (root / "tests").symlink_to(outside)
    for line in (["init", "--agents", str(root)], ["init", "--agents", "--force", str(root)], ["init", str(root)]):
        assert main(line) == 2
        assert "outside of" in capsys.readouterr().err
    assert not list(outside.iterdir())


def test_what_is_not_written_is_not_said_to_be(tmp_path: Path, capsys) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "AGENTS.md").symlink_to(tmp_path / "nothing")
    assert main(["init", "--agents", str(root)]) == 2
    assert "is there already" in capsys.readouterr().err
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").mkdir()
    assert main(["init", "--agents", "--force", str(root)]) == 2
    assert "cannot be written" in capsys.readouterr().err
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    assert main(["init", "--agents", str(tmp_path / "link")]) == 2
    assert "cannot be written" in capsys.readouterr().err
