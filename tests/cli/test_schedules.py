"""`flowengine schedules`: what runs when, and what became of the last run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]

PROJECT = """
[[schedules]]
name = "daily"
flow = "shout.yaml"
cron = "30 7 * * *"
timezone = "Europe/Berlin"
{more}
"""


def write(folder: Path, more: str = "") -> None:
    (folder / "flowengine.toml").write_text(f'allow_calls = ["steps"]\n{PROJECT.format(more=more)}')


def test_next_and_last_runs_are_listed(flowengine: Command, folder: Path) -> None:
    write(folder)
    run = flowengine("run", "shout.yaml", "--run-id", "r1", "--label", "schedule=daily")
    assert run.code == 0, run.err
    said = flowengine("schedules", "--next", "2")
    head, first, second = said.out.splitlines()
    assert said.code == 0
    assert head.split() == ["NAME", "FLOW", "CRON", "NEXT", "LAST", "RUN", "STATUS"]
    assert first.split()[:7] == ["daily", "shout.yaml", "30", "7", "*", "*", "*"]
    assert "T07:30+0" in first
    assert first.split()[-2:] == ["r1", "succeeded"]
    assert "T07:30+0" in second
    assert "no process has served them on .flowengine/runs.db lately" in said.err
    [told] = json.loads(flowengine("schedules", "daily", "--json").out)
    assert (told["last_run"], told["last_status"], told["is_served"], told["problem"]) == (
        "r1",
        "succeeded",
        False,
        None,
    )


def test_inputs_that_do_not_fit_the_flow_are_told(flowengine: Command, folder: Path) -> None:
    write(folder, 'inputs = {txt = "x"}')
    said = flowengine("schedules")
    assert (said.code, "daily" in said.out) == (2, True)
    assert "schedule 'daily': unknown input 'txt'" in said.err


def test_an_unknown_schedule_and_none_at_all(flowengine: Command, folder: Path) -> None:
    write(folder)
    said = flowengine("schedules", "dayly")
    assert (said.code, "there is no schedule 'dayly'; did you mean 'daily'?" in said.err) == (2, True)
    (folder / "flowengine.toml").write_text("")
    said = flowengine("schedules")
    assert (said.code, said.out, "no schedules: [[schedules]]" in said.err) == (0, "", True)
