"""`flowengine schedules` lists the schedules of the project, with their next and last runs. It starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from time import time
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from flowengine.cli.options import format_store, open_journal, store_option
from flowengine.cli.terminal import Results, complain, format_table
from flowengine.core import Schedule, ScheduleState
from flowengine.engine import JournalStore, RunInfo
from flowengine.errors import DefinitionError, InputError, did_you_mean
from flowengine.flowfile.project import Project, find_project
from flowengine.models import load_environment

_UNSERVED: Final = 900.0
"""Seconds without a sign of the process that serves a schedule, after which it is said."""


@click.command("schedules")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--next", "count", type=click.IntRange(1, 100), default=1, show_default=True, metavar="N",
              help="How many of the next runs are shown.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@store_option
def command(names: tuple[str, ...], count: int, as_json: bool, store: str | None) -> int:
    """List the schedules of the project file (`[[schedules]]`): when they run next, and what became of the last run.

    `flowengine worker` and `flowengine serve` run them. Exit code 2 where a flow cannot be run with its inputs.
    """
    project = find_project()
    unknown = [each for each in names if each not in {schedule.name for schedule in project.schedules}]
    if unknown:
        names_of_all = [each.name for each in project.schedules]
        hint = did_you_mean(unknown[0], names_of_all) or f" (there are {', '.join(names_of_all) or 'none'})"
        raise click.UsageError(f"there is no schedule '{unknown[0]}'{hint}")
    schedules = [each for each in project.schedules if not names or each.name in names]
    if not schedules:
        complain("no schedules: [[schedules]] of the project file names flows that run by the clock")
        return 0
    with open_journal(store) as journal:
        rows = [_describe(each, journal, count) for each in schedules]
    problems = {each.name: problem for each in schedules if (problem := _find_problem(each, project)) is not None}
    results = Results()
    if as_json:
        results.value([{**each, "problem": problems.get(each["name"])} for each in rows])
    else:
        _print(results, rows, format_store(store))
    for name, problem in problems.items():
        complain(f"schedule '{name}': {problem}")
    return 2 if problems else 0


def _describe(schedule: Schedule, store: JournalStore, count: int) -> dict[str, Any]:
    """Describes a schedule in JSON types; times include their zone."""
    from flowengine.runtime.schedules import recall_state  # Commands are imported for their help, too.

    state, last = recall_state(store, schedule.name), _find_last_run(store, schedule)
    return {
        "name": schedule.name,
        "flow": schedule.flow,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "overlap": schedule.overlap,
        "catch_up": schedule.catch_up,
        "next": [_format(schedule, tick) for tick in islice(schedule.next_ticks(time()), count)],
        "last_run": None if last is None else last.run_id,
        "last_status": None if last is None else last.status,
        "pending": [] if state is None else [_format(schedule, tick) for tick in state.pending],
        "told": "" if state is None else state.told,
        "is_served": _is_served(state),
    }


def _is_served(state: ScheduleState | None) -> bool:
    return state is not None and time() - state.decided < _UNSERVED


def _find_last_run(store: JournalStore, schedule: Schedule) -> RunInfo | None:
    from flowengine.runtime.schedules import LABEL  # As above.

    return next((each for each in store.list() if each.labels.get(LABEL) == schedule.name), None)


def _format(schedule: Schedule, at: float) -> str:
    return datetime.fromtimestamp(at, ZoneInfo(schedule.timezone)).isoformat(timespec="minutes")


def _find_problem(schedule: Schedule, project: Project) -> str | None:
    """Explains why the schedule's flow cannot run with its inputs, as far as known without running it."""
    from flowengine.flowfile.compile import load_plan  # As above.
    from flowengine.nodes import checked_inputs

    try:
        plan = load_plan(project.root / schedule.flow, environ=load_environment())
        files = {name for name, each in (plan.inputs or {}).items() if each.type == "file"}
        fields: Any = None if plan.inputs is None else {name: plan.inputs[name] for name in plan.inputs.keys() - files}
        checked_inputs(fields, {name: each for name, each in schedule.inputs.items() if name not in files})
    except (DefinitionError, InputError) as error:
        return str(error)
    return None


def _print(results: Results, schedules: Sequence[Mapping[str, Any]], store: str) -> None:
    rows = [["NAME", "FLOW", "CRON", "NEXT", "LAST RUN", "STATUS"]]
    for each in schedules:
        first, *more = each["next"] or ["never"]
        rows.append(
            [each["name"], each["flow"], each["cron"], first, each["last_run"] or "–", each["last_status"] or ""]
        )
        rows += [["", "", "", later, "", ""] for later in more]
    results.lines(format_table(rows))
    for each in schedules:
        if each["pending"]:
            complain(f"schedule '{each['name']}': {', '.join(each['pending'])} waits for the run before it")
        if each["told"]:
            complain(f"schedule '{each['name']}': {each['told']}")
    if not any(each["is_served"] for each in schedules):
        complain(f"no process has served them on {store} lately: start `flowengine worker` or `flowengine serve`")
