"""Which edit moved the score: parts are taken back, and only what is behind them is paid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine.errors import InputError
from flowengine.evals.edit_search import Blame, BlameReport, changed_parts, with_parts
from flowengine.evals.edited_files import FileEdit, edits_between, version_with
from flowengine.evals.eval_file import load_eval
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore

STEPS = """
def note(text):
    with open(FILE, "a") as file:
        file.write("x")
    return text
"""


def flow(count: int, *, bad: bool) -> str:
    """A chain of nodes that are all edited, of which one spoils the answer."""
    nodes = ["  n0: {type: function, call: 'steps:note', with: {text: '{{ inputs.text }}'}}"]
    for at in range(1, count):
        edit = f" {{# edit {at} #}}" if bad else ""
        spoil = " spoilt" if bad and at == count - 2 else ""
        text = f"{{{{ nodes.n{at - 1}.output }}}}{spoil}"
        nodes.append(f"  n{at}: {{type: function, call: 'steps:note', with: {{text: {json.dumps(text + edit)}}}}}")
    head = "flowengine: v1\nname: chain\ninputs: {text: {type: string}}\n"
    return f"{head}nodes:\n" + "\n".join(nodes) + f"\noutputs: {{said: '{{{{ nodes.n{count - 1}.output }}}}'}}\n"


def project(folder: Path, count: int) -> Blame:
    for name, bad in (("good", False), ("bad", True)):
        place = folder / name
        place.mkdir()
        (place / "flowengine.toml").write_text('allow_calls = ["steps"]\n')
        (place / "steps.py").write_text(f"FILE = {str(folder / 'calls')!r}\n{STEPS}")
        (place / "chain.yaml").write_text(flow(count, bad=bad))
    (folder / "bad" / "rows.jsonl").write_text("".join(f'{{"text": "row {n}"}}\n' for n in range(12)))
    path = folder / "bad" / "chain.floweval.yaml"
    claim = '{outputs: {said: {matches: "^row [0-9]+ *$"}}}'
    path.write_text(f"flow: chain.yaml\ndata: rows.jsonl\nscorers: {{clean: {claim}}}\n")
    file = load_eval(path)
    return Blame(file=file, store=MemoryStore(), good=folder / "good" / "chain.yaml", bad=folder / "bad" / "chain.yaml")


@pytest.mark.needs("scipy", "eval")
async def test_the_edit_that_spoils_the_answer_is_found_singly(tmp_path: Path) -> None:
    report: BlameReport = await project(tmp_path, 5).run()
    assert (report.good, report.bad) == (1.0, 0.0)
    assert report.blamed == ["n3"]
    assert [list(each.parts) for each in report.probes] == [["n1"], ["n2"], ["n3"], ["n4"]]
    calls = len((tmp_path / "calls").read_text())
    assert calls < 12 * 5 * 6  # Two versions and four probes would be so many, if each were run anew.


@pytest.mark.needs("scipy", "eval")
async def test_a_node_and_its_reader_are_taken_back_together_and_the_project_file_is_tried(tmp_path: Path) -> None:
    asked = project(tmp_path, 3)
    good = flow(3, bad=False)
    asked.good.write_text(good)
    asked.bad.write_text(good.replace("n1", "m1").replace("nodes.m1.output }}", "nodes.m1.output }} spoilt"))
    (tmp_path / "bad" / "flowengine.toml").write_text('allow_calls = ["steps"]\n[models.fast]\nmodel = "offline"\n')
    report = await Blame(file=load_eval(asked.file.path), store=asked.store, good=asked.good, bad=asked.bad).run()
    assert (report.good, report.bad) == (1.0, 0.0)
    assert set(report.parts) == {"n1", "n2", "m1", "project file flowengine.toml"}
    *_, joint = report.probes
    assert (joint.is_joint, joint.mean) == (True, 1.0), report.probes
    assert report.blamed == list(joint.parts)


@pytest.mark.long
async def test_of_many_edits_halves_are_tried_first(tmp_path: Path) -> None:
    report = await project(tmp_path, 14).run()
    assert report.blamed == ["n12"]
    assert [len(each.parts) for each in report.probes][:2] == [6, 7]
    assert len(report.probes) < 13


async def test_versions_that_say_the_same_have_nothing_to_blame(tmp_path: Path) -> None:
    asked = project(tmp_path, 4)
    with pytest.raises(InputError, match="say the same"):
        Blame(file=asked.file, store=asked.store, good=asked.bad, bad=asked.bad)
    with pytest.raises(InputError, match="no scorer 'clear'; did you mean 'clean'"):
        Blame(file=asked.file, store=asked.store, good=asked.good, bad=asked.bad, scorer="clear")


def test_parts_are_taken_back_whatever_became_of_them() -> None:
    good = {"nodes": {"a": 1, "b": 2}, "limits": {"x": 1}, "name": "one"}
    bad = {"nodes": {"a": 3, "c": 4}, "agents": {"w": {}}, "name": "two"}
    parts = changed_parts(good, bad)
    assert parts == [("nodes", "a"), ("nodes", "c"), ("nodes", "b"), ("agents", "w"), ("limits",)]
    whole = with_parts(bad, good, parts)
    assert whole == {"nodes": {"a": 1, "b": 2}, "agents": {}, "name": "two", "limits": {"x": 1}}
    assert with_parts(bad, good, [("nodes", "b")])["nodes"] == {"a": 3, "c": 4, "b": 2}


CODE = """
from words import LOUD

