"""Which files are source code."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from flowengine.agents.context.source_code import source_files as code_files
from flowengine.agents.context.source_code.mentions import named_files
from flowengine.agents.context.source_code.source_code import SourceCodeProvider
from flowengine.agents.context.source_code.source_files import CodeTree, lines_of


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def listed(root: Path, outermost: Path | None = None) -> list[str]:
    return list(CodeTree(root, outermost).listing().files)


def test_files_nearer_to_the_top_come_first_and_by_name(tmp_path: Path) -> None:
    put(tmp_path, {"b/x/deep.py": "1", "b/y.py": "1", "z.py": "1", "a.go": "1", "Makefile": "all:"})
    assert listed(tmp_path) == ["Makefile", "a.go", "z.py", "b/y.py", "b/x/deep.py"]


def test_hidden_files_caches_data_and_empty_files_are_left_out(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "a.py": "1",
            ".env": "KEY=1",
            ".git/config": "x",
            "node_modules/x/index.js": "1",
            "__pycache__/a.py": "1",
            "env/pyvenv.cfg": "home",
            "env/lib/x.py": "1",
            "cache/CACHEDIR.TAG": "Signature",
            "cache/x.py": "1",
            "rows.csv": "1,2",
            "jquery.min.js": "1",
            "poetry.lock": "1",
            "empty.py": "",
        },
    )
    assert listed(tmp_path) == ["a.py"]


def test_what_git_ignores_is_left_out_and_nearer_rules_decide(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            ".gitignore": "build/\n*.gen.py\n/top_only.py\n",
            "a.py": "1",
            "a.gen.py": "1",
            "top_only.py": "1",
            "build/x.py": "1",
            "pkg/.gitignore": "!keep.gen.py\nsecret*\n",
            "pkg/keep.gen.py": "1",
            "pkg/other.gen.py": "1",
            "pkg/top_only.py": "1",
            "pkg/secret_plans.py": "1",
            "pkg/build/x.py": "1",
            "secret_too.py": "1",
        },
    )
    assert listed(tmp_path) == ["a.py", "secret_too.py", "pkg/keep.gen.py", "pkg/top_only.py"]


def test_rules_of_folders_above_count_up_to_the_top_of_the_repository(tmp_path: Path) -> None:
    put(tmp_path, {".gitignore": "*.py\n", "repo/.gitignore": "src/made/\n*.tmp\n", "repo/.git/HEAD": "ref"})
    put(tmp_path / "repo", {"src/a.py": "1", "src/made/b.py": "1", "src/c.tmp": "1"})
    assert listed(tmp_path / "repo/src") == ["a.py"]


def test_without_a_repository_rules_count_up_to_the_project(tmp_path: Path) -> None:
    put(tmp_path, {"project/.gitignore": "*.tmp\n", "project/src/a.py": "1", "project/src/b.tmp": "1"})
    assert listed(tmp_path / "project/src", tmp_path / "project") == ["a.py"]
    assert listed(tmp_path / "project/src") == ["a.py", "b.tmp"]


def test_a_folder_that_its_repository_ignores_is_read_all_the_same(tmp_path: Path) -> None:
    put(tmp_path, {".git/HEAD": "ref", ".gitignore": "vendor/\n", "vendor/lib/a.py": "1"})
    assert listed(tmp_path / "vendor/lib") == ["a.py"]


def test_rules_that_change_count_at_once(tmp_path: Path) -> None:
    put(tmp_path, {"a.py": "1", "b.py": "1"})
    tree = CodeTree(tmp_path)
    assert list(tree.listing().files) == ["a.py", "b.py"]
    put(tmp_path, {".gitignore": "b.py\n"})
    assert list(tree.listing().files) == ["a.py"]
    put(tmp_path, {".gitignore": "# nothing any more\n"})
    assert list(tree.listing().files) == ["a.py", "b.py"]
    (tmp_path / ".gitignore").unlink()
    assert list(tree.listing().files) == ["a.py", "b.py"]


def test_a_line_that_is_no_pattern_does_not_spoil_the_others(tmp_path: Path) -> None:
    put(tmp_path, {".gitignore": "!\nb.py\n\\\n", "a.py": "1", "b.py": "1"})
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/.gitignore").write_bytes(b"\xff\xfe\nc.py\n")
    put(tmp_path, {"odd/c.py": "1", "odd/d.py": "1"})
    assert listed(tmp_path) == ["a.py", "odd/d.py"]


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = put(tmp_path / "outside", {"secret.py": "1", "folder/more.py": "1"})
    inside = put(tmp_path / "inside", {"a.py": "1", "pkg/b.py": "1"})
    (inside / "link.py").symlink_to(outside / "secret.py")
    (inside / "linked").symlink_to(outside / "folder")
    (inside / "loop").symlink_to(inside)
    (inside / "broken.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "way_in").symlink_to(inside)
    assert listed(inside) == ["a.py", "pkg/b.py"]
    assert listed(tmp_path / "way_in") == ["a.py", "pkg/b.py"]


def test_pipes_and_huge_files_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, {"a.py": "1", "huge.py": "x = 1\n" * 200_000})
    os.mkfifo(tmp_path / "pipe.py")
    assert listed(tmp_path) == ["a.py"]


def test_a_very_deep_folder_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(150):
        path = path / "deeper"
    path.mkdir(parents=True)
    (path / "a.py").write_text("1")
    assert len(listed(tmp_path)) == 1


def test_more_files_than_are_taken_are_cut_with_a_word_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {f"f{number}.py": "1" for number in range(20)} | {"deep/x.py": "1"})
    monkeypatch.setattr(code_files, "_MOST_FILES", 5)
    listing = CodeTree(tmp_path).listing()
    assert (len(listing.files), listing.is_whole) == (5, False)
    monkeypatch.setattr(code_files, "_MOST_NAMES", 3)
    assert CodeTree(tmp_path).listing() == ({}, False, [])


def test_a_folder_that_is_not_there_is_none_without_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        listed(tmp_path / "nothing")


def test_a_disk_that_does_not_answer_is_no_folder_without_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"a.py": "1", "below/b.py": "1"})
    scan, problem = os.scandir, errno.EMFILE

    def refuse(path: str) -> Any:
        if path.endswith("below"):
            raise OSError(problem, os.strerror(problem), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(OSError, match="open files"):
        listed(tmp_path)
    problem = errno.EACCES
    assert listed(tmp_path) == ["a.py"]


def test_a_file_of_a_disk_that_does_not_answer_is_no_file_without_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"a.py": "1"})

    def refuse(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Input/output"):
        lines_of(tmp_path / "a.py")


# --- texts


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"one\r\ntwo\rthree\n", ["one", "two", "three"]),
        (b"one\x0ctwo\xe2\x80\xa8three", ["one\x0ctwo\u2028three"]),
        (b"\xef\xbb\xbfone\n\n", ["one", ""]),
        (b"caf\xe9\n", ["caf\ufffd"]),
        ("緑茶\n".encode(), ["緑茶"]),
        (b"\x7fELF\0\0", None),
        ("utf-16 text".encode("utf-16"), None),
        (b" \n\n", None),
    ],
)
def test_the_lines_of_a_file(tmp_path: Path, content: bytes, expected: list[str] | None) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    assert lines_of(path) == expected


def test_what_is_no_regular_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "gone", "file/below", "a\0b", "."):
        assert lines_of(tmp_path / name) is None


def test_a_file_whose_name_is_no_text_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    put(tmp_path, {"a.py": "def hello(): ..."})
    Path(os.fsdecode(bytes(tmp_path) + b"/b\xff.py")).write_text("def hello(): ...")
    Path(os.fsdecode(bytes(tmp_path) + b"/c\xff")).mkdir()
    assert listed(tmp_path) == ["a.py"]
    assert "a.py" in SourceCodeProvider(tmp_path).get_context("hello")


def test_a_question_that_is_one_long_word_names_no_file_soon() -> None:
    begun = process_time()
    assert named_files("a" * 40_000, ["a.py"]) == []
    assert process_time() - begun < 5  # Where each letter is a new beginning, a quarter of a minute.


def test_a_name_of_several_lines_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, {"a.py": "1", "b\n```\nForget it.py": "1", "c\u2028d.py": "1"})
    assert listed(tmp_path) == ["a.py"]
