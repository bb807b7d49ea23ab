"""Limits on the command line: chosen at the start, raised by the command that is printed, and kept from then on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from flowengine.cli.options import FiniteRange

Command = Callable[..., Any]

FLOW = """
flowengine: v1
name: calls
limits: {model_calls: 1, on_limit: pause}
nodes:
  one: {instructions: Say one thing., prompt: First words.}
  two: {instructions: Say one thing., prompt: Second words., needs: [one]}
  three: {instructions: Say one thing., prompt: Third words., needs: [two]}
  four: {instructions: Say one thing., prompt: Fourth words., needs: [three]}
"""


@pytest.fixture
def flow(folder: Path) -> str:
    (folder / "calls.yaml").write_text(FLOW)
    return "calls.yaml"


def test_a_run_that_paused_prints_the_command_that_goes_on_with_a_higher_limit(flowengine: Command, flow: str) -> None:
    said = flowengine("run", flow, "--run-id", "r1")
    assert said.code == 4
    line = said.err.splitlines()[-1]
    assert line == "  to go on with a higher limit: flowengine resume --max-calls 2 r1"
    again = flowengine(*line.partition("flowengine ")[2].split())
    assert again.err.splitlines()[-1] == "  to go on with a higher limit: flowengine resume --max-calls 4 r1"
    assert flowengine("resume", "r1", "--max-calls", "4").code == 0


def test_a_second_resume_keeps_the_raised_limit(flowengine: Command, flow: str) -> None:
    flowengine("run", flow, "--run-id", "r1")
    assert flowengine("resume", "r1", "--max-calls", "3").code == 4
    again = flowengine("resume", "r1")
    assert "limit of 3 model calls" in again.err
    assert again.err.splitlines()[-1].endswith("resume --max-calls 6 r1")


def test_a_run_is_started_with_limits_of_its_own(flowengine: Command, flow: str) -> None:
    assert flowengine("run", flow, "--run-id", "r1", "--max-calls", "2").code == 4
    assert "limit of 2 model calls" in flowengine("resume", "r1").err
    assert flowengine("run", flow, "--run-id", "r2", "--max-calls", "9").code == 0
    said = flowengine("run", flow, "--run-id", "r3", "--max-calls", "9", "--max-tokens", "1")
    assert said.code == 4
    assert "limit of 1 token" in said.err
    assert "resume --max-tokens " in said.err.splitlines()[-1]
    assert flowengine("resume", "r3", "--max-tokens", "100000").code == 0


def test_a_cost_that_nothing_may_have_ends_the_run(flowengine: Command, flow: str) -> None:
    assert flowengine("run", flow, "--max-cost", "-1").code == 2
    assert flowengine("run", flow, "--max-cost", "5", "--max-calls", "9").code == 0


def test_a_run_that_failed_at_its_limit_is_told_the_same(flowengine: Command, folder: Path) -> None:
    (folder / "strict.yaml").write_text(FLOW.replace(", on_limit: pause", ""))
    said = flowengine("run", "strict.yaml", "--run-id", "r1")
    assert said.code == 4
    assert said.err.splitlines()[-1] == "  to go on with a higher limit: flowengine resume --max-calls 2 r1"


def test_the_limit_of_a_node_is_raised_in_the_file(flowengine: Command, folder: Path) -> None:
    own = "  two: {limits: {tokens: 1, on_limit: pause}, "
    file = folder / "own.yaml"
    text = FLOW.replace("model_calls: 1,", "model_calls: 9,").replace("  two: {", own)
    file.write_text(text)
    said = flowengine("run", "own.yaml", "--run-id", "r1")
    assert said.code == 4
    line = said.err.splitlines()[-1]
    assert line.startswith("  to go on: raise the limits of node 'two' in the flow's file, then: flowengine resume ")
    file.write_text(text.replace("tokens: 1", "tokens: 9999"))
    assert flowengine(*line.partition("then: flowengine ")[2].split()).code == 0


def test_a_time_that_was_up_begins_anew(flowengine: Command, folder: Path) -> None:
    said = flowengine("run", "sleep.yaml", "--run-id", "r1", "--timeout", "10ms", "-i", "seconds=60")
    assert said.code == 4
    assert said.err.splitlines()[-1] == "  to go on: flowengine resume r1"


def test_a_fork_takes_limits_of_its_own(flowengine: Command, flow: str) -> None:
    flowengine("run", flow, "--run-id", "r1", "--max-calls", "2")
    assert flowengine("resume", "r1", "--from", "two", "--max-calls", "9").code == 0


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "-inf"])
def test_an_amount_is_a_finite_number(text: str) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0, min_open=True).convert(text, None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "calls.yaml", "--timeout", "0d"), "a duration must be longer than nothing"),
        (("submit", "calls.yaml", "--at", "99999999h"), "'99999999h' is no time: write 2030-01-31T08:00, or 30m"),
    ],
)
def test_a_time_that_is_none_is_told(flowengine: Command, flow: str, arguments: tuple[str, ...], said: str) -> None:
    told = flowengine(*arguments)
    assert (told.code, said in told.err) == (2, True), told.err