SUFFIX = "."

def shout(text):
    return text.upper() + SUFFIX + LOUD

def trim(text):
    return text.strip()
"""
CALLS = """flowengine: v1
name: calls
inputs: {text: {type: string}}
nodes:
  trim: {type: function, call: "steps:trim", with: {text: "{{ inputs.text }}"}}
  say: {model: offline, prompt: {file: prompts/say.md}}
  shout: {type: function, call: "steps:shout", with: {text: "{{ nodes.trim.output }}"}, needs: [say]}
outputs: {said: "{{ nodes.shout.output }} {{ nodes.say.output }}"}
"""


def code_project(folder: Path, **edits: str) -> Blame:
    """`edits`: what the bad version has in its files, by their names without the suffix."""
    for name in ("good", "bad"):
        texts = {
            "steps.py": CODE,
            "words.py": 'LOUD = ""\n',
            "prompts/say.md": "Sum {{ inputs.text }}",
            "calls.yaml": CALLS,
        }
        for file in texts:
            if name == "bad":
                texts[file] = edits.get(Path(file).stem, texts[file])
            place = folder / name / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(texts[file])
        (folder / name / "flowengine.toml").write_text('allow_calls = ["steps"]\n')
    (folder / "bad" / "rows.jsonl").write_text("".join(f'{{"text": "row {n}"}}\n' for n in range(12)))
    path = folder / "bad" / "calls.floweval.yaml"
    path.write_text(
        'flow: calls.yaml\ndata: rows.jsonl\nscorers: {right: {outputs: {said: {matches: "^ROW [0-9]+[.] "}}}}\n'
    )
    file = load_eval(path)
    return Blame(file=file, store=MemoryStore(), good=folder / "good" / "calls.yaml", bad=folder / "bad" / "calls.yaml")


@pytest.mark.needs("scipy", "eval")
async def test_functions_constants_and_texts_are_tried_singly(tmp_path: Path) -> None:
    steps = CODE.replace('"."', '"!"').replace("text.strip()", "text.strip().strip()  # Twice.")
    report = await code_project(
        tmp_path, steps=steps + "\ndef more():\n    return 1\n", say="Total {{ inputs.text }}"
    ).run()
    assert (report.good, report.bad) == (1.0, 0.0)
    assert report.parts == [
        "text prompts/say.md", "code steps.py:SUFFIX", "code steps.py:trim", "code steps.py:more",
    ]  # fmt: skip
    assert report.blamed == ["code steps.py:SUFFIX"]


@pytest.mark.needs("scipy", "eval")
async def test_code_that_code_imports_is_tried_too_beside_the_definition(tmp_path: Path) -> None:
    calls = CALLS.replace("{{ inputs.text }}", "{{ inputs.text }} ", 1)
    report = await code_project(tmp_path, words='LOUD = "!"\n', calls=calls).run()
    assert report.parts == ["trim", "code words.py:LOUD"]
    assert report.blamed == ["code words.py:LOUD"]


@pytest.mark.needs("scipy", "eval")
async def test_a_file_with_other_imports_is_one_part(tmp_path: Path) -> None:
    report = await code_project(tmp_path, steps="import os\n" + CODE.replace('"."', '"!"')).run()
    assert report.blamed == ["code steps.py"]


def test_a_function_is_taken_back_whatever_breaks_lines_above_it(tmp_path: Path) -> None:
    for name, number in (("good", 1), ("bad", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flowengine.toml").write_text("")
        text = f"A = '\u2028'\n\x0c\ndef f():\n    return {number}\n\ndef g():\n    return {number}\n"
        (tmp_path / name / "steps.py").write_text(text, "utf-8")
    good, bad = (tmp_path / name / "chain.yaml" for name in ("good", "bad"))
    with version_with([FileEdit("steps.py", "f")], good, bad) as place:
        made = (place.parent / "steps.py").read_text("utf-8")
    assert made.endswith("def f():\n    return 1\n\ndef g():\n    return 2\n")


def test_line_ends_of_a_text_are_an_edit_and_are_taken_back_as_they_were(tmp_path: Path) -> None:
    ends = {"good": b"one\r\ntwo", "bad": b"one\ntwo"}
    for name, text in ends.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "flowengine.toml").write_text("")
        (tmp_path / name / "prompt.md").write_bytes(text)
        (tmp_path / name / "f.yaml").write_text(
            "flowengine: v1\nname: f\nnodes: {a: {model: offline, prompt: {file: prompt.md}}}\n"
        )
    good, bad = (tmp_path / name / "f.yaml" for name in ends)
    [edit] = edits_between(Flow.from_yaml(good), good, Flow.from_yaml(bad), bad)
    assert edit == FileEdit("prompt.md")
    with version_with([edit], good, bad) as place:
        assert (place.parent / "prompt.md").read_bytes() == ends["good"]


def test_a_database_goes_along_and_is_each_versions_own(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flowengine.toml").write_text("")
        (tmp_path / name / "prompt.md").write_text(name)
        (tmp_path / name / "notes.db").write_text("notes")
    good, bad = (tmp_path / name / "f.yaml" for name in ("good", "bad"))
    with version_with([FileEdit("prompt.md")], good, bad) as place:
        assert (place.parent / "notes.db").read_text() == "notes"
        (place.parent / "notes.db").write_text("more")
    assert (tmp_path / "bad" / "notes.db").read_text() == "notes"
