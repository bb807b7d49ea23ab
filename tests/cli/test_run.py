"""`flowengine run`, as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

PRINTED = "a print of the flow's code\n"


def test_one_text_is_printed_alone_and_prints_of_the_flow_go_to_stderr(flowengine: Command) -> None:
    assert flowengine("run", "shout.yaml") == (0, "HELLO\n", PRINTED)


def test_several_outputs_are_printed_by_name_with_structures_as_json(flowengine: Command) -> None:
    said = flowengine("run", "typed.yaml", "-i", "n=2", "-i", 'items=["a", {"b": 1}]')
    assert said.code == 0
    assert said.out == 'total: 4\nitems: ["a", {"b": 1}]\non: false\npoem:\n  one\n  two\n'


def test_inputs_come_from_a_file_and_the_command_line_wins(flowengine: Command, folder: Path) -> None:
    (folder / "in.json").write_text('{"n": 5, "on": true}')
    assert "total: 10" in flowengine("run", "typed.yaml", "--inputs", "in.json").out
    assert "total: 2\n" in flowengine("run", "typed.yaml", "--inputs", "in.json", "-i", "n=1").out


def test_a_text_is_read_from_a_file_as_it_is(flowengine: Command, folder: Path) -> None:
    (folder / "text.txt").write_text("日本語 é\n")
    assert flowengine("run", "shout.yaml", "-i", "text=@text.txt").out == "日本語 É\n\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "n=two"], "error: input 'n': expected integer as JSON, found 'two'"),
        (["-i", "n=1.5"], "error: input 'n': expected integer, found float 1.5"),
        (["-i", "items=a,b"], """error: input 'items': expected array as JSON, found 'a,b'; such as ["a", "b"]"""),
        (["-i", "on=yes"], "error: input 'on': expected boolean as JSON, found 'yes'; it is true or false"),
        (["-i", "n=NaN"], "error: input 'n': expected integer as JSON, found 'NaN'"),
        (["-i", "n=" + "9" * 5000], "error: input 'n': expected integer as JSON, found '9999"),
        (["--inputs", "digits.json"], "error: --inputs: 'digits.json' is not JSON: 99999999"),
        (["-i", "items=" + "[" * 100_000], "error: input 'items': expected array as JSON"),
        (["-i", "n=1", "-i", "n=2"], "error: input 'n' is given twice"),
        (["-i", "n"], "error: -i 'n': expected key=value"),
        (["-i", "=1"], "error: -i '=1': expected key=value"),
        (["-i", "m=1"], "error: unknown input 'm'; there are n, half, on"),
        ([], "error: missing input 'n' (integer: how many)"),
        (["-i", "n=@nowhere"], "error: input 'n': cannot read 'nowhere': No such file or directory"),
        (["-i", "any=x", "-i", "n=1"], "error: input 'any': expected integer or null as JSON, found 'x'"),
        (["--inputs", "nowhere.json"], "error: --inputs: cannot read 'nowhere.json': No such file or directory"),
        (["--inputs", "typed.yaml"], "error: --inputs: 'typed.yaml' is not JSON"),
        (["--inputs", "list.json"], "error: --inputs: 'list.json' must hold a JSON object, found an array"),
        (["--inputs", "-", "-i", "n=@-"], "error: stdin can be read once, and is asked for by n and by --inputs"),
    ],
)
def test_wrong_inputs_are_told_and_nothing_runs(
    flowengine: Command, folder: Path, arguments: list[str], message: str
) -> None:
    (folder / "list.json").write_text("[]")
    (folder / "digits.json").write_text('{"n": ' + "9" * 5000 + "}")
    said = flowengine("run", "typed.yaml", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith(message)
    assert "9999" not in message or "… is an integer of 5,000 digits, more than any may have" in said.err
    assert not (folder / ".flowengine").exists()


def test_a_wrong_flow_is_told_problem_by_problem(flowengine: Command) -> None:
    said = flowengine("run", "bad.yaml")
    assert said.code == 2
    assert said.err.splitlines() == [
        "error: bad.yaml:4:13: FE204 node 'a': unknown node type 'functio'; did you mean 'function'?",
        said.err.splitlines()[1],
    ]
    assert said.err.splitlines()[1].startswith("error: bad.yaml:5:")


@pytest.mark.parametrize("path", ["nowhere.yaml", ".", "steps.py", "\x1b[31m.yaml", "a\0b"])
def test_a_file_that_is_no_flow_is_an_error_in_plain_text(flowengine: Command, path: str) -> None:
    said = flowengine("run", path)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert "\x1b" not in said.err


def test_a_failed_run_names_its_node_and_how_to_go_on(flowengine: Command) -> None:
    said = flowengine("run", "fragile.yaml", "--run-id", "r1")
    assert said.code == 1
    assert said.out == ""
    assert said.err.splitlines() == [
        r"error: node 'fragile': ValueError: broken \x1b[31mred",
        "  what happened: flowengine runs show --node fragile r1",
        "  to go on: flowengine resume r1",
    ]


def test_the_command_to_go_on_names_the_store_that_was_given(flowengine: Command) -> None:
    said = flowengine("run", "fragile.yaml", "--run-id", "r1", "--store", "my runs.db")
    assert "flowengine resume r1 --store 'my runs.db'" in said.err


def test_a_run_that_is_kept_nowhere_is_not_to_be_resumed(flowengine: Command) -> None:
    said = flowengine("run", "fragile.yaml", "--store", "memory:")
    assert said.code == 1
    assert "resume" not in said.err


def test_a_limit_has_its_own_exit_code(flowengine: Command) -> None:
    said = flowengine("run", "sleep.yaml", "--timeout", "100ms")
    assert said.code == 4
    assert said.err.startswith("error: the run took longer than its limit of 0.1 s\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--timeout", "soon"],
        ["--timeout", "0s"],
        ["--timeout", ""],
        ["--concurrency", "0"],
        ["--run-id", "a b"],
        ["--run-id", "a" * 65],
        ["--run-id", "../etc"],
        ["--durability", "never"],
        ["--json", "--events"],
        ["--nosuch"],
    ],
)
def test_a_wrong_option_is_a_usage_error(flowengine: Command, folder: Path, arguments: list[str]) -> None:
    said = flowengine("run", "shout.yaml", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert "Usage: flowengine run" in said.err
    assert not (folder / ".flowengine").exists()


def test_a_run_id_is_used_once(flowengine: Command) -> None:
    assert flowengine("run", "shout.yaml", "--run-id", "once").code == 0
    said = flowengine("run", "shout.yaml", "--run-id", "once")
    assert said.code == 2
    assert "run 'once' exists already in .flowengine/runs.db; resume it, or choose another id" in said.err


@pytest.mark.parametrize("store", ["shout.yaml", "nosuch:thing", "steps.py/runs.db"])
def test_a_store_that_cannot_be_used_is_an_error_before_anything_runs(flowengine: Command, store: str) -> None:
    said = flowengine("run", "shout.yaml", "--store", store)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err


def test_json_is_one_object_with_everything(flowengine: Command) -> None:
    found = json.loads(flowengine("run", "shout.yaml", "--json", "--run-id", "r1").out)
    assert (found["run_id"], found["flow"], found["status"]) == ("r1", "shout", "succeeded")
    assert found["outputs"] == {"loud": "HELLO"}
    assert found["error"] is None
    assert found["nodes"]["shout"]["status"] == "succeeded"
    assert (found["tokens"], found["cost_usd"]) == (0, 0.0)


def test_json_of_a_failed_run_tells_the_error_and_what_did_not_run(flowengine: Command) -> None:
    said = flowengine("run", "fragile.yaml", "--json")
    found = json.loads(said.out)
    assert said.code == 1
    assert found["error"] == {"type": "ValueError", "message": "ValueError: broken \x1b[31mred", "node": "fragile"}
    assert [node["status"] for node in found["nodes"].values()] == ["succeeded", "failed", "skipped"]
    assert found["nodes"]["after"]["cause"] == "upstream_failed"


def test_events_are_lines_of_json_from_the_start_to_the_end(flowengine: Command) -> None:
    said = flowengine("run", "shout.yaml", "--events")
    events = [json.loads(line) for line in said.out.splitlines()]
    types = ["RunStarted", "NodeStarted", "NodeRecorded", "NodeFinished", "RunFinished"]
    assert [event["type"] for event in events] == types
    assert events[3]["result"]["output"] == "HELLO"
    assert events[4]["outputs"] == {"loud": "HELLO"}


def test_a_notice_is_told_once_a_run(flowengine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOWENGINE_DEFAULT_MODEL")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert flowengine("run", "agents.yaml").err.count("notice: ") == 1
    assert "notice" not in flowengine("run", "agents.yaml", "--quiet").err


def test_the_store_comes_from_the_environment_or_the_project(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "flowengine.toml").write_text('store = "kept/project.db"\nallow_calls = ["steps"]\npythonpath = ["."]\n')
    assert flowengine("run", "shout.yaml").code == 0
    assert (folder / "kept" / "project.db").exists()
    monkeypatch.setenv("FLOWENGINE_STORE", "env.db")
    assert flowengine("run", "shout.yaml").code == 0
    assert (folder / "env.db").exists()
    assert not (folder / ".flowengine").exists()


def test_a_pipe_gets_the_output_with_its_control_characters_written_out(flowengine: Command) -> None:
    assert flowengine("run", "hostile.yaml").out == "ok\\x1b]0;owned\\x07[bold]\\u202e\n"


def test_code_that_exits_ends_no_more_than_its_run(flowengine: Command) -> None:
    said = flowengine("run", "leave.yaml")
    assert said.code == 1
    assert "error: " in said.err
    assert "SystemExit" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("debug", ["", "0", "1"])
def test_an_unexpected_exception_is_one_line_unless_asked(
    flowengine: Command, monkeypatch: pytest.MonkeyPatch, debug: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("nothing\nanybody expects")

    monkeypatch.setattr("flowengine.flow.Flow.from_yaml", broken)
    monkeypatch.setenv("FLOWENGINE_DEBUG", debug)
    said = flowengine("run", "shout.yaml")
    first, *others = said.err.splitlines()
    assert said.code == 1
    assert first.startswith("error: KeyError: ")
    assert "a bug in FlowEngine or in the flow's code; FLOWENGINE_DEBUG=1 shows where" in first
    assert bool(others) == (debug == "1")
