"""Inputs of type `file` in flow files, and the table `files` of a project file."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.core.file_values import FileRules
from flowengine.errors import FlowError, InputError
from flowengine.flow import Flow
from flowengine.flowfile.project.project import project_of

FLOW = """
flowengine: v1
name: reading
inputs:
  doc: {type: file, default: docs/a.txt}
nodes:
  say: {type: condition, cases: [{if: "inputs.doc.size > 3", then: long}], else: short}
  long: {type: approval, message: "{{ inputs.doc.name }} is long", routes: {"yes": short}}
  short: {type: approval, join: some, message: "{{ inputs.doc.media_type }}", routes: {"ok": said}}
  said: {type: function, call: "reading:read", with: {doc: "{{ inputs.doc }}"}}
"""
CALLING = """
flowengine: v1
name: outer
inputs: {doc: {type: file}}
nodes:
  inner: {type: subflow, flow: inner.yaml, with: {doc: "{{ inputs.doc }}"}}
  own: {type: subflow, flow: inner.yaml}
"""
INNER = """
flowengine: v1
name: inner
inputs: {doc: {type: file, default: docs/a.txt}}
nodes:
  read: {type: function, call: "reading:read", with: {doc: "{{ inputs.doc }}"}}
outputs: {text: "{{ nodes.read.output }}"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("abc")
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "inner.yaml").write_text(INNER)
    (tmp_path / "outer.yaml").write_text(CALLING)
    (tmp_path / "reading.py").write_text("def read(doc):\n    return doc.read_text()\n")
    return tmp_path


def test_a_path_is_one_below_the_root_and_the_default_is_taken_too(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir("/")
    run = Flow.from_yaml(folder / "flow.yaml").run_sync()
    assert run.status == "waiting", run.error
    assert (run.inputs["doc"].name, run.inputs["doc"].read_text()) == ("a.txt", "abc")
    with pytest.raises(InputError, match="input 'doc': the path '/etc/passwd' leaves the project's root"):
        Flow.from_yaml(folder / "flow.yaml").run_sync({"doc": "/etc/passwd"})


def test_a_file_goes_into_a_subflow(folder: Path):
    (folder / "b.txt").write_text("of b")
    run = Flow.from_yaml(folder / "outer.yaml").run_sync({"doc": "b.txt"})
    assert run.status == "succeeded", run.error
    assert run.outputs == {"inner": {"text": "of b"}, "own": {"text": "abc"}}


NAMED = """
flowengine: v1
name: named
inputs: {said: {schema: {}}, names: {type: array, default: []}}
nodes:
  fixed: {type: subflow, flow: inner.yaml, with: {doc: b.txt}}
  given: {type: subflow, flow: inner.yaml, when: "inputs.said != ''", with: {doc: "{{ inputs.said }}"}}
  each:
    type: map
    over: inputs.names
    nodes: {one: {type: subflow, flow: inner.yaml, with: {doc: "{{ item }}"}}}
"""


@pytest.mark.parametrize("said", ["b.txt", "flowengine.toml", "/etc/hostname", Path("b.txt"), Path("/etc/hostname")])
def test_a_subflow_reads_no_file_whose_path_a_run_works_out(folder: Path, said: str | Path):
    (folder / "b.txt").write_text("of b")
    (folder / "flow.yaml").write_text(NAMED)
    flow = Flow.from_yaml(folder / "flow.yaml")
    run = flow.run_sync({"said": said})
    assert run.status == "failed"
    assert "input 'doc': a file is given as data:TYPE;base64,CONTENT or as an address" in str(run.error)
    assert str(folder) not in str(run.error)
    assert flow.run_sync({"said": "", "names": [said]}).status == "failed"
    content = "data:text/plain;base64,aGk="
    run = flow.run_sync({"said": content, "names": [content]})
    assert (run.outputs.get("given"), run.outputs.get("fixed")) == ({"text": "hi"}, {"text": "of b"}), run.error


def test_an_input_that_is_no_file_is_refused_for_one_before_anything_runs(folder: Path):
    (folder / "outer.yaml").write_text(CALLING.replace("{doc: {type: file}}", "{doc: {type: string}}"))
    with pytest.raises(FlowError, match=r"FE230.*an input of type string is no file"):
        Flow.from_yaml(folder / "outer.yaml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("{type: file, default: docs/a.txt}", "{type: file, default: 3}"), "FE407.*the default of a file is its path"),
        (("{type: file, default: docs/a.txt}", "{type: file, enum: [a]}"), "FE209.*'enum' does not go with files"),
        (("inputs.doc.size", "inputs.doc.sise"), "no.*'sise'.*did you mean 'size'"),
        (("{type: file, default: docs/a.txt}", "{type: fil}"), "FE.*file"),
    ],
)
def test_what_is_wrong_with_an_input_is_told_with_its_place(folder: Path, change: tuple[str, str], said: str):
    (folder / "flow.yaml").write_text(FLOW.replace(*change))
    with pytest.raises(FlowError, match=said) as found:
        Flow.from_yaml(folder / "flow.yaml")
    assert all(each.line for each in found.value.diagnostics)


def test_a_project_says_what_files_may_be(folder: Path):
    (folder / "flowengine.toml").write_text(
        'allow_calls = ["reading"]\n[files]\nmax_file = "1KB"\nmax_run = 5000\nmedia_types = ["text/*"]\nallow_urls = ["https://files.example.com/a/"]\n'
    )
    project, problems = project_of(folder)
    assert not problems
    assert project.files == FileRules(None, 1000, 5000, ("text/*",), ("https://files.example.com/a/",))
    (folder / "big.txt").write_text("x" * 1001)
    (folder / "x.pdf").write_text("%PDF-1.4")
    for path, said in [("big.txt", "has 1,001 bytes"), ("x.pdf", "is application/pdf by its content")]:
        with pytest.raises(InputError, match=said):
            Flow.from_yaml(folder / "flow.yaml").run_sync({"doc": path})


def test_what_is_wrong_with_the_table_is_told(folder: Path):
    (folder / "flowengine.toml").write_text(
        '[files]\nmax_file = "1GB"\nmax_run = "many"\nmedia_types = ["png"]\n'
        'allow_urls = ["files.example.com"]\nmax_fil = 3\n'
    )
    _, problems = project_of(folder)
    text = "\n".join(map(str, problems))
    for said in (
        "'max_file' of `files` is a size",
        "'max_run' of `files` is a size",
        "'png' in 'media_types' of `files` is no media type",
        "'files.example.com' in 'allow_urls' of `files` is no beginning of an address",
        "unknown key 'max_fil' of `files`; did you mean 'max_file'?",
    ):
        assert said in text
    assert len(problems) == 5
