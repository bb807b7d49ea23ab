"""`flowengine test` runs the cases of flowtest files without pytest; `flowengine record` makes a cassette of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowengine.cli.options import choose_store, open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, read
from flowengine.cli.terminal import Results, complain
from flowengine.models.outbound import VARIABLE as REQUESTS
from flowengine.testing.modes import MODES, Mode, choose_mode

if TYPE_CHECKING:
    from flowengine.testing.flowtest import FlowTest

__all__ = ["record_command", "test_command"]

_SUFFIX = ".flowtest.yaml"


@click.command("test")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--cassettes", type=click.Choice(MODES), help="none: play only; once: record where there is no file; new: record "
    "what the file lacks; all: record anew.  [default: none where CI is set, else once]",
)  # fmt: skip
def test_command(paths: tuple[str, ...], cassettes: str | None) -> int:
    """Run flowtest files; a folder, by default this one, stands for all of them below it.

    No model is asked unless a cassette records. Exit code 1 where a case fails, 2 where a file is wrong.
    """
    from flowengine.testing.flowtest import load_flowtest

    os.environ.setdefault(REQUESTS, "0")
    results, mode = Results(), choose_mode(cassettes)
    with results.alone():
        tests = [load_flowtest(file) for path in paths or (".",) for file in list_flowtest_files(path)]
    failed = sum(_run_cases(test, mode, results) for test in tests)
    complain(_format_summary(tests, failed))
    return 1 if failed else 0


def list_flowtest_files(path: str) -> list[Path]:
    """The file itself, or the flowtest files below a folder, sorted; a folder without one is an error."""
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    found = sorted(each for each in folder.rglob(f"*{_SUFFIX}") if each.is_file())
    if not found:
        raise click.UsageError(f"there is no *{_SUFFIX} file in '{path}'")
    return found


def _run_cases(test: FlowTest, mode: Mode, results: Results) -> int:
    """Run a file's cases; the number of those that fail."""
    from flowengine.testing.cases import line_of, run_case

    failed = 0
    for number, case in enumerate(test.cases):
        with results.alone():
            findings = run_case(test, number, mode)
        place = f"{test.path}:{line_of(test, number)}"
        results.line(f"{'failed' if findings else 'passed'}  {place}  {case.name}")
        for finding in findings:
            results.line("  " + str(finding).replace("\n", "\n    "))
        failed += bool(findings)
    return failed


def _format_summary(tests: Sequence[FlowTest], failed: int) -> str:
    cases = sum(len(test.cases) for test in tests)
    what = f"{cases} case{'s' * (cases != 1)} in {len(tests)} file{'s' * (len(tests) != 1)}"
    return f"{what}: {f'{failed} failed' if failed else 'all passed'}"


# --- `flowengine record`


@click.command("record", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="The cassette to write.  [default: stdout]")
@store_option
def record_command(reference: str, output: str | None, store: str | None) -> int:
    """Make a cassette of the model calls of RUN: an id, the start of one, or @last.

    Nothing is asked again: every call of a run is in its record. Tests play the cassette back. Keys and
    headers do not get into it; what the prompts say does.
    """
    from flowengine.testing.cassette_file import cassette_text, recorded_calls, write_cassette

    with open_journal(choose_store(store)) as kept:
        calls = recorded_calls(read(kept, kept.find(reference)))
    if output is None:
        Results().document(cassette_text(calls).rstrip("\n"))
        return 0
    write_cassette(Path(output), calls)
    complain(f"{len(calls)} call{'s' * (len(calls) != 1)} in {output}")
    return 0
