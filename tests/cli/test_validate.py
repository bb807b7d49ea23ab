"""`flowengine validate`: formats, folders, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.cli.commands.validate import list_flow_files
from flowengine.cli.ending import format_excerpt
from flowengine.errors import Diagnostic

Command = Callable[..., Any]


def test_a_sound_flow_prints_nothing_on_stdout(flowengine: Command) -> None:
    assert flowengine("validate", "shout.yaml", "agents.yaml") == (0, "", "2 files: no problems\n")


def test_every_problem_is_a_line_with_its_place(flowengine: Command) -> None:
    said = flowengine("validate", "bad.yaml")
    assert said.code == 2
    assert [line.split(" ")[:2] for line in said.out.splitlines()] == [
        ["bad.yaml:4:13:", "FE204"],
        ["bad.yaml:5:19:", "FE305"],
    ]
    assert said.err == "1 file: 2 errors\n"


def test_a_problem_is_one_line_whatever_its_file_is_called(flowengine: Command) -> None:
    [line] = flowengine("validate", "no\nfile.yaml: no problems").out.splitlines()
    assert line.startswith("no\\nfile.yaml: no problems: FE101 ")


def test_a_folder_stands_for_its_flow_files(flowengine: Command, folder: Path) -> None:
    said = flowengine("validate", str(folder))
    assert said.code == 2
    assert said.err.endswith(" files: 2 errors\n")
    assert [Path(each).name for each in list_flow_files(str(folder))[0]] == sorted(
        each.name for each in folder.glob("*.yaml")
    )


def test_a_folder_stands_for_the_flow_files_anywhere_below_it(flowengine: Command, folder: Path) -> None:
    """As `serve` and `test` take it: a flow that a server would refuse is not passed over in CI."""
    place = folder / "team"
    (place / "billing" / "tests").mkdir(parents=True)
    (place / "node_modules").mkdir()
    bad = (folder / "bad.yaml").read_text()
    for name in ("billing/bad.yaml", "node_modules/bad.yaml"):
        (place / name).write_text(bad)
    (place / "hello.yml").write_text("flowengine: v1\nname: hello\nnodes: {a: {prompt: hello}}\n")
    (place / "billing" / "tests" / "bad.flowtest.yaml").write_text("flow: ../bad.yaml\n")
    (place / "compose.yaml").write_text("services: {}\n")
    said = flowengine("validate", "team")
    assert said.code == 2
    assert said.err == "2 files: 2 errors; 1 other YAML file without `flowengine:` passed over\n"
    assert {line.split(":")[0] for line in said.out.splitlines()} == {"team/billing/bad.yaml"}
    (place / "hello.yml").unlink()
    assert flowengine("validate", "team").err.startswith("1 file: 2 errors")


def test_a_file_that_another_one_runs_is_told_of_once(flowengine: Command, folder: Path) -> None:
    (folder / "runs_bad.yaml").write_text(
        "flowengine: v1\nname: runs_bad\nnodes: {s: {type: subflow, flow: ./bad.yaml}}\n"
    )
    alone = flowengine("validate", "bad.yaml").out
    assert flowengine("validate", "runs_bad.yaml").out == alone
    said = flowengine("validate", "runs_bad.yaml", "bad.yaml")
    assert (said.out, said.err) == (alone, "2 files: 2 errors\n")


def test_a_folder_without_flows_is_a_usage_error(flowengine: Command, folder: Path) -> None:
    (folder / "empty").mkdir()
    said = flowengine("validate", "empty")
    assert said.code == 2
    assert "there is no flow file below 'empty'" in said.err


@pytest.mark.parametrize("path", ["nowhere.yaml", "steps.py"])
def test_what_is_no_flow_file_is_a_problem_like_others(flowengine: Command, path: str) -> None:
    said = flowengine("validate", path, "shout.yaml")
    assert said.code == 2
    assert said.out.startswith(f"{path}:")


def test_json_is_an_array_of_problems(flowengine: Command) -> None:
    found = json.loads(flowengine("validate", "bad.yaml", "--format", "json").out)
    assert [(each["code"], each["line"], each["node"]) for each in found] == [("FE204", 4, "a"), ("FE305", 5, "b")]
    assert json.loads(flowengine("validate", "shout.yaml", "--format", "json").out) == []


def test_control_characters_are_escaped_as_json_has_them(flowengine: Command, folder: Path) -> None:
    name = "dele\x7fted\x9b.yaml"
    (folder / name).write_text("flowengine: v1\nname: x\nnodes: {}\n")
    said = flowengine("validate", name, "--format", "json").out
    assert json.loads(said)[0]["file"] == name
    assert "\x7f" not in said


def test_text_of_a_flow_cannot_start_an_annotation_of_its_own(flowengine: Command, folder: Path) -> None:
    (folder / "x.yaml").write_text('flowengine: v1\nname: x\n"a\\n::error::owned": 1\nnodes: {a: {prompt: hi}}\n')
    said = flowengine("validate", "x.yaml", "--format", "github")
    assert said.code == 2
    assert said.out.splitlines()
    assert all(line.startswith("::error file=x.yaml,line=3,") for line in said.out.splitlines())


def test_warnings_are_errors_where_that_is_wanted(flowengine: Command, folder: Path) -> None:
    (folder / "warned.yaml").write_text(
        "flowengine: v1\nname: warned\nshared_state:\n  unused: {type: array, default: []}\nnodes: {a: {prompt: hi}}\n"
    )
    said = flowengine("validate", "warned.yaml")
    assert "warning" in said.out
    assert said.code == 0
    assert flowengine("validate", "warned.yaml", "--strict").code == 2


def test_the_caret_stands_below_its_column_after_wide_characters() -> None:
    shown = format_excerpt(Diagnostic("FE1", "x", line=1, column=4), "日本 x")
    assert shown == "\n    1 | 日本 x\n      |      ^"


@pytest.mark.parametrize(("line", "column"), [(None, None), (9, 1), (0, 1)])
def test_a_place_outside_the_text_has_no_excerpt(line: int | None, column: int | None) -> None:
    assert format_excerpt(Diagnostic("FE1", "x", line=line, column=column), "a") == ""


@pytest.mark.parametrize("column", [None, 0, 99])
def test_a_column_outside_the_line_has_no_caret(column: int | None) -> None:
    assert format_excerpt(Diagnostic("FE1", "x", line=1, column=column), "a") == "\n    1 | a"


def test_a_file_that_is_gone_has_no_excerpt(folder: Path) -> None:
    assert format_excerpt(Diagnostic("FE1", "x", "gone.yaml", 1, 1)) == ""
