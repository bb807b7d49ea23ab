"""Imports what means harm: paths, links, bombs, tags, names, code; nothing of it is followed or run."""

from __future__ import annotations

import os
import time
import tomllib
from pathlib import Path

import pytest

from flowengine.errors import DefinitionError, InputError
from flowengine.importers.form import ImportedProject, ImportLedger, SourcePlace, Stub
from flowengine.importers.formats import find_sources, read_source
from flowengine.importers.import_report import format_report
from flowengine.importers.project_writer import write_project
from flowengine.importers.source_tree import SourceError, SourceTree

NODE = """\
inputs: {{q: {{type: string}}}}
outputs: {{a: {{type: string, reference: "${{n.output}}"}}}}
nodes:
- name: n
  type: {kind}
  source: {{type: code, path: {path}}}
  inputs: {{q: "${{inputs.q}}"}}
"""


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/etc/passwd", "../secret.jinja2", ".env", "link.jinja2", "C:\\x"]
)
@pytest.mark.parametrize("kind", ["llm", "python", "prompt"])
def test_a_path_that_leads_out_of_the_folder_brings_nothing_in(
    import_files, tmp_path: Path, path: str, kind: str
) -> None:
    (tmp_path / "secret.jinja2").write_text("top secret")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/.env").write_text("top secret")
    (tmp_path / "source/link.jinja2").symlink_to(tmp_path / "secret.jinja2")
    project, written, folder = import_files({"flow.dag.yaml": NODE.format(kind=kind, path=path)})
    assert project.ledger.count("lost")
    assert not written.errors
    texts = [each.read_text() for each in folder.rglob("*") if each.is_file()]
    assert not any("top secret" in each or "root:" in each for each in texts)


def test_code_is_neither_imported_nor_run_by_an_import(import_files, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    touch = f"open({str(mark)!r}, 'w')"
    evil = f"{touch}\nfrom promptflow.core import tool\n@tool\ndef n(q: str = {touch}): ...\n"
    _, written, folder = import_files(
        {"flow.dag.yaml": NODE.format(kind="python", path="n.py"), "n.py": evil, "conftest.py": evil, "setup.py": evil}
    )
    assert not written.errors
    assert (folder / "n.py").exists()
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "nodes: &a [*a]\n",
        "nodes:\n- name: !!python/object/apply:os.system [id]\n  type: llm\n",
        "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(7)
        ) + "nodes:\n- {name: n, type: llm}\n",
        "nodes:\n- type: llm\n" + "  x: " + "[" * 500 + "\n",
        "nodes:\n- type: llm\n  name: \x00\n",
        "nodes:\n- type: llm\n" + "# " + "x" * 1_100_000,
    ],
    ids=["circle", "tag", "bomb", "deep", "control", "large"],
)  # fmt: skip
def test_yaml_that_means_harm_is_refused(write_files, text: str) -> None:
    tree = SourceTree(write_files({"flow.dag.yaml": text}))
    found = find_sources(tree, ".")
    if found:
        with pytest.raises(DefinitionError):
            read_source(tree, found[0])


def test_names_of_the_source_can_neither_leave_the_folder_nor_become_code(import_files) -> None:
    name = "../../x\\n'; import os #"
    text = (
        NODE.format(kind="python", path="none.py").replace("name: n", f"name: {name!r}").replace("q:", '"q\\"b|<i>":')
    )
    _, written, folder = import_files({"flow.dag.yaml": f"name: '../../up'\n{text}"})
    assert not written.errors
    assert {each.parent.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()} <= {
        ".",
        "tests",
    }
    compile((folder / "imported_stubs.py").read_text(), "stub", "exec")
    report = (folder / "IMPORT.md").read_text()
    assert "<i>" not in report


def test_a_stub_holds_what_it_quotes_as_comments_alone(tmp_path: Path) -> None:
    stub = Stub(
        "imported_stubs:f", ["a: str = 1", 'b=__import__("os")\n'], 'why """\nimport os', SourcePlace("x\ny", 1),
        original="def f():\n    pass\u2028import os\r\nimport sys",
    )  # fmt: skip
    write_project(ImportedProject("Test", ImportLedger(), stubs=[stub]), tmp_path / "target")
    tree = compile((tmp_path / "target/imported_stubs.py").read_text(), "stub", "exec")
    assert {"os", "sys"}.isdisjoint(tree.co_names)


def test_the_project_file_can_be_read_whatever_stands_in_an_address(tmp_path: Path) -> None:
    entries = ['https://a.example/\x7f"\\\x1f\u2028/']
    write_project(
        ImportedProject("Test", ImportLedger(), settings={"allow_http": entries}), tmp_path / "target", grant=True
    )
    assert tomllib.loads((tmp_path / "target/flowengine.toml").read_text("utf-8"))["allow_http"] == entries


