from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.errors import DefinitionError
from flowengine.models.dotenv import PROCESS_ENVIRONMENT, parse_dotenv, read_environment
from flowengine.models.open import default_model, get_llm


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=1", "1"),
        ("A = spaced out ", "spaced out"),
        ("export A=1", "1"),
        ("A=", ""),
        ("A=  # nothing", ""),
        ("A=1 # one", "1"),
        ("A=a#b", "a#b"),
        ("A='#$x \\n'", "#$x \\n"),
        ('A="two\\nlines \\"q\\" \\\\"', 'two\nlines "q" \\'),
        ('A="spans\nlines" # comment', "spans\nlines"),
        ("A=https://x.y/z?q=1", "https://x.y/z?q=1"),
        ("A=1\r\nB=2\r\n", "1"),
        ("A=1\nA=2", "2"),
        ("# A=0\n\nnot an assignment\nA=鍵", "鍵"),
        ("A=it's", "it's"),
    ],
)
def test_the_value_of_an_assignment(text: str, value: str) -> None:
    assert parse_dotenv(text)["A"] == value


def test_python_reads_the_files_of_its_folder_and_of_the_project_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flowengine.toml").touch()
    (tmp_path / ".env").write_text("FLOWENGINE_DEFAULT_MODEL=offline\nA=project\nB=project\n")
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / ".env").write_text("A=folder\nOPENAI_API_KEY=sk-of-the-file\n")
    for name in ("A", "B", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    assert [PROCESS_ENVIRONMENT[name] for name in ("A", "B")] == ["folder", "project"]
    assert get_llm("gpt-4o").provider == "openai"
    assert default_model().name == "offline"
    monkeypatch.setenv("A", "process")
    assert PROCESS_ENVIRONMENT["A"] == "process"
    monkeypatch.chdir(tmp_path.parent)
    assert "B" not in PROCESS_ENVIRONMENT


def test_a_broken_line_does_not_swallow_the_next() -> None:
    assert parse_dotenv("A='open\nB=2") == {"B": "2"}


def test_the_real_environment_wins_and_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("\ufeffA=file\nB=file\n", "utf-8")
    environ = {"A": "real"}
    assert read_environment(tmp_path, environ) == {"A": "real", "B": "file"}
    assert environ == {"A": "real"}


def test_a_namespace_names_the_one_file_that_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=development\nB=development")
    (tmp_path / ".env.production").write_text("A=production")
    environ = {"FLOWENGINE_ENV": "production"}
    assert read_environment(tmp_path, environ) == {**environ, "A": "production"}


@pytest.mark.parametrize("namespace", ["../other", "missing"])
def test_nothing_is_read_where_there_is_no_such_file_in_the_folder(tmp_path: Path, namespace: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (tmp_path / "other").write_text("A=1")
    (tmp_path / ".env").write_text("A=1")
    assert read_environment(folder, {"FLOWENGINE_ENV": namespace}) == {"FLOWENGINE_ENV": namespace}
    assert read_environment(folder, {}) == {}


def test_a_file_does_not_choose_itself(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=development\nFLOWENGINE_ENV=production")
    (tmp_path / ".env.production").write_text("A=production")
    read = read_environment(tmp_path, {})
    assert read == {"A": "development"}
    assert read_environment(tmp_path, read) == read


def test_the_real_environment_is_looked_at_when_a_name_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file")
    environ: dict[str, str] = {}
    read = read_environment(tmp_path, environ)
    environ |= {"A": "real", "B": "later"}
    assert (read["A"], read.get("B"), "B" in read, len(read), sorted(read)) == ("real", "later", True, 2, ["A", "B"])


def test_the_values_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=secret")
    assert repr(read_environment(tmp_path, {"B": "secret"})) == "<2 variables>"


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"KEY=secret\xff")
    with pytest.raises(DefinitionError, match=r"\.env is not UTF-8") as caught:
        read_environment(tmp_path, {})
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
