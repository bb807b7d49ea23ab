"""`flowengine runs repair`: what it says of a store that is whole, and of one that is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


def flip(path: Path, text: bytes) -> None:
    """Another bit in the last place where the text stands in an event."""
    data = bytearray(path.read_bytes())
    data[data.index(text, data.rindex(b'"NodeFinished"'))] ^= 1
    path.write_bytes(data)


@pytest.fixture
def store(flowengine: Command, folder: Path) -> Path:
    """A store with two runs."""
    for run_id in ("r1", "r2"):
        assert flowengine("run", "shout.yaml", "--run-id", run_id).code == 0
    return folder / ".flowengine" / "runs.db"


def test_a_store_that_is_whole_is_said_to_be(flowengine: Command, store: Path) -> None:
    said = flowengine("runs", "repair")
    assert (said.code, said.out) == (0, "")
    assert "nothing is wrong with .flowengine/runs.db: 2 runs, all whole" in said.err
    assert not list(store.parent.glob("*repaired*"))


def test_the_error_names_the_command_and_the_run_goes_on_in_the_new_store(flowengine: Command, store: Path) -> None:
    flip(store, b"HELLO")
    shown = [flowengine("runs", "show", run_id) for run_id in ("r1", "r2")]
    assert sorted(each.code for each in shown)[0] == 0
    (damaged,) = [each.err for each in shown if each.code]
    assert "`flowengine runs repair --store .flowengine/runs.db`" in damaged
    said = flowengine("runs", "repair")
    assert said.code == 1
    assert "is not what was written" in said.out
    assert "wrote .flowengine/runs.repaired.db; .flowengine/runs.db is as it was" in said.err
    *_, hint = said.err.strip().splitlines()
    assert "flowengine resume r" in hint
    assert flowengine(*hint.partition("flowengine ")[2].split()).code == 0


def test_the_report_is_one_object_of_json(flowengine: Command, store: Path) -> None:
    flip(store, b"HELLO")
    said = flowengine("runs", "repair", "--json")
    report = json.loads(said.out)
    assert (said.code, report["repaired"], report["lost_beside"]) == (1, ".flowengine/runs.repaired.db", 0)
    assert sorted(run["state"] for run in report["runs"]) == ["cut", "whole"]
    again = flowengine("runs", "repair", "--json", "--store", report["repaired"])
    assert (again.code, json.loads(again.out)["repaired"]) == (0, None)


def test_only_files_are_repaired(flowengine: Command) -> None:
    said = flowengine("runs", "repair", "--store", "memory:")
    assert said.code == 2
    assert "only SQLite files are repaired" in said.err
    missing = flowengine("runs", "repair", "--store", "none.db")
    assert "none.db is no file" in missing.err
