"""`flowengine run` runs a flow file, from inputs to outputs; `flowengine resume` continues a run where it broke off."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from flowengine.cli import options
from flowengine.cli.execute import Execution, format_outputs
from flowengine.cli.options import (
    Reporting,
    RowsOptions,
    RunningOptions,
    add_rows_options,
    add_running_options,
    gather_inputs,
    label_option,
    open_journal,
)
from flowengine.cli.run_access import beginning, read
from flowengine.cli.terminal import Results, complain
from flowengine.core import parse_value
from flowengine.engine import Event, JournalStore, RunFinished, RunStarted
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.flowfile import place_of
from flowengine.models import load_environment
from flowengine.nodes import CompiledFlow
from flowengine.runtime import Live, Run, RunOptions, settings_of
from flowengine.runtime.local import local
from visualize.progress import fold_events


@click.command("run", context_settings={"allow_extra_args": True})
@click.argument("flow", metavar="FLOW")
@click.option(
    "-i",
    "--input",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An input; JSON for other types than text, @FILE for a file's text.",
)
@click.option("--inputs", "file", metavar="FILE", help="A JSON object of inputs; - is stdin. -i overrides it.")
@click.option("--run-id", callback=options.run_id, metavar="ID", help="The run's id; default: random.")
@click.option("--reuse", metavar="RUN", help="Re-use unchanged results of an earlier run: an id or @last.")
@click.option("--session", metavar="NAME", help="Continue the session of this name.")
@label_option("A label to find the run by (`runs list --label`).")
@add_rows_options
@add_running_options
def run_command(
    flow: str,
    pairs: tuple[str, ...],
    file: str | None,
    run_id: str | None,
    reuse: str | None,
    session: str | None,
    labels: Mapping[str, str],
    rows: RowsOptions | None,
    running: RunningOptions,
) -> int:
    """Run the flow in the file FLOW.

    One output that is text is printed alone, several as `name: value`. On a terminal the nodes are
    shown while they run.

    With --data it runs once for each row, --concurrency rows at once (by default 20). Stopped and started again with
    the same FLOW and FILE, it goes on where it was. The limits --max-cost, --max-calls and --max-tokens are those of
    all rows together, each time.
    """
    if others := click.get_current_context().args:
        how = f"; an input is given as -i {others[0]}" if "=" in others[0] else ": one flow is run"
        raise click.UsageError(f"found '{others[0]}' beside FLOW{how}")
    if rows is not None:
        for option, value in {"--run-id": run_id, "--reuse": reuse, "--session": session}.items():
            if value:
                raise click.UsageError(f"{option} does not go with --data")
    results = Results()
    with results.alone():
        plan = Flow.from_yaml(flow, model=running.settings.get("model"), environ=load_environment()).plan
    inputs = gather_inputs(plan.inputs, pairs, file)
    running = replace(running, settings={**running.settings, "folder": os.getcwd()})
    if rows is not None:
        from flowengine.cli.run_rows import RowsCommand  # A single run does without.

        if running.reporting.events:
            raise click.UsageError("--events does not go with --data: --json says how the rows ended")
        return RowsCommand(plan, rows, inputs, labels, running, results).run()

    new_id = run_id or local.new_run_id()

    async def job(journal: JournalStore, live: Live) -> Run:
        earlier = None if reuse is None else journal.find(reuse)
        options = RunOptions(
            run_id=new_id, session=session, reuse=earlier, settings=running.settings, labels=labels, live=live
        )
        return await local.start(plan, inputs, journal, options)

    return Execution(new_id, plan, running, results).run(job)


# --- `flowengine resume`


@click.command("resume")
@click.argument("reference", metavar="RUN")
@click.option("--allow-changed", is_flag=True, help="Go on although the flow was edited since the run started.")
@click.option(
    "--retry-effect",
    "retry_effects",
    metavar="NODE",
    multiple=True,
    help="Run the node's interrupted external call again; NODE:TOOL is one of several.",
)
@click.option(
    "--assume-done",
    metavar="NODE",
    multiple=True,
    help="Take the node's interrupted external call as done; NODE:TOOL is one of several.",
)
@click.option(
    "--failed-items",
    "repeat_failed_items",
    is_flag=True,
    help="Run again the items that failed under `on_item_error: collect` or `skip`, and all that is behind them.",
)
@click.option(
    "--from", "start", metavar="NODE", help="Begin a new run at NODE that shares RUN's past; RUN stays as it is."
)
@click.option(
    "--set",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="With --from: shared state as NODE finds it; a contribution where the key merges.",
)
@click.option(
    "-i", "--input", "changed", metavar="KEY=VALUE", multiple=True, help="With --from: another value of an input."
)
@click.option("--flow", "file", metavar="FILE", help="The flow file; default: that of the run.")
@add_running_options
def resume_command(
    reference: str,
    start: str | None,
    pairs: tuple[str, ...],
    changed: tuple[str, ...],
    file: str | None,
    running: RunningOptions,
    **options: Any,
) -> int:
    """Go on with RUN: an id, the start of one, or @last.

    What had finished is not run again and not paid again. Model and limits are those that the run last went
    on with, unless given anew; what it has spent counts.
    """
    if pairs and start is None:
        raise click.UsageError("--set goes with --from: it says what the node finds there")
    if changed and start is None:
        raise click.UsageError("-i goes with --from: a run that goes on has the inputs of its start")
    if options["repeat_failed_items"] and start is not None:
        raise click.UsageError("--failed-items and --from exclude each other")
    if start is not None:
        return _fork_run(reference, start, pairs, changed, file, running, **options)
    return resume_run(reference, running, file, **options)


def resume_run(
    reference: str, running: RunningOptions, file: str | None = None, *, may_be_busy: bool = False, **options: Any
) -> int:
    """Go on with a run, and give the exit code. `file`: of the flow; None: the run's own. `may_be_busy`: another
    process may go on with it instead. `options`: `RunOptions`."""
    results = Results()
    run_id, past = _read_run(reference, running.store)
    finished = past[-1]
    repeats = options.get("repeat_failed_items")
    if isinstance(finished, RunFinished) and finished.status == "succeeded" and not (repeats or finished.unkept):
        return _tell_succeeded(run_id, past, finished, running.reporting, results)
    with results.alone():
        plan = _load_plan(past, file, running)

    async def job(journal: JournalStore, live: Live) -> Run:
        return await local.resume(plan, run_id, journal, RunOptions(settings=running.settings, live=live, **options))

    return Execution(run_id, plan, running, results, past, may_be_busy).run(job)


def _fork_run(
    reference: str,
    start: str,
    pairs: tuple[str, ...],
    changed: tuple[str, ...],
    file: str | None,
    running: RunningOptions,
    **options: Any,
) -> int:
    results, new_id = Results(), local.new_run_id()
    run_id, past = _read_run(reference, running.store)
    with results.alone():
        plan = _load_plan(past, file, running)
    state = dict(map(_parse_pair, pairs))
    inputs = {**beginning(past).inputs, **gather_inputs(plan.inputs, changed, None)} if changed else None

    async def begin(journal: JournalStore, live: Live) -> Run:
        await local.write_fork(plan, run_id, journal, start, new_id=new_id, state=state, inputs=inputs)
        edits = beginning(journal.events(new_id)).settings.get("edited", ())
        if edits and not running.reporting.quiet:
            why = "edited since" if inputs is None else "edited since, or made with the inputs of that run"
            complain(f"notice: taken as in run {run_id}: {', '.join(edits)} ({why})")
        return await local.resume(plan, new_id, journal, RunOptions(settings=running.settings, live=live, **options))

    return Execution(new_id, plan, running, results).run(begin)


def _read_run(reference: str, store: str | None) -> tuple[str, Sequence[Event]]:
    with open_journal(store) as journal:
        run_id = journal.find(reference)
        return run_id, read(journal, run_id)


def _load_plan(past: Sequence[Event], file: str | None, running: RunningOptions) -> CompiledFlow:
    """The flow of a run that goes on, with the model that is named now, else the one that was named last."""
    model = running.settings.get("model") or settings_of(past).get("model")
    return load_flow_of_run(beginning(past), file, model).plan


def load_flow_of_run(started: RunStarted, file: str | None, model: Any) -> Flow:
    """Loads the flow from the file that is named, else from the run's own, else from the text that the run keeps."""
    if file is not None:
        return Flow.from_yaml(file, model=model, environ=load_environment())
    if started.path is None:
        raise DefinitionError(
            f"run {started.run_id} was started from a flow built in Python: resume it with Flow.resume(), "
            f"or name a flow file with --flow"
        )
    path = _localize_path(started.path, str(started.settings.get("folder", "")))
    if os.path.isfile(path):
        return Flow.from_yaml(path, model=model, environ=load_environment())
    if started.source is None:
        raise DefinitionError(f"the flow file '{path}' of run {started.run_id} is gone: name it with --flow FILE")
    complain(f"notice: '{path}' is gone; the run goes on with the text that it was started with")
    place = place_of(started.path, str(started.settings.get("folder", "")))
    return Flow.from_text(started.source, place, model=model, environ=load_environment())


def _localize_path(path: str, folder: str) -> str:
    """The flow's path as seen from here: it was given in the folder where the run was started."""
    return path if not folder or folder == os.getcwd() else os.path.join(folder, path)


def _parse_pair(text: str) -> tuple[str, Any]:
    """`key=value`; the value is JSON, or else text."""
    key, sign, value = text.partition("=")
    if not sign:
        raise click.UsageError(f"--set {text!r}: write KEY=VALUE")
    return key, parse_value(value)


def _tell_succeeded(
    run_id: str, past: Sequence[Event], finished: RunFinished, reporting: Reporting, results: Results
) -> int:
    if not reporting.quiet:
        complain(f"run {run_id} has succeeded already; these are its outputs")
    if reporting.json:
        from flowengine.cli.format_run import to_run_json  # Most runs are printed as their outputs.

        results.json(to_run_json(fold_events(past), finished.outputs))
    elif finished.outputs and not reporting.events:
        results.line(format_outputs(finished.outputs))
    return 0
