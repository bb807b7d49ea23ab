"""Commands that make and run tests.

`flowengine test` runs the cases of flowtest files without pytest; `flowengine record` makes a cassette of a run, and
`flowengine runs to-test` a flow test, or a row of data.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowengine.cli.options import open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, read
from flowengine.cli.terminal import Results, complain
from flowengine.core import EMPTY, tells_refusals, write_output
from flowengine.engine import Event, RunStarted
from flowengine.errors import InputError
from flowengine.journal import labels_of, unfold_reused
from flowengine.models import VARIABLE as REQUESTS
from flowengine.testing import MODES, Mode, choose_mode

if TYPE_CHECKING:
    from flowengine.testing import FlowTest

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
    from flowengine.testing import load_flowtest

    os.environ.setdefault(REQUESTS, "0")
    results, mode = Results(), choose_mode(cassettes)
    with results.alone():
        tests = [load_flowtest(file) for path in paths or (".",) for file in list_flowtest_files(path)]
    failed = sum(_run_cases(test, mode, results) for test in tests)
    for remark in (remark for test in tests for remark in test.remarks):
        complain(f"notice: {remark}")
    complain(_format_summary(tests, failed))
    return 1 if failed else 0


def list_flowtest_files(path: str) -> list[Path]:
    """The file itself, or the flowtest files below a folder, sorted; a folder without one is an error."""
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    files = sorted(each for each in folder.rglob(f"*{_SUFFIX}") if each.is_file())
    if not files:
        raise click.UsageError(f"there is no *{_SUFFIX} file in '{path}'")
    return files


def _run_cases(test: FlowTest, mode: Mode, results: Results) -> int:
    """Run a file's cases; the number of those that fail."""
    from flowengine.testing import line_of, run_case

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
    from flowengine.testing import cassette_text, recorded_calls, write_cassette

    with open_journal(store) as journal:
        run = unfold_reused(read(journal, journal.find(reference)), partial(read, journal))
    for each in run.lacking:
        complain(f"notice: {each}")
    calls = recorded_calls(run.events)
    if output is None:
        Results().document(cassette_text(calls).rstrip("\n"))
        return 0
    write_cassette(Path(output), calls)
    complain(f"{len(calls)} call{'s' * (len(calls) != 1)} in {output}")
    return 0


# --- `flowengine runs to-test`


@click.command("to-test", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="The file to write; a row is added to it.  [default: stdout]")  # fmt: skip
@click.option("--row", "as_row", is_flag=True, help="A row of data with its outputs as expected, for an eval.")
@click.option("--mask", is_flag=True, help="Without personal data and secrets.")
@click.option("--name", metavar="TEXT", default="", help="What the test says of the flow.")
@click.option("--force", is_flag=True, help="Also over a file that is there.")
@store_option
def to_test(
    reference: str, output: Path | None, as_row: bool, mask: bool, name: str, force: bool, store: str | None
) -> int:
    """Make a test of RUN: an id, the start of one, or @last.

    It has the run's inputs, what models, tools, functions and people answered, and the outputs as expected, so that
    `flowengine test` runs it without asking anybody.
    """
    from flowengine.testing import make_row, make_test

    with open_journal(store) as journal:
        run_id = journal.find(reference)
        events = read(journal, run_id)
        run = unfold_reused(events, partial(read, journal))
    _refuse_judges(run_id, events)
    if as_row:
        text = make_row(events, run_id, mask=mask) + "\n"
    else:
        _check_name(output, force=force)
        case = make_test(run.events, run_id, mask=mask, folder=output and output.parent, name=name, lacking=run.lacking)
        text = case.text
        for each in run.lacking:
            complain(f"notice: {each}")
    if output is None:
        Results().document(text.rstrip("\n"))
    elif as_row:
        begin = "" if _has_whole_lines(output) else "\n"
        with tells_refusals(output), output.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(begin + text)
        complain(f"added a row to {output}")
    else:
        write_output(output, [text])
        complain(f"wrote {output}\nto run it: flowengine test {output}")
    return 0


def _refuse_judges(run_id: str, events: Sequence[Event]) -> None:
    """`@last` behind an eval is what its judges were asked, which is no run of a flow that anybody wrote."""
    labels = labels_of(events[0]) if isinstance(events[0], RunStarted) else EMPTY
    if labels.get("part") == "judges" and "eval" in labels:
        filters = " ".join(f"--label {name}={labels[name]}" for name in ("set", "row") if name in labels)
        raise InputError(
            f"run '{run_id}' is what the judges of the eval '{labels['eval']}' were asked; "
            f"the run that they judged: flowengine runs list --label part=flow {filters}"
        )


def _has_whole_lines(place: Path) -> bool:
    """Tells whether the last line of a file has an end; editors may leave it out."""
    if not place.is_file() or not place.stat().st_size:
        return True
    with tells_refusals(place), place.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _check_name(place: Path | None, *, force: bool) -> None:
    if place is not None and not place.name.endswith(_SUFFIX):
        raise InputError(f"-o {place}: the name of a flow test ends with {_SUFFIX}")
    if place is not None and place.exists() and not force:
        raise InputError(f"{place} is there already: --force writes over it, -o names another")
