"""What counts as a function's code: itself, and what it leads to in its project."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.flowfile.project.project import Project
from flowengine.nodes.code_reading import read_code

FILES = {
    "tools.py": """
import helper
from helper import double as twice, Scale

RATE = 2
UNUSED = 1
TABLE = {"a": [1]}
SEEN = []

def looked_up(value):
    SEEN.append(value)
    return TABLE["a"]

def price(value):
    return twice(value) * RATE + helper.add(value)

def other(value):
    return value

def scaled(value):
    return Scale().of(value)

def late(value):
    return own(value)

def own(value):
    return value + 1
""",
    "helper.py": """
STEP = 1

def double(value):
    return 2 * value

def add(value):
    return value + STEP

def unused(value):
    return value

class Scale:
    FACTOR = 3

    def of(self, value):
        return value * self.FACTOR
""",
}


def source(folder: Path, function: str, file: str = "", old: str = "", new: str = "") -> str:
    """The text of a function in a project of its own, one of whose files was edited."""
    for name, text in FILES.items():
        assert old in text or name != file
        (folder / name).write_text(text.replace(old, new) if name == file else text)
    return read_code([Project(folder).import_callable(f"tools:{function}")]).text


@pytest.mark.parametrize(
    ("function", "file", "old", "new"),
    [
        ("price", "tools.py", "twice(value) * RATE", "twice(value) + RATE"),
        ("price", "tools.py", "RATE = 2", "RATE = 3"),
        ("price", "helper.py", "return 2 * value", "return 3 * value"),
        ("price", "helper.py", "STEP = 1", "STEP = 5"),
        ("scaled", "helper.py", "FACTOR = 3", "FACTOR = 4"),
        ("scaled", "helper.py", "value * self.FACTOR", "value + self.FACTOR"),
        ("looked_up", "tools.py", "[1]", "[2]"),
        ("late", "tools.py", "return value + 1", "return value + 2"),
    ],
)
def test_an_edit_of_what_a_function_leads_to_counts(
    tmp_path: Path, function: str, file: str, old: str, new: str
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert source(folders[0], function) != source(folders[1], function, file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("tools.py", "UNUSED = 1", "UNUSED = 2"),
        ("tools.py", "def other(value):\n    return value", "def other(value):\n    return -value"),
        ("helper.py", "def unused(value):\n    return value", "def unused(value):\n    return -value"),
        ("helper.py", "STEP = 1", "# a remark\n\nSTEP = 1"),
    ],
)
def test_an_edit_elsewhere_does_not_count_nor_does_the_folder(tmp_path: Path, file: str, old: str, new: str) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert source(folders[0], "price") == source(folders[1], "price", file, old, new)


def test_what_a_run_puts_into_a_modules_list_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(FILES["tools.py"])
    (tmp_path / "helper.py").write_text(FILES["helper.py"])
    function = Project(tmp_path).import_callable("tools:looked_up")
    before = read_code([function]).text
    function(1)
    assert read_code([function]).text == before


def test_functions_that_call_each_other_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def a(n):\n    return b(n)\n\ndef b(n):\n    return a(n)\n")
    assert read_code([Project(tmp_path).import_callable("tools:a")]).text


def test_what_a_very_large_project_holds_counts_to_the_last_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifteen hundred functions, each of which calls the next one."""

    def digest(name: str, last: str) -> str:
        lines = [f"def f{number}(value):\n    return f{number + 1}(value)\n" for number in range(1_500)]
        folder = tmp_path / name
        folder.mkdir()
        (folder / "many_calls.py").write_text("\n".join([*lines, f"def f1500(value):\n    return value + {last}\n"]))
        return read_code([Project(folder).import_callable("many_calls:f0")]).text

    first, second = digest("one", "1"), digest("two", "2")
    assert "f1500" in first
    assert first != second
