"""The command table, usage errors, and the exit codes of exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click
import pytest

from flowengine.cli.ending import exit_code, report
from flowengine.cli.main import COMMANDS, cli
from flowengine.cli.options import DURABILITIES
from flowengine.engine.ports import Durability
from flowengine.errors import (
    FlowChangedError,
    FlowError,
    InputError,
    LimitError,
    NodeError,
    RunNotFoundError,
    StoreCorruptError,
)
from flowengine.version import __version__

Command = Callable[..., Any]


def test_the_version_is_a_result(flowengine: Command) -> None:
    assert flowengine("--version") == (0, f"flowengine {__version__}\n", "")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command(flowengine: Command, option: str) -> None:
    said = flowengine(option)
    assert said.code == 0
    assert all(f"  {name} " in said.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(flowengine: Command, name: str) -> None:
    assert isinstance(cli.get_command(click.Context(cli), name), click.Command)
    said = flowengine(name, "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: flowengine {name} ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["valdate", "x"], "there is no command 'valdate'; did you mean 'validate'?"),
        (["zebra"], "there is no command 'zebra'"),
        (["trace"], "there is no command 'trace'; did you mean 'runs show'?"),
        (["a.yaml"], "there is no command 'a.yaml'; did you mean 'run a.yaml'?"),
        (["help"], "there is no command 'help'; did you mean '--help'?"),
        (["run", "a.yaml", "text=x"], "found 'text=x' beside FLOW; an input is given as -i text=x"),
        (["run", "a.yaml", "b.yaml"], "found 'b.yaml' beside FLOW: one flow is run"),
        (["--zebra"], "No such option"),
        (["run"], "Missing argument 'FLOW'"),
        (["validate"], "Missing argument 'PATH...'"),
        (["runs", "lost"], "No such command 'lost'"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(flowengine: Command, argv: list[str], message: str) -> None:
    said = flowengine(*argv)
    assert said.code == 2
    assert said.out == ""
    assert message in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FlowError([]), 2),
        (InputError("missing"), 2),
        (RunNotFoundError("none"), 2),
        (StoreCorruptError("broken"), 2),
        (NodeError("a", "failed"), 1),
        (LimitError("too long"), 4),
        (FlowChangedError("edited", ["a"]), 5),
        (KeyError("x"), 1),
    ],
)
def test_errors_have_their_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_a_record_that_breaks_during_a_run_is_a_failure_of_the_run() -> None:
    assert exit_code(StoreCorruptError("broken"), has_run=True) == 1


def test_an_error_alone_in_its_groups_is_told_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(ExceptionGroup("outer", [ExceptionGroup("inner", [InputError("missing input 'n'")])])) == 2
    assert capsys.readouterr().err == "error: missing input 'n'\n"


def test_an_error_without_a_message_still_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    report(ValueError())
    report(FlowError([]))
    assert capsys.readouterr().err.splitlines() == [
        "error: ValueError (a bug in FlowEngine or in the flow's code; FLOWENGINE_DEBUG=1 shows where)",
        "error: FlowError",
    ]


def test_the_durabilities_offered_are_those_of_the_journal() -> None:
    assert set(DURABILITIES) == set(get_args(Durability))
