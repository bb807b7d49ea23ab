"""`flowengine test` and `flowengine record`, as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.cli.main import main

FLOW = """\
flowengine: v1
name: hello
inputs: {who: {type: string, default: Ann}}
nodes:
  greet: {instructions: Greet., prompt: "I am {{ inputs.who }}."}
"""
CASES = """\
flow: hello.yaml
cases:
  - name: it greets
    answers: {greet: Hi!}
  - name: it is polite
    answers: {greet: Hi!}
    expect: {outputs: {greet: Good morning}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_STORE", str(tmp_path / "runs.db"))
    (tmp_path / "hello.yaml").write_text(FLOW, "utf-8")
    return tmp_path


def test_test_runs_files_and_folders_and_fails_where_a_case_fails(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (folder / "hello.flowtest.yaml").write_text(CASES, "utf-8")
    assert main(["test", "."]) == 1
    told, notes = map(bytes.decode, capfdbinary.readouterr())
    assert told.splitlines() == [
        "passed  hello.flowtest.yaml:3  it greets",
        "failed  hello.flowtest.yaml:5  it is polite",
        '  hello.flowtest.yaml:7:24: output \'greet\' was to be "Good morning", found "Hi!"',
    ]
    assert notes == "2 cases in 1 file: 1 failed\n"
    (folder / "hello.flowtest.yaml").write_text(CASES.replace("Good morning", "Hi!"), "utf-8")
    assert main(["test", "hello.flowtest.yaml"]) == 0
    assert "2 cases in 1 file: all passed" in capfdbinary.readouterr().err.decode()


def test_a_file_that_is_wrong_ends_before_anything_runs(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (folder / "a.flowtest.yaml").write_text(CASES, "utf-8")
    (folder / "b.flowtest.yaml").write_text(CASES.replace("answers", "answer"), "utf-8")
    assert main(["test", "."]) == 2
    told, notes = map(bytes.decode, capfdbinary.readouterr())
    assert told == ""
    assert "error: b.flowtest.yaml:4:5: FE201 unknown key 'answer'; did you mean 'answers'?" in notes


def test_a_folder_without_tests_is_an_error(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["test", "."]) == 2
    assert b"there is no *.flowtest.yaml file in '.'" in capfdbinary.readouterr().err


def test_a_run_becomes_a_cassette_that_its_test_plays(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["run", "hello.yaml", "--model", "offline", "-i", "who=Bob"]) == 0
    capfdbinary.readouterr()
    assert main(["record", "@last", "-o", "tapes/bob.yaml"]) == 0
    assert capfdbinary.readouterr().err.decode() == "1 call in tapes/bob.yaml\n"
    cases = "flow: hello.yaml\ncases:\n- name: Bob\n  inputs: {who: Bob}\n  cassette: tapes/bob.yaml\n"
    expect = "  expect: {path: [greet], outputs: {greet: {contains: I am Bob}}}\n"
    (folder / "bob.flowtest.yaml").write_text(cases + expect, "utf-8")
    assert main(["test", "--cassettes", "none", "bob.flowtest.yaml"]) == 0, capfdbinary.readouterr()


def test_without_a_file_the_cassette_goes_to_stdout(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    main(["run", "hello.yaml", "--model", "offline"])
    capfdbinary.readouterr()
    assert main(["record", "@last"]) == 0
    told = capfdbinary.readouterr().out.decode()
    assert "\ncassette: 1\ncalls:\n- node: greet\n  request:\n    model: offline\n" in told


def test_a_run_of_a_loop_becomes_a_cassette(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    loop = "\n  again: {type: loop, max_iterations: 1, on_exhausted: continue, initial: {v: 1}, carry: {v: 2}, nodes: "
    loop += "{say: {prompt: Say it}}}\n"
    (folder / "loop.yaml").write_text(f"flowengine: v1\nname: again\nnodes:{loop}", "utf-8")
    assert main(["run", "loop.yaml", "--model", "offline"]) == 0
    assert main(["record", "@last", "-o", "tapes/loop.yaml"]) == 0, capfdbinary.readouterr()
    assert "again.round[0].say" in (folder / "tapes/loop.yaml").read_text("utf-8")


def test_a_run_that_is_not_there_is_told(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["record", "@last", "-o", "x.yaml"]) == 2
    assert b"error: " in capfdbinary.readouterr().err
    assert not (folder / "x.yaml").exists()