def test_a_target_that_is_not_empty_or_a_link_is_refused(write_files, tmp_path: Path) -> None:
    project = ImportedProject("Test", ImportLedger())
    target = tmp_path / "target"
    target.mkdir()
    (target / "flowengine.toml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="not empty"):
        write_project(project, target)
    with pytest.raises(InputError, match="cannot be written"):
        write_project(project, target, force=True)
    assert not (tmp_path / "elsewhere").exists()
    (target / "flowengine.toml").unlink()
    (target / "IMPORT.md").write_text("old")
    write_project(project, target, force=True)
    assert (target / "IMPORT.md").read_text().startswith("# Import from Test")


def test_a_pipe_is_not_waited_for_and_a_table_stays_a_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(SourceError):
        SourceTree(tmp_path).read_text("pipe.yaml")
    ledger = ImportLedger()
    ledger.note_lost("a | b\n## c `d`", SourcePlace("f|\n# g"), "<script>\x1b[31m", "do")
    report = format_report(ImportedProject("Test", ledger), [], [])
    assert "\n## c" not in report
    assert "\n# g" not in report
    assert "<script>" not in report
    assert "\x1b" not in report


NO_TAGS = ["\n" * 300_000, " " * 300_000 + "x", "{%" * 150_000, "{#" * 150_000, "{% set " + "=" * 300_000]


@pytest.mark.parametrize("text", NO_TAGS, ids=["lines", "blanks", "blocks", "comments", "sets"])
def test_a_text_that_is_costly_to_search_is_searched_in_one_pass(write_files, text: str) -> None:
    tree = SourceTree(
        write_files({
            "flow.dag.yaml": NODE.format(kind="llm", path="n.jinja2"),
            "n.jinja2": f"user:\n{text}",
            "other/a.py": text, "other/b.yaml": text,
        })
    )  # fmt: skip
    before = time.process_time()
    found = find_sources(tree, ".")
    assert [each.file for each in found] == ["flow.dag.yaml"]
    assert read_source(tree, found[0]).flows
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("class.py", "def n(q): ..."),
        ("n.py", "def __import__(q): ..."),
        ("n.py", "def n(q, Q=1): ..."),
        ("n.py", "def n(q=1e999, *, x=[-1e999]): ..."),
        ("n.py", f"def n(q=0x{'f' * 5000}): ..."),
        ("n.py", f"def n(q={'-' * 600}1): ..."),
        ("n.py", f"def n(q: {'a|' * 600}b): ..."),
        ("n.py", "def Any(q: str): ..."),
    ],
)
def test_odd_python_becomes_functions_that_can_be_imported(import_files, name: str, code: str) -> None:
    _, written, folder = import_files(
        {"flow.dag.yaml": NODE.format(kind="python", path=name), name: f"import not_there\n{code}\n"}
    )
    assert not written.errors
    for each in folder.glob("imported_*.py"):
        exec(compile(each.read_text(), each.name, "exec"), {"__name__": "imported"})


def test_tools_of_packages_whose_names_are_words_of_python_are_stubs(import_files) -> None:
    for tool, argument in (("a.class", "q"), ("a.b", "class"), ("import.b", "q")):
        source = f"source: {{type: package, tool: {tool}}}"
        text = f"nodes:\n- {{name: n, type: python, {source}, inputs: {{{argument}: 1}}}}\n"
        project, written, folder = import_files({"flow.dag.yaml": text})
        assert project.ledger.count("lost") == 1
        assert not written.errors
        compile((folder / "imported_stubs.py").read_text(), "stub", "exec")


def test_a_function_of_python_itself_is_no_tool_of_a_package(import_files) -> None:
    node = "{name: a, type: python, source: {type: package, tool: os.system}, inputs: {command: rm -r /}}"
    project, written, folder = import_files({"flow.dag.yaml": f"nodes:\n- {node}\n"})
    assert not written.errors
    assert project.ledger.count("lost")
    assert "system" not in "".join(each.read_text() for each in folder.glob("imported_steps.py"))


def test_values_that_nothing_can_hold_are_left_out_or_refused(import_files, write_files) -> None:
    text = NODE.format(kind="llm", path="n.jinja2")
    files = {"flow.dag.yaml": text.replace("type: string", "type: int, default: .inf", 1), "n.jinja2": "{{ q }}"}
    project, _, _ = import_files(files | {"n.jinja2": "{{ q }}"})
    assert "default" not in project.flows[0].inputs["q"]
    project, _, _ = import_files(files | {"flow.dag.yaml": 'additional_includes: ["a\\0b"]\n' + text})
    assert "cannot be a path" in next(each.note for each in project.ledger.elements if each.outcome == "lost")
    tree = SourceTree(write_files({"flow.dag.yaml": f"name: 0x{'f' * 5000}\n{text}"}))
    with pytest.raises(DefinitionError, match="300 digits"):
        read_source(tree, find_sources(tree, ".")[0])


def test_a_link_to_a_folder_elsewhere_is_not_walked(write_files, tmp_path: Path) -> None:
    folder = write_files({"a.txt": ""})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b.txt").touch()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceError, match="leaves"):
        list(SourceTree(folder).files("link"))


def test_the_report_says_where_requests_go_and_which_keys_go_along() -> None:
    project = ImportedProject("Test", ImportLedger(), environment={"A`\n\n# B": "why"})
    project.allow_http("https://elsewhere.example/", ["OPENAI_API_KEY"])
    report = format_report(project, [], [])
    assert "- Flows may ask `https://elsewhere.example/`, with `OPENAI_API_KEY`" in report
    assert "\n# B" not in report


def test_a_link_in_the_target_makes_no_folder_elsewhere(tmp_path: Path) -> None:
    project = ImportedProject("Test", ImportLedger())
    project.carry("data/deep/a.txt", "x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target/data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="outside"):
        write_project(project, tmp_path / "target", force=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_that_every_format_looks_at_counts_once(write_files, monkeypatch: pytest.MonkeyPatch) -> None:
    text = NODE.format(kind="llm", path="n.jinja2")
    tree = SourceTree(write_files({"flow.dag.yaml": text, "n.jinja2": "{{ q }}"}))
    monkeypatch.setattr("flowengine.importers.source_tree.MAX_TOTAL", 2 * len(text))
    assert read_source(tree, find_sources(tree, ".")[0]).ledger.count("lost") == 0
