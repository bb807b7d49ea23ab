"""`-i name=@FILE` for inputs of type `file`, and what the other commands do with a run that has files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import InputError

Command = Callable[..., Any]
FLOW = """
flowengine: v1
name: reading
inputs: {doc: {type: file}}
nodes:
  read: {type: function, call: "steps:size", with: {doc: "{{ inputs.doc }}"}}
"""


@pytest.fixture
def reading(flowengine: Command, tmp_path: Path) -> Command:
    Path("reading.yaml").write_text(FLOW)
    with Path("steps.py").open("a") as file:
        file.write("\ndef size(doc):\n    return [doc.name, doc.media_type, len(doc.read_bytes())]\n")
    return flowengine


def test_at_names_any_file_and_a_text_one_of_the_project(reading: Command, tmp_path: Path):
    outside = tmp_path.parent / f"{tmp_path.name}-scan"
    outside.write_bytes(b"%PDF-1.4 \x00\xff")
    said = reading("run", "reading.yaml", "-i", f"doc=@{outside}", "--run-id", "r1")
    assert said.code == 0, said.err
    assert said.out.startswith("read: [")
    assert said.out.endswith(', "application/pdf", 11]\n')
    Path("a.txt").write_text("abc")
    assert reading("run", "reading.yaml", "-i", "doc=a.txt").out == 'read: ["a.txt", "text/plain", 3]\n'
    refused = reading("run", "reading.yaml", "-i", f"doc={outside}")
    assert refused.code == 2
    assert "input 'doc': the path" in refused.err
    assert "leaves the project's root" in refused.err
    missing = reading("run", "reading.yaml", "-i", "doc=@none.pdf")
    assert (missing.code, "input 'doc': cannot read 'none.pdf': No such file" in missing.err) == (2, True)
    assert '"media_type": "application/pdf"' in reading("runs", "show", "r1").out
    assert reading("plan", "reading.yaml", "-i", f"doc=@{outside}").code == 0
    assert reading("plan", "reading.yaml", "-i", "doc=@none.pdf").code == 2


def test_an_exported_run_is_imported_with_its_files(reading: Command):
    Path("a.bin").write_bytes(b"\x00\x01\x02" * 100)
    assert reading("run", "reading.yaml", "-i", "doc=@a.bin", "--run-id", "r1").code == 0
    said = reading("runs", "export", "r1", "-o", "r1.jsonl")
    assert "1 files" in said.err
    assert reading("runs", "import", "r1.jsonl", "--as", "r2").code == 0
    assert reading("runs", "rm", "r1").code == 0
    again = reading("runs", "export", "r2", "-o", "r2.jsonl")
    assert again.code == 0
    assert Path("r2.jsonl").read_text().splitlines()[-1] == Path("r1.jsonl").read_text().splitlines()[-1]
    hidden = reading("runs", "export", "r2", "--masked", "-o", "masked.jsonl")
    assert "without the contents of files" in hidden.err
    assert reading("runs", "import", "masked.jsonl", "--as", "r3").code == 0
    lines = Path("r1.jsonl").read_text().splitlines()
    lines[-1] = lines[-1].replace("AAEC", "AAED", 1)
    Path("bad.jsonl").write_text("\n".join(lines))
    refused = reading("runs", "import", "bad.jsonl", "--as", "r4")
    assert refused.code != 0
    assert "is not what its hash says" in refused.err


def test_files_of_a_run_are_listed_and_written_beside_what_is_there(reading: Command):
    Path("a.bin").write_bytes(b"\x00\x01\x02" * 100)
    assert reading("run", "reading.yaml", "-i", "doc=@a.bin", "--run-id", "r1").code == 0
    said = reading("runs", "files", "r1")
    assert (said.code, said.out.split()[0], said.out.split()[-2:]) == (0, "a.bin", ["300", "bytes"])
    for name in ("a.bin", "a-2.bin"):
        found = reading("runs", "files", "r1", "-o", "out/of", "--json")
        [file] = json.loads(found.out)
        assert (file["path"], Path(file["path"]).read_bytes()) == (f"out/of/{name}", b"\x00\x01\x02" * 100)
    assert reading("runs", "files", "r1", "-o", "out/of").err == "wrote out/of/a-3.bin\n"
    blocked = reading("runs", "files", "r1", "-o", "a.bin")
    assert (blocked.code, "a.bin is no folder" in blocked.err) == (2, True)
    assert reading("run", "shout.yaml", "--run-id", "r2").code == 0
    assert reading("runs", "files", "r2").err == "the run has no files\n"


def test_the_name_of_a_written_file_is_taken_first_and_given_back_where_it_cannot_be_written(
    reading: Command, monkeypatch: pytest.MonkeyPatch
):
    Path("a.bin").write_bytes(b"\x00\x01\x02" * 100)
    assert reading("run", "reading.yaml", "-i", "doc=@a.bin", "--run-id", "r1").code == 0
    taken: list[list[str]] = []

    def refuse(path: Path, pieces: object) -> None:
        taken.append([each.name for each in path.parent.iterdir()])
        raise InputError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("flowengine.cli.commands.runs_files.write_output", refuse)
        assert reading("runs", "files", "r1", "-o", "out").code == 2
    assert (taken, list(Path("out").iterdir())) == ([["a.bin"]], [])
    assert reading("runs", "files", "r1", "-o", "out").err == "wrote out/a.bin\n"
