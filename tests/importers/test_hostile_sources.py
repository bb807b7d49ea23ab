"""Imports what means harm: paths, links, bombs, tags, names, code; nothing of it is followed or run."""

from __future__ import annotations

import os
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
    ledger.lost("a | b\n## c `d`", SourcePlace("f|\n# g"), "<script>\x1b[31m", "do")
    report = format_report(ImportedProject("Test", ledger), [], [])
    assert "\n## c" not in report
    assert "\n# g" not in report
    assert "<script>" not in report
    assert "\x1b" not in report
